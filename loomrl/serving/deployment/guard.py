"""Holds a program that outlives the process that started it: the keeper, who is connected to a socket of this one.

One keeper at a time: the next one waits, and is told that the program is its own. A keeper that dies leaves the
program running for the next; the program ends if none comes, if the node's process has ended, or by a keeper's word.
Once it has ended, the keeper reads its log and the end of the connection. If this process is killed, the kernel ends
the program.

It is run by its path, with the standard library alone: it takes 10 MB and no time while it waits.
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

DOOR = "guard.sock"
LOG = "log"
YOURS = b"yours\n"
END = b"end\n"
LOG_BYTES = 8192
PR_SET_PDEATHSIG = 1


def main(words: Sequence[str]) -> None:
    """`FOLDER SOCKET NODE LEASE_S ENDING_S PROGRAM…`: the program's folder, which ends with it; a listening socket; a
    process without which no keeper comes; the time for the next one; that for an end in order.
    """
    folder, door, node, lease_s, ending_s, *program = words
    if os.fork():
        os._exit(0)  # the keeper has no child: Ray kills the children of a process that it ends
    child = subprocess.Popen(program, preexec_fn=_dying_with(os.getpid()))
    with socket.socket(fileno=int(door)) as listener:
        keeper = hold(child, listener, _handle(int(node)), float(lease_s))
    if keeper is None:
        child.terminate()
    else:
        child.send_signal(signal.SIGUSR1)  # HAProxy listens no more, and finishes what is open
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(float(ending_s))
    child.kill()
    child.wait()
    log = (Path(folder) / LOG).read_bytes()[-LOG_BYTES:]
    shutil.rmtree(folder, ignore_errors=True)
    if keeper is not None:
        with contextlib.suppress(OSError):
            keeper.sendall(log)


def hold(
    child: subprocess.Popen[bytes], listener: socket.socket, node: int | None, lease_s: float
) -> socket.socket | None:
    """Return once the program has ended, or shall end; with the keeper, if there is one."""
    ended = os.pidfd_open(child.pid)
    keeper: socket.socket | None = None
    while True:
        door = listener.fileno() if keeper is None else keeper.fileno()
        watched = [ended, door] if node is None or keeper is not None else [ended, door, node]
        if select.select(watched, [], [], lease_s if keeper is None else None)[0] != [door]:
            return keeper
        if keeper is None:
            keeper = _accept(listener)
        elif _read(keeper) == END:
            return keeper
        else:
            keeper.close()
            keeper = None


def _accept(listener: socket.socket) -> socket.socket | None:
    """The next keeper, who is told; None if it is gone already."""
    keeper, _ = listener.accept()
    try:
        keeper.sendall(YOURS)
    except OSError:
        keeper.close()
        return None
    return keeper


def _read(keeper: socket.socket) -> bytes:
    with contextlib.suppress(OSError):
        return keeper.recv(len(END))
    return b""


def _handle(process: int) -> int | None:
    """A descriptor that is ready once the process has ended; None if there is no such process."""
    with contextlib.suppress(OSError):
        return os.pidfd_open(process)
    return None


def _dying_with(parent: int) -> Callable[[], None]:
    """Has the kernel end the program with this process, which has no thread that could hold a lock at the fork."""
    kernel = ctypes.CDLL(None)

    def ask() -> None:
        kernel.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it went before we asked
            os._exit(1)

    return ask


if __name__ == "__main__":
    main(sys.argv[1:])
