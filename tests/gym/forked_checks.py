"""Processes of the checker, forked from one that has imported it: an import takes longer than most checks.

`python -m tests.gym.forked_checks FD` answers requests at that socket: a command to fork, or an id to wait for.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import cache
from types import SimpleNamespace
from typing import Any, Self

import pytest

from loomrl.gym.check import child, run


class Forked:
    """As much of `subprocess.Popen` as the checker uses."""

    def __init__(self, command: list[str], *, env: dict[str, str], **_: Any) -> None:
        self._channel = server(env["PYTHONHASHSEED"])
        jobs, self._in = os.pipe()
        self._out, answers = os.pipe()
        request = json.dumps({"argument": command[-1], "path": env["PYTHONPATH"].split(os.pathsep)})
        socket.send_fds(self._channel, [request.encode()], [jobs, answers])
        os.close(jobs)
        os.close(answers)
        self._pid = int(self._channel.recv(99))
        self.stdin = os.fdopen(self._in, "w")
        self.stdout = os.fdopen(self._out)

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # it has ended, and was waited for
            os.kill(self._pid, signal.SIGKILL)

    @cache  # noqa: B019
    def wait(self) -> int:
        self._channel.send(json.dumps({"wait": self._pid}).encode())
        return int(self._channel.recv(99))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self.wait()
        self.stdin.close()


@cache
def server(hash_seed: str) -> socket.socket:
    """The channel to a process with this order of sets and hashes; it ends with ours."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", __name__, str(theirs.fileno())]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env={**os.environ, "PYTHONHASHSEED": hash_seed})
    atexit.register(process.wait)
    atexit.register(ours.close)
    theirs.close()
    return ours


def serve(channel: socket.socket) -> None:
    while True:
        said, fds, _, _ = socket.recv_fds(channel, 1 << 20, 2)
        if not said:
            return
        request = json.loads(said)
        if "wait" in request:
            channel.send(str(os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])).encode())
            continue
        if (pid := os.fork()) == 0:
            os.dup2(fds[0], 0)
            os.dup2(fds[1], 1)
            for fd in (*fds, channel.fileno()):
                os.close(fd)
            sys.path[:] = request["path"]
            sys.argv = ["check", request["argument"]]
            child.main()
            return
        for fd in fds:
            os.close(fd)
        channel.send(str(pid).encode())


@pytest.fixture
def forked_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker forks its processes."""
    monkeypatch.setattr(run, "subprocess", SimpleNamespace(Popen=Forked, PIPE=subprocess.PIPE))


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
