"""The alarm of the main thread: it interrupts environment code that does not return to the event loop.

While such code runs, so does `ITIMER_REAL`; when it expires, a Hang is raised inside the stuck frame, and repeated
until the code has left it. Real time, because a hang may also sleep; a signal, because no thread runs while a regular
expression holds the GIL. Python handles signals on the main thread only: elsewhere all of this does nothing. It cannot
stop C code that neither returns nor checks for signals, or code that catches BaseException forever: for these, the
pool's actors are watched and killed.
"""

import asyncio
import math
import signal
import threading
import time
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

REPEAT_S = 0.25
"""Clean-up time of interrupted code before it is interrupted again."""
_SOON_S = 1e-6
_SHORTEST_S = 0.01
"""Smallest extension of a deadline: a request that shares an engine would extend its own in ever smaller steps."""


class Hang(BaseException):
    """Raised in the stuck frame, with its location. Not an Exception, so that no `except Exception` there stops it."""


class HangWatch:
    """A context that interrupts code which keeps the main thread longer than `limit_s`, and raises Hang.

    Reusable and nestable; an inner watch cannot outlast an outer one.
    """

    __slots__ = ("_began", "_limit_s", "_on", "due", "hang", "outer")

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._on = _on_main_thread()
        self.outer: HangWatch | None = None
        self.hang: Hang | None = None
        self.due = math.inf

    def __enter__(self) -> None:
        if self._on:
            self._began = time.monotonic()
            self.due = self._began + self._limit_s
            _ALARM.arm(self, self._began)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not self._on:
            return
        now = time.monotonic()
        _ALARM.disarm(self, now)
        if self.hang is not None:
            hang = self.hang
            self.hang = None
            _ALARM.lost_s += now - self._began
            if error is not hang:
                raise hang


class _Alarm:
    """SIGALRM and its timer, of which a process has one each. Their previous users are still served."""

    def __init__(self) -> None:
        self.lost_s = 0.0
        """Time lost to hangs, in which nothing else could run."""
        self._users = 0
        self._innermost: HangWatch | None = None
        self._others: Callable[[int, types.FrameType | None], Any] | int | None = None
        self._others_due = math.inf
        self._others_interval = 0.0

    def acquire(self) -> None:
        """Handle SIGALRM until every user has released it."""
        self._users += 1
        if self._users == 1:
            self._others = signal.signal(signal.SIGALRM, self._ring)

    def release(self) -> None:
        """Restore the previous handler after the last user."""
        self._users -= 1
        if self._users == 0 and signal.getsignal(signal.SIGALRM) == self._ring:
            signal.signal(signal.SIGALRM, self._others)

    def arm(self, watch: HangWatch, now: float) -> None:
        """Ring when `watch`, an outer watch, or another user's timer is due."""
        outer = watch.outer = self._innermost
        self._innermost = watch
        if outer is None:
            self.acquire()
            left, self._others_interval = signal.setitimer(signal.ITIMER_REAL, watch.due - now, REPEAT_S)
            self._others_due = now + left if left else math.inf
            if self._others_due > watch.due:
                return
        else:
            watch.due = min(watch.due, outer.due)
        self._set(watch, now)

    def disarm(self, watch: HangWatch, now: float) -> None:
        """Return the timer to the outer watch or to its other user."""
        self._innermost = watch.outer
        if watch.outer is not None:
            self._set(watch.outer, now)
            return
        left = max(self._others_due - now, _SOON_S) if self._others_due < math.inf else 0.0
        signal.setitimer(signal.ITIMER_REAL, left, self._others_interval)
        self.release()

    def _set(self, watch: HangWatch, now: float) -> None:
        left = min(watch.due, self._others_due) - now
        signal.setitimer(signal.ITIMER_REAL, left if left > 0 else REPEAT_S, REPEAT_S)

    def _ring(self, signum: int, frame: types.FrameType | None) -> None:
        watch = self._innermost
        now = time.monotonic()
        if watch is None:
            self._give_way(signum, frame)
        elif now >= self._others_due:
            self._others_due = now + self._others_interval if self._others_interval else math.inf
            self._set(watch, now)
            self._give_way(signum, frame)
        elif now < watch.due:
            self._set(watch, now)
        elif frame is not None and frame.f_globals is not globals():
            watch.hang = Hang(_where(frame))
            raise watch.hang
        # else it is our own code, which is not stuck: it disarms in a moment, or the alarm repeats

    def _give_way(self, signum: int, frame: types.FrameType | None) -> None:
        if callable(self._others):
            self._others(signum, frame)
        elif self._others == signal.SIG_DFL:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGALRM)


_ALARM = _Alarm()


@contextmanager
def alarm_ready() -> Iterator[None]:
    """Keep the signal handler installed in this context, which makes every `Watch` cheaper."""
    if not _on_main_thread():
        yield
        return
    _ALARM.acquire()
    try:
        yield
    finally:
        _ALARM.release()


@types.coroutine
def interruptible(work: Coroutine[Any, Any, T], limit_s: float) -> Generator[Any, Any, T]:
    """The result of `work`, which may not take longer than `limit_s` from one await to the next.

    Tasks that it creates are not watched.
    """
    watch = HangWatch(limit_s)
    resume: Callable[[Any], Any] = work.send
    value: Any = None
    while True:
        try:
            with watch:
                awaited = resume(value)
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            value = yield awaited
            resume = work.send
        except BaseException as error:  # noqa: BLE001 - it is meant for `work`
            value = error
            resume = work.throw


class Deadline:
    """`asyncio.timeout` that does not count time lost to another episode's hang, or `held_s()`, the seconds held."""

    def __init__(self, timeout_s: float, held_s: Callable[[], float] = lambda: 0.0) -> None:
        self._timeout_s = timeout_s
        self._held_s = held_s
        self._timer = asyncio.timeout(None)

    async def __aenter__(self) -> asyncio.Timeout:
        loop = asyncio.get_running_loop()
        self._due = loop.time() - self._lost() + self._timeout_s
        self._handle = loop.call_later(self._timeout_s, self._expire)
        return await self._timer.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._handle.cancel()
        await self._timer.__aexit__(kind, error, trace)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        left_s = self._due + self._lost() - loop.time()
        if left_s < _SHORTEST_S:
            self._timer.reschedule(loop.time())
            return
        self._handle = loop.call_later(left_s, self._expire)

    def _lost(self) -> float:
        return _ALARM.lost_s + self._held_s()


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _where(frame: types.FrameType) -> str:
    """The three innermost frames, in the watchdog's format."""
    frames: list[str] = []
    at: types.FrameType | None = frame
    while at is not None and len(frames) < 3 and at.f_globals is not globals():
        frames.append(f'File "{at.f_code.co_filename}", line {at.f_lineno} in {at.f_code.co_name}')
        at = at.f_back
    return " < ".join(frames)
