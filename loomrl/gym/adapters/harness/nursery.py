"""Processes for agents: forks of a warm interpreter, cheap enough for hundreds a minute on one core."""

import asyncio
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from loomrl.errors import ConfigError, EpisodeError
from loomrl.gym.host.alarm import Deadline
from loomrl.gym.sandbox.process import Cgroup, make_cgroup

GUEST = Path(__file__).with_name("guest.py")
SIZE = struct.Struct("<I")
"""The same as in guest.py, which cannot import it."""
SECONDS = struct.Struct("<d")
"""Seconds that are added to an agent's time; as in guest.py."""
ADD_S = 1.0
"""Interval at which an agent's time is extended by that in which its engine worked for others."""
START_S = 60.0
"""Time for the imports of a new nursery, by default. Machines under full load need many seconds."""
PROCESSES = 2048
"""Most processes of all agents together, enforced by the kernel where this process may make a cgroup."""
ALL_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
ENDING_S = 5.0
LATE_S = 15.0
"""Delay beyond an agent's own time after which its keeper is given up."""


class AgentEnding(StrEnum):
    """The way an agent's process ended."""

    EXITED = "exited"
    """By itself, or by a signal of its own."""
    DEADLINE = "deadline"
    OVERFLOW = "overflow"
    """It wrote more than `output_bytes`."""
    CROWD = "crowd"
    """It started more than `processes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A process to start: a command (`argv`), a Python script, or a function (`module:function`) of the task."""

    argv: Sequence[str] = ()
    script: str = ""
    arguments: Sequence[str] = ()
    """Arguments of a script."""
    function: str = ""
    path: Sequence[str] = ()
    """Folders of a script's or function's modules, before the interpreter's own."""
    task: Any = None
    """Argument of a function."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Its whole environment."""
    cwd: str
    seconds: float
    output_bytes: int = 1 << 20
    error_bytes: int = 1 << 14
    """Only the end of standard error is kept."""
    processes: int = 64
    """Processes and their descendants at one time."""
    processors: int = 4
    """Processor seconds of each process, per second of its time."""
    memory_mb: int = 4096
    file_mb: int = 256


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished process. `status` is negative for a signal."""

    ended: AgentEnding
    status: int
    output: str
    errors: str
    wall_s: float
    cpu_s: float


class Nursery:
    """One warm interpreter and the agents forked from it. They end with this process, whichever way it ends."""

    def __init__(
        self, python: str, modules: Sequence[str], path: Sequence[str], *, env: Mapping[str, str], start_s: float
    ) -> None:
        self._control, theirs = socket.socketpair()
        own_path = (*path, env.get("PYTHONPATH"))
        try:
            self._process = subprocess.Popen(
                [python, str(GUEST), json.dumps(modules)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={**plain_environment(), **env, "PYTHONPATH": os.pathsep.join(filter(None, own_path))},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(f"agent.interpreter={python!r} could not be started: {error}. Name a Python.") from error
        finally:
            theirs.close()
        self._group = make_cgroup(f"loomrl-agents-{self._process.pid}", memory=ALL_MEMORY, processes=PROCESSES)
        if self._group is not None:
            self._group.add(self._process.pid)
        self._control.settimeout(start_s)
        try:
            ready = self._control.recv(1)
        except TimeoutError:
            ready = b""
        weakref.finalize(self, _end, self._control, self._process, self._group)
        if not ready:
            raise EpisodeError(
                f"{python}: the agents' interpreter has not imported {', '.join(modules) or 'anything'} within "
                f"{start_s:g} s. Raise agent.preload_s, or name fewer modules in agent.preload."
            )

    @property
    def alive(self) -> bool:
        """False once the interpreter has ended."""
        return self._process.poll() is None

    async def run(self, launch: Launch, held_s: Callable[[], float] = lambda: 0.0) -> Ended:
        """Run one agent to its end. If this is cancelled, the agent and all that it started are killed.

        `held_s()` are seconds that are not the agent's.
        """
        ours, theirs = socket.socketpair()
        with contextlib.closing(ours):
            try:
                socket.send_fds(self._control, [b"A"], [theirs.fileno()])
            except OSError as error:
                raise EpisodeError(f"the agents' interpreter has ended: {error}") from error
            finally:
                theirs.close()
            ours.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=ours)
            try:
                request = json.dumps(asdict(launch)).encode()
                writer.write(SIZE.pack(len(request)) + request)
                async with Deadline(launch.seconds + LATE_S, held_s), _extending(writer, held_s):
                    size = SIZE.unpack(await reader.readexactly(SIZE.size))[0]
                    report = json.loads(await reader.readexactly(size))
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                raise Lost("the agent's keeper was killed, and the agent with it") from error
            except TimeoutError:
                raise Lost(f"the agent's keeper did not report within {launch.seconds + LATE_S:g} s") from None
            finally:
                writer.close()
        return Ended(**{**report, "ended": AgentEnding(report["ended"])})


@asynccontextmanager
async def _extending(writer: asyncio.StreamWriter, held_s: Callable[[], float]) -> AsyncIterator[None]:
    """Tell a keeper about time that is not its agent's."""

    async def extend() -> None:
        told_s = held_s()
        while True:
            await asyncio.sleep(ADD_S)
            more_s = held_s() - told_s
            if more_s > 0:
                writer.write(SECONDS.pack(more_s))
                told_s += more_s

    extending = asyncio.create_task(extend())
    try:
        yield
    finally:
        extending.cancel()


class Lost(Exception):
    """An agent whose keeper was killed, as only the agent itself does."""


def open_nursery(
    python: str = "",
    modules: Sequence[str] = (),
    path: Sequence[str] = (),
    *,
    env: Mapping[str, str] = MappingProxyType({}),
    start_s: float = START_S,
) -> Nursery:
    """The nursery of this process for these imports in this environment; a new one if it has died."""
    key = (python or sys.executable, tuple(modules), tuple(path), tuple(sorted(env.items())), start_s)
    nursery = _nursery(*key)
    if not nursery.alive:
        _nursery.cache_clear()
        nursery = _nursery(*key)
    return nursery


@cache
def _nursery(
    python: str, modules: tuple[str, ...], path: tuple[str, ...], env: tuple[tuple[str, str], ...], start_s: float
) -> Nursery:
    return Nursery(python, modules, path, env=dict(env), start_s=start_s)


def plain_environment() -> dict[str, str]:
    """The part of our environment that agents get: no keys, no tokens, no settings of ours."""
    names = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR")
    return {name: os.environ[name] for name in names if name in os.environ}


def _end(control: socket.socket, process: subprocess.Popen[bytes], group: Cgroup | None) -> None:
    control.close()
    try:
        process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if group is not None:
        group.remove()
