"""A server that restarts at once when it is killed: its parent keeps the listening sockets, so that clients wait."""

import os
import signal
import sys
import time
from types import FrameType

from loomrl.process import die_with_parent

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
