"""Processes of a lab, told from all others by the line that each left in the lab's folder."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from loomrl.errors import ClusterError

PATIENCE_S = 30.0
FAILED = "lab: failed"
"""Written by our scripts where a command of theirs failed."""


def pid_in(file: Path) -> int | None:
    """The process that wrote its /proc/self/stat there, if it still runs; never another with the same number."""
    try:
        line = file.read_text()
        pid = int(line.split()[0])
        return pid if _started(line) == _started(Path(f"/proc/{pid}/stat").read_text()) else None
    except (OSError, IndexError, ValueError):
        return None


def kill(file: Path) -> None:
    """SIGKILL the process of this file, and with it the namespace that it is the first of; wait for its end."""
    with contextlib.suppress(ProcessLookupError), _handle(file) as handle:
        if handle is not None:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            if not select.select([handle], [], [], PATIENCE_S)[0]:
                raise ClusterError(f"{file.stem}: has not ended {PATIENCE_S:g} s after SIGKILL.")
    file.unlink(missing_ok=True)


def wait_for(file: Path, log: Path) -> int:
    """The process that writes its line there; a ClusterError with the end of the log if it does not come."""
    until = time.monotonic() + PATIENCE_S
    while (pid := pid_in(file)) is None:
        said = log.read_text().strip() if log.exists() else ""
        if FAILED in said or time.monotonic() > until:
            raise ClusterError(f"{file.stem}: did not start. {said[-2000:]}")
        time.sleep(0.01)
    return pid


@contextlib.contextmanager
def _handle(file: Path) -> Iterator[int | None]:
    pid = pid_in(file)
    if pid is None:
        yield None
        return
    handle = os.pidfd_open(pid)
    try:
        yield handle if pid_in(file) == pid else None
    finally:
        os.close(handle)


def _started(line: str) -> str:
    """The clock tick of its start."""
    return line.rpartition(")")[2].split()[19]
