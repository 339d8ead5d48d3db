"""A program that forks: agents' processes begin here, with their imports already done. It imports nothing of ours.

Every attempt has a socket and two processes. The keeper supervises: it collects output, counts, and once the agent has
ended, is overdue, or the socket is closed, it kills all that the agent has left, even what has made itself a session
of its own. The agent is its child.

The interpreter is the agent's own, whichever that is: Linux and Python 3.9 are needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import runpy
import select
import signal
import socket
import struct
import sys
import time
import traceback
from typing import Any, NoReturn

SIZE = struct.Struct("<I")
"""Before the request and before the report, each JSON."""
SECONDS = struct.Struct("<d")
"""An extension of the agent's time, from the host."""
READY = b"R"
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
COUNT_S = 0.2
"""Interval between two counts of an agent's processes."""
ENDING_S = 10.0
"""Time in which everything must be dead once it is killed."""
LIBC = ctypes.CDLL(None, use_errno=True)


def serve(control: socket.socket, modules: list[str]) -> None:
    """Fork a keeper for every socket that arrives, until the host is gone."""
    _settle(modules)
    wake, waker = os.pipe()
    for end in (wake, waker):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    keepers: set[int] = set()
    control.sendall(READY)
    while True:
        ready, _, _ = select.select([control.fileno(), wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            _clear(keepers)
        if control.fileno() in ready:
            data, sockets, _, _ = socket.recv_fds(control, 1, 1)
            if not data:
                _leave(keepers)
                return
            pid = _fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for descriptor in (control.fileno(), wake, waker):
                    os.close(descriptor)
                keep(socket.socket(fileno=sockets[0]))
            keepers.add(pid)
            os.close(sockets[0])


def _settle(modules: list[str]) -> None:
    """Import what the agents will import. A module that cannot be imported is left to the agent, who will say so."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001 - a stranger's module
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    _rehearse()
    import gc

    gc.collect()
    gc.freeze()


def _rehearse() -> None:
    """Calls to a closed port: clients import half of their modules at the first call."""
    import asyncio

    how: dict[str, Any] = {"api_key": "-", "base_url": "http://127.0.0.1:9", "max_retries": 0, "timeout": 1.0}
    hello = [{"role": "user", "content": "-"}]

    async def call(client: Any) -> None:
        async with client:
            await client.responses.create(model="-", input="-")

    if (openai := sys.modules.get("openai")) is not None:
        with contextlib.suppress(Exception), openai.OpenAI(**how) as client:
            client.chat.completions.create(model="-", messages=hello)
        with contextlib.suppress(Exception):
            asyncio.run(call(openai.AsyncOpenAI(**how)))
    if (anthropic := sys.modules.get("anthropic")) is not None:
        with contextlib.suppress(Exception), anthropic.Anthropic(**how) as client:
            client.messages.create(model="-", messages=hello, max_tokens=1)


def _leave(keepers: set[int]) -> None:
    """The host is gone: the keepers have noticed, and end their agents."""
    until = time.monotonic() + ENDING_S
    while keepers and time.monotonic() < until:
        _clear(keepers)
        time.sleep(0.01)


def _fork() -> int:
    """A fork, as soon as there is room for one: another agent may be using up all processes just now."""
    until = time.monotonic() + ENDING_S
    while True:
        try:
            return os.fork()
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def _clear(keepers: set[int]) -> None:
    """Reap keepers that have ended, and kill what an agent left behind when it ended its keeper."""
    with contextlib.suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            keepers.discard(pid)
    for pid in _children(os.getpid()):
        if pid not in keepers:
            _kill_group(pid)


def keep(connection: socket.socket) -> NoReturn:
    """Run one agent, report, and end."""
    try:
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        size = SIZE.unpack(_exactly(connection, SIZE.size))[0]
        request = json.loads(_exactly(connection, size))
        report = json.dumps(Keeper(connection, request).run()).encode()
        connection.sendall(SIZE.pack(len(report)) + report)
        while connection.recv(SECONDS.size):  # closed with an extension unread, it would lose the report
            pass
    except (OSError, EOFError):  # the host is gone
        pass
    finally:
        os._exit(0)


class Keeper:
    """The supervision of one agent."""

    def __init__(self, connection: socket.socket, request: dict[str, Any]) -> None:
        self.connection = connection
        self.request = request
        self.status: int | None = None
        """Its exit status, negative for a signal, once it has ended."""
        self.output = bytearray()
        self.errors = bytearray()
        self.pipes: dict[int, bytearray] = {}

    def run(self) -> dict[str, Any]:
        """The report: how it ended, its status, output and errors."""
        start = time.monotonic()
        self.pid = self._fork()
        try:
            ended = self._watch(start + self.request["seconds"])
        finally:
            self._end_all()
        self._drain()
        if ended == "exited" and len(self.output) > self.request["output_bytes"]:
            ended = "overflow"
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "ended": ended,
            "status": self.status,
            "output": self.output[: self.request["output_bytes"]].decode(errors="replace"),
            "errors": self.errors[-self.request["error_bytes"] :].decode(errors="replace"),
            "wall_s": time.monotonic() - start,
            "cpu_s": used.ru_utime + used.ru_stime,
        }

    def _fork(self) -> int:
        outlet, inlet = os.pipe()
        error_outlet, error_inlet = os.pipe()
        pid = _fork()
        if pid == 0:
            become(self.request, inlet, error_inlet)
        for descriptor in (inlet, error_inlet):
            os.close(descriptor)
        for descriptor, buffer in ((outlet, self.output), (error_outlet, self.errors)):
            os.set_blocking(descriptor, False)
            self.pipes[descriptor] = buffer
        return pid

    def _watch(self, deadline: float) -> str:
        """Wait for its end, or for a reason to end it."""
        handle = os.pidfd_open(self.pid)
        count_at = 0.0
        while True:
            now = time.monotonic()
            if now >= deadline:
                return "deadline"
            if now >= count_at:
                if len(_descendants(os.getpid())) > self.request["processes"]:
                    return "crowd"
                count_at = now + COUNT_S
            waited = [handle, self.connection.fileno(), *self.pipes]
            ready, _, _ = select.select(waited, [], [], min(COUNT_S, deadline - now))
            if self.connection.fileno() in ready:
                deadline += SECONDS.unpack(_exactly(self.connection, SECONDS.size))[0]
            for descriptor in [each for each in ready if each in self.pipes]:
                self._read(descriptor)
            if len(self.output) > self.request["output_bytes"]:
                return "overflow"
            if handle in ready:
                return "exited"

    def _read(self, descriptor: int) -> bool:
        """Take what is there; False if there is nothing now. Of errors only the end is kept."""
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            del self.pipes[descriptor]
            os.close(descriptor)
            return False
        buffer = self.pipes[descriptor]
        buffer += data
        most = self.request["error_bytes"]
        if buffer is self.errors and len(buffer) > 2 * most:
            del buffer[:-most]
        return True

    def _drain(self) -> None:
        """The rest of the pipes' contents; their writers are dead."""
        for descriptor in [*self.pipes]:
            while len(self.output) <= self.request["output_bytes"] and self._read(descriptor):
                pass

    def _end_all(self) -> None:
        """Kill every descendant, until none is left."""
        until = time.monotonic() + ENDING_S
        _kill_group(self.pid)
        while self._reap() and time.monotonic() < until:
            for pid in _descendants(os.getpid()):
                _kill_group(pid)

    def _reap(self) -> bool:
        """Reap ended processes; False if there are none left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                time.sleep(0.001)
                return True
            if pid == self.pid:
                self.status = os.waitstatus_to_exitcode(status)


def become(request: dict[str, Any], output: int, errors: int) -> NoReturn:
    """Turn this fork into the agent."""
    status = 1
    try:
        os.setsid()
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, descriptor in enumerate((nothing, output, errors)):
            os.dup2(descriptor, number)
        os.closerange(3, 4096)
        _limit(request)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115 - they are the process's own
        sys.stdout = open(1, "w", encoding="utf-8", errors="replace", buffering=1)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="replace", buffering=1)  # noqa: SIM115
        sys.path[:0] = request["path"]
        status = _act(request)
    except BaseException:  # noqa: BLE001 - as an interpreter ends
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


def _act(request: dict[str, Any]) -> int:
    """The agent's work: a command, a script, or a function of the task."""
    import random

    random.seed()
    if request["argv"]:
        try:
            os.execvp(request["argv"][0], request["argv"])
        except OSError as error:
            print(f"{request['argv'][0]}: {error}", file=sys.stderr)
            return 127
    try:
        if request["script"]:
            sys.argv = [request["script"], *request["arguments"]]
            runpy.run_path(request["script"], run_name="__main__")
        else:
            module, _, name = request["function"].partition(":")
            answer = getattr(importlib.import_module(module), name)(request["task"])
            if answer is not None:
                print(answer if isinstance(answer, str) else json.dumps(answer))
    except SystemExit as end:
        return _status(end.code)
    _finish_threads()
    return 0


def _status(code: Any) -> int:
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1


def _finish_threads() -> None:
    """Wait for the agent's own threads, as an interpreter does at its end."""
    import atexit
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def _limit(request: dict[str, Any]) -> None:
    seconds = int(request["seconds"]) + 1
    limits = (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, request["processors"] * seconds),
        (resource.RLIMIT_FSIZE, request["file_mb"] << 20),
        (resource.RLIMIT_DATA, request["memory_mb"] << 20),
    )
    for name, most in limits:
        _, hard = resource.getrlimit(name)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(name, (most, most))


def _descendants(pid: int) -> list[int]:
    """All processes below this one."""
    found = dict.fromkeys(_children(pid))
    waiting = list(found)
    while waiting:
        new = [child for child in _children(waiting.pop()) if child not in found]
        found.update(dict.fromkeys(new))
        waiting += new
    return list(found)


def _children(pid: int) -> list[int]:
    """Children of all its threads."""
    children: list[int] = []
    with contextlib.suppress(OSError):  # it ended meanwhile
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:  # noqa: PTH123
                children += map(int, file.read().split())
    return children


def _kill_group(pid: int) -> None:
    """Kill a process and, unless it is ours, its group: none of a group can fork while that is done."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        group = os.getpgid(pid)
        if group != os.getpgrp():
            os.killpg(group, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError("the host has let go")
        data += part
    return data


def _arguments() -> tuple[socket.socket, list[str]]:
    del sys.path[0]  # the folder of this file: its neighbours are not for agents
    control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    return control, json.loads(sys.argv[1])


if __name__ == "__main__":
    serve(*_arguments())
