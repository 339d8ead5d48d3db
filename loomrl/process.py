"""How processes of ours end: so that what they hold is closed, and never after whoever started them.

As a program, `python -m loomrl.process PARENT PID...` kills these processes as soon as PARENT, which started it, ends.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

PR_SET_PDEATHSIG = 1
LOOK_S = 0.5
ON_LINUX = sys.platform.startswith("linux")


def exit_on_sigterm() -> None:
    """SIGTERM raises SystemExit in the main thread, so that `with` blocks and `finally` clauses run."""
    signal.signal(signal.SIGTERM, _exit)


def die_with_parent(parent: int, *, by: signal.Signals = signal.SIGTERM) -> None:
    """Be sent this signal as soon as the process `parent`, whose child we are, is gone. On Linux; elsewhere nothing."""
    if not ON_LINUX:
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:  # it went before we asked
        os.kill(os.getpid(), by)


@contextlib.contextmanager
def none_outlives_us() -> Iterator[None]:
    """The processes that descend from this one now are killed when it dies without leaving the block. On Linux."""
    pids = list(_descendants()) if ON_LINUX else []
    if not pids:
        yield
        return
    command = [sys.executable, "-m", "loomrl.process", *map(str, (os.getpid(), *pids))]
    watch = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        watch.kill()
        watch.wait()


def _descendants() -> Iterator[int]:
    """Children of ours, theirs, and so on."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended while we looked
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while new := {pid for pid, parent in parents.items() if parent in found} - found:
        yield from new
        found |= new


def _kill_after(parent: int, pids: Sequence[int]) -> None:
    handles = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            handles.append(os.pidfd_open(pid))  # unlike its number, never another process
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    for handle in handles:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)


def _exit(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    _kill_after(int(sys.argv[1]), [int(pid) for pid in sys.argv[2:]])
