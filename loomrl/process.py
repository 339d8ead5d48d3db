"""How processes of ours end: so that what they hold is closed, and never after whoever started them."""

import ctypes
import os
import signal
import sys
from types import FrameType

PR_SET_PDEATHSIG = 1


def exit_on_sigterm() -> None:
    """SIGTERM raises SystemExit in the main thread, so that `with` blocks and `finally` clauses run."""
    signal.signal(signal.SIGTERM, _exit)


def die_with_parent(parent: int, *, by: signal.Signals = signal.SIGTERM) -> None:
    """Be sent this signal as soon as the process `parent`, whose child we are, is gone. On Linux; elsewhere nothing."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:  # it went before we asked
        os.kill(os.getpid(), by)


def _exit(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)
