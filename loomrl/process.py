"""Orderly ends of processes: resources are released, and children do not outlive their parent.

As a program, it watches the process that started it and others: see `none_outlives_us`.
"""

import contextlib
import ctypes
import faulthandler
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Self

PR_SET_PDEATHSIG = 1
LOOK_S = 0.5
AGAIN_S = 0.05
"""Delay before a signal that arrived during an import is handled again."""
ENDING_S = 20.0
"""Time for a process to end in order, once a process it needs is dead."""
ON_LINUX = sys.platform.startswith("linux")


class Closing(ABC):
    """A resource that a `with` block closes at its end."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def exit_on_sigterm() -> None:
    """SIGTERM raises SystemExit in the main thread, so that `with` blocks and `finally` clauses run."""
    signal.signal(signal.SIGTERM, _exit)


def peak_memory_kb() -> int:
    """The most memory that this process has had. On Linux `ru_maxrss` is not asked: it includes the memory of the
    process that started this one.
    """
    if not ON_LINUX:
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most // 1024 if sys.platform == "darwin" else most
    return _peak_kb(os.getpid())


def family_peak() -> int:
    """Bytes of the peaks of this process and of its present descendants together; on Linux only, else of this one."""
    return 1024 * (peak_memory_kb() + sum(map(_peak_kb, _descendants() if ON_LINUX else ())))


def _peak_kb(pid: int) -> int:
    """The most memory that a process has had; 0 of one that has ended."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)
    return 0


def free_memory() -> int:
    """Bytes that this process could still take, caches that the system would release included: of this machine, or of
    the container (cgroup) that it runs in.
    """
    file = Path("/proc/meminfo")
    if not file.is_file():
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    fields = dict(line.split(":", 1) for line in file.read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) * 1024
    return min([free, *_group_memory(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))])


def return_freed_memory() -> None:
    """Give the system what this process has freed: glibc keeps it, and loading a model frees hundreds of megabytes."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _group_memory(groups: Path, root: Path) -> Iterator[int]:
    """Free bytes of every control group around this process that has a limit, of either version of cgroups."""
    lines = groups.read_text().splitlines() if groups.is_file() else []
    for _, kinds, name in (line.split(":", 2) for line in lines):
        v2 = not kinds
        if not v2 and "memory" not in kinds.split(","):
            continue
        top = root if v2 else root / "memory"
        limit, used = ("memory.max", "memory.current") if v2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        here = top / name.lstrip("/")
        for folder in (here, *here.parents):
            if folder == top.parent:
                break
            # in a container the group's own folder may be hidden, and the root is the group
            if (folder / limit).is_file() and (most := (folder / limit).read_text().strip()) != "max":
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                cached = int(stat.get("inactive_file", 0) if v2 else stat.get("total_inactive_file", 0))
                yield int(most) - int((folder / used).read_text()) + cached


def is_readable(descriptor: int, timeout_s: float) -> bool:
    """True as soon as a read would not wait; of a pidfd, once its process has ended. `select` fails from 1,024 on."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(math.ceil(1000 * timeout_s)))


def die_with_parent(parent: int, *, by: signal.Signals = signal.SIGTERM) -> None:
    """Have the kernel send us this signal as soon as our parent, the process `parent`, ends. On Linux only."""
    if not ON_LINUX:
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:  # it went before we asked
        os.kill(os.getpid(), by)


@contextlib.contextmanager
def environ(settings: Mapping[str, str | None]) -> Iterator[None]:
    """Environment variables for this context; None removes one."""
    before = {name: os.environ.get(name) for name in settings}
    _set(settings)
    try:
        yield
    finally:
        _set(before)


ANSWER_S = 5.0
"""Time for the main thread to handle a signal."""
HANG = "LOOMRL_HANG_S"
"""Environment variable: seconds without progress after which the processes of a run write their stacks."""
HANG_S = 1800.0


def stacks_on_signal() -> None:
    """Write the stacks of all threads to standard error on SIGUSR2."""
    faulthandler.register(signal.SIGUSR2, file=2, all_threads=True)


@contextlib.contextmanager
def stacks_if_stuck(waits: Mapping[str, str], limit_s: float | None = None) -> Iterator[Callable[[], None]]:
    """While the context lasts, the stacks of this process and its descendants are written whenever the function that
    it returns has not been called for `limit_s`, by default that of the environment.

    `waits`: what a function of this thread waits for, by its name; the message says so.
    """
    limit_s = float(os.environ.get(HANG, HANG_S)) if limit_s is None else limit_s
    begun_at = [time.monotonic()]
    over = threading.Event()
    waiting = threading.get_ident()

    def watch() -> None:
        while not over.wait(limit_s / 4):
            if time.monotonic() - begun_at[0] < limit_s:
                continue
            begun_at[0] = time.monotonic()
            what = next((waits[name] for name in _functions(waiting) if name in waits), "this process")
            print(
                f"loomrl: no progress for {limit_s:g} s ({HANG}): waiting for {what}. Stacks of the run's processes:",
                file=sys.stderr,
                flush=True,
            )
            faulthandler.dump_traceback(all_threads=True)
            for pid in _descendants() if ON_LINUX else ():
                if _catches(pid, signal.SIGUSR2):  # others would die of it
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGUSR2)

    def advance() -> None:
        begun_at[0] = time.monotonic()

    watcher = threading.Thread(target=watch, name="hang", daemon=True)
    watcher.start()
    try:
        yield advance
    finally:
        over.set()
        watcher.join()


@contextlib.contextmanager
def answered_in_time(last_words: Callable[[], str], within_s: float = ANSWER_S) -> Iterator[None]:
    """While the context lasts, SIGINT and SIGTERM end this process also while its main thread is in native code.

    Python handles a signal once such a call returns, and the backward pass of a large batch takes minutes. If the
    handler has not run within `within_s`, the last words are printed, and the process ends without cleaning up.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    before: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}
    handled = threading.Event()
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def handle(number: int, frame: FrameType | None) -> None:
        handled.set()
        signal.signal(number, before[number])
        signal.raise_signal(number)

    def watch() -> None:
        number = next((each for each in iter(lambda: reader.recv(1)[:1], b"") if each[0] in numbers), b"\0")[0]
        if number and not handled.wait(within_s):
            with contextlib.suppress(Exception):
                print(f"\nloomrl: {last_words()}", file=sys.stderr, flush=True)
            os._exit(128 + number)

    watcher = threading.Thread(target=watch, name="signals", daemon=True)
    watcher.start()
    earlier = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, handle)
    try:
        yield
    finally:
        handled.set()
        for number in numbers:
            if signal.getsignal(number) is handle:
                signal.signal(number, before[number])
        signal.set_wakeup_fd(earlier)
        writer.close()
        watcher.join()
        reader.close()


def _functions(thread: int) -> Iterator[str]:
    """The names of the functions that a thread is in, innermost first."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        yield frame.f_code.co_name
        frame = frame.f_back


def _catches(pid: int, number: signal.Signals) -> bool:
    """True if the process has a handler for this signal."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        caught = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")), 0)
        return bool(caught >> (number - 1) & 1)
    return False


@contextlib.contextmanager
def none_outlives_us(*, vital: str = "\0", obituary: str = "") -> Iterator[None]:
    """The current descendants of this process are killed if it dies without leaving the context. On Linux only.

    The process whose program's path ends in `vital` is required: if it dies, the obituary is printed and this process
    gets SIGTERM, then SIGKILL.
    """
    pids = list(_descendants()) if ON_LINUX else []
    if not pids:
        yield
        return
    needed = next((pid for pid in pids if _program(pid).endswith(vital)), 0)
    command = [sys.executable, "-m", "loomrl.process", obituary, *map(str, (os.getpid(), needed, *pids))]
    watch = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        watch.kill()
        watch.wait()


def _descendants() -> Iterator[int]:
    """Children of this process, theirs, and so on."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended while we looked
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while new := {pid for pid, parent in parents.items() if parent in found} - found:
        yield from new
        found |= new


def _program(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0].decode(errors="replace")
    return ""


def _watch(obituary: str, parent: int, vital: int, pids: Sequence[int]) -> None:
    """Kill the processes once the parent has ended, and end the parent once the vital one has."""
    handles = {}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            handles[pid] = os.pidfd_open(pid)  # unlike its number, never another process
    while _is_there(parent) and (not vital or not _has_ended(handles.get(vital))):
        time.sleep(LOOK_S)
    if _is_there(parent):
        print(obituary, file=sys.stderr, flush=True)
        os.kill(parent, signal.SIGTERM)
        until = time.monotonic() + ENDING_S
        while _is_there(parent) and time.monotonic() < until:
            time.sleep(LOOK_S)
        if _is_there(parent):
            os.kill(parent, signal.SIGKILL)
    for handle in handles.values():
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)


def _set(settings: Mapping[str, str | None]) -> None:
    for name, value in settings.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _is_there(parent: int) -> bool:
    return os.getppid() == parent


def _has_ended(handle: int | None) -> bool:
    return handle is None or is_readable(handle, 0)


def _exit(_number: int, frame: FrameType | None) -> None:
    # An exception inside the import system can leave its lock held, so that all other threads' imports wait for good,
    # and is lost in a weak reference's callback.
    if frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        signal.signal(signal.SIGALRM, _exit)
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        return
    sys.exit(128 + signal.SIGTERM)


LONGEST_PAUSE_S = 5.0
STEADY_S = 10.0
"""A child that lived this long is restarted without a pause."""


def come_back_when_killed() -> None:
    """Return in a child process, and in a new one whenever a signal other than a requested end kills the child.

    The parent never returns: it forwards SIGTERM and SIGINT and exits with the child's status. Call it before there are
    threads, and with the listening sockets open: connections made while no child lives wait for the next.
    """
    parent = os.getpid()
    ending = _Ending()
    before = {number: signal.signal(number, ending.take_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    pause = 0.0
    while True:
        begun = time.monotonic()
        ending.child = os.fork()
        if ending.child == 0:
            for number, handler in before.items():
                signal.signal(number, handler)
            die_with_parent(parent)
            return
        if ending.asked:
            os.kill(ending.child, signal.SIGTERM)
        status = os.waitstatus_to_exitcode(os.waitpid(ending.child, 0)[1])
        if status >= 0 or ending.asked:
            sys.exit(status if status >= 0 else 128 - status)
        pause = 0.0 if time.monotonic() - begun > STEADY_S else min(2 * pause + 0.1, LONGEST_PAUSE_S)
        name = signal.Signals(-status).name
        print(f"loomrl: the server was killed ({name}) and is started again.", file=sys.stderr, flush=True)
        time.sleep(pause)


class _Ending:
    """Signal handler of the parent: records the request to end and forwards it to the child."""

    def __init__(self) -> None:
        self.asked = False
        self.child = 0

    def take_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
        if self.child:
            os.kill(self.child, signal.SIGTERM)


if __name__ == "__main__":
    _watch(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), [int(pid) for pid in sys.argv[4:]])
