"""The watchdog of a process that hosts episodes: it records which episode blocks the event loop, then ends the process.

A deadline is enforced by killing a process: the timer is a C thread of `faulthandler` that needs no GIL, so it fires
even inside a regular expression. Before an episode runs, its id goes into a memory map that outlives the process.
"""

import asyncio
import faulthandler
import mmap
import shutil
import time
from collections.abc import Coroutine, Generator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SLOT_BYTES = 256
_BEATS_PER_LIMIT = 4


@dataclass(frozen=True, slots=True)
class Autopsy:
    """The last state of a dead process: the id of the episode that ran, and its location if it hung."""

    running: str = ""
    trace: str = ""


class Watchdog:
    """Ends this process if code runs without an `await` for longer than `limit_s` plus at most a quarter.

    Must be created inside the running event loop. Tasks created by `work` run under its name too.
    """

    def __init__(self, folder: Path, *, limit_s: float) -> None:
        self._limit_s = limit_s
        self._trace = (folder / "trace").open("w")
        running = folder / "running"
        running.write_bytes(bytes(_SLOT_BYTES))
        with running.open("r+b") as file:
            self._slot = mmap.mmap(file.fileno(), _SLOT_BYTES)
        self._name: ContextVar[bytes] = ContextVar("name", default=b"")
        self._beaten_at = 0.0
        loop = asyncio.get_running_loop()
        loop.set_task_factory(self._make_task)
        self._beating = loop.create_task(self._beat_when_idle())

    async def run(self, name: str, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of `work`, run as a task named `name`, which must be unique in the process."""
        self._name.set(name.encode()[:_SLOT_BYTES].ljust(_SLOT_BYTES, b"\0"))
        return await asyncio.create_task(work)

    def close(self) -> None:
        """Stop watching."""
        self._beating.cancel()
        faulthandler.cancel_dump_traceback_later()
        self._trace.close()

    def enter(self, name: bytes) -> None:
        """Record `name` as running."""
        self._slot[:] = name
        if time.monotonic() - self._beaten_at > self._limit_s / _BEATS_PER_LIMIT:
            self._beat()

    def leave(self) -> None:
        """Record that nothing is running."""
        self._slot[0] = 0

    def _beat(self) -> None:
        """Restart the timer."""
        self._beaten_at = time.monotonic()
        faulthandler.dump_traceback_later(self._limit_s * (1 + 1 / _BEATS_PER_LIMIT), exit=True, file=self._trace)

    async def _beat_when_idle(self) -> None:
        while True:
            self._beat()
            await asyncio.sleep(self._limit_s / _BEATS_PER_LIMIT)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **how: Any
    ) -> asyncio.Task[Any]:
        name = self._name.get()
        if name and isinstance(work, Coroutine):
            work = _Named(work, name, self)
        return asyncio.Task(work, loop=loop, **how)


class _Named(Coroutine[Any, Any, Any]):
    """A coroutine that records its name whenever it runs."""

    def __init__(self, work: Coroutine[Any, Any, Any], name: bytes, watchdog: Watchdog) -> None:
        self._work = work
        self._name = name
        self._watchdog = watchdog

    def send(self, value: Any) -> Any:
        self._watchdog.enter(self._name)
        try:
            return self._work.send(value)
        finally:
            self._watchdog.leave()

    def throw(self, *error: Any) -> Any:
        self._watchdog.enter(self._name)
        try:
            return self._work.throw(*error)
        finally:
            self._watchdog.leave()

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()


def examine(folder: Path) -> Autopsy:
    """Read the files of a dead process in `folder`, and remove them."""
    try:
        running = (folder / "running").read_bytes().rstrip(b"\0").decode(errors="replace")
        trace = _innermost((folder / "trace").read_text(errors="replace"))
    except OSError:
        return Autopsy()
    shutil.rmtree(folder, ignore_errors=True)
    return Autopsy("" if running.startswith("\0") else running, trace)


def _innermost(dump: str) -> str:
    """The three innermost frames of the thread that ran an episode, from a dump of all threads."""
    for thread in dump.split("\n\n"):
        frames = [line.strip() for line in thread.splitlines() if line.strip().startswith("File")]
        if any(Path(__file__).name in frame for frame in frames):
            return " < ".join(frames[:3])
    return " ".join(dump.split())[:200]
