"""A running guest as the host sees it: a socket to talk over, and a process tree that ends when it is told to."""

import asyncio
import contextlib
import os
import select
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path

from loomrl.errors import SandboxError
from loomrl.gym.sandbox.contract import Limits
from loomrl.gym.sandbox.process import cpu_seconds, memory

START_S = 20.0
"""Beyond this a sandbox that has not started is broken. Machines under full load need seconds."""
END_S = 10.0
LINGER_S = 2.0
NO_ENVIRONMENT: dict[str, str] = {}
GUEST = Path(__file__).with_name("guest.py")


class Box(ABC):
    """One guest, being started. Whoever makes one must `end` it, however far it came.

    `roots` are descriptors of processes with whose end all others of the guest end.

    The thread that makes it must outlive it: a sandbox dies with that thread. Without a user id or a function to
    run before it, `Popen` uses vfork: quick from large processes, and safe among threads.
    """

    def __init__(self, command: Sequence[str], *, passing: Sequence[int] = ()) -> None:
        self.control, theirs = socket.socketpair()
        self.control.setblocking(False)
        self._stderr, their_stderr = os.pipe()
        os.set_blocking(self._stderr, False)
        try:
            self.process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=their_stderr,
                pass_fds=passing,
                env=NO_ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            self.control.close()
            os.close(self._stderr)
            raise SandboxError(f"{command[0]} could not be started: {error}") from error
        finally:
            theirs.close()
            os.close(their_stderr)
        self._carrier = os.pidfd_open(self.process.pid)
        self.roots: list[int] = []

    @abstractmethod
    def started(self) -> None:
        """Called once the guest is ready, and before any program is there."""

    @abstractmethod
    async def ended_inside(self) -> bool:
        """Whether a guest that is gone was ended by what runs in the box, and not by us or the host."""

    @abstractmethod
    def give_back(self, *, dead: bool) -> None:
        """Let go of what is held for it; `dead` says whether no process of it can be left."""

    def cpu_seconds(self) -> float:
        """What all that ran in it has taken together."""
        return cpu_seconds(self.process.pid)

    def overflows(self, limits: Limits) -> bool:
        """Whether all of it together holds more than it may, where nothing but us would stop it."""
        return memory(self.process.pid, limits.memory_bytes) > limits.memory_bytes

    async def send(self, data: bytes) -> None:
        """Hand bytes to the guest. One that is gone is found out by reading from it."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await asyncio.get_running_loop().sock_sendall(self.control, data)

    async def receive(self, count: int) -> bytes:
        """Exactly so many bytes from the guest, or fewer where it is gone."""
        return await receive(self.control, count)

    def complaint(self) -> str:
        """The last that the guest or what carries it said on standard error, where no program can write."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self._stderr, 1 << 16).decode(errors="replace").strip()[-2000:]
        return ""

    async def end(self) -> None:
        """Kill all of it, wait until it is dead, reap it, give back what it held.

        What carries the guest reaps it and then ends by itself: killed together with it, it would leave a zombie to
        the host's first process, and in many containers that one reaps nothing.

        Where this is cancelled it happens all the same, only without giving way to others meanwhile.
        """
        for root in self.roots or [self._carrier]:
            kill(root)
        try:
            async with asyncio.timeout(LINGER_S):
                for process in (*self.roots, self._carrier):
                    await readable(process)
        except TimeoutError:
            kill(self._carrier)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if not _ended(self._carrier, LINGER_S):
            kill(self._carrier)
        dead = all(_ended(process, END_S) for process in (*self.roots, self._carrier))
        if dead:
            self.process.wait()
        self.control.close()
        for fd in (self._stderr, self._carrier, *self.roots):
            os.close(fd)
        self.give_back(dead=dead)


def kill(process: int) -> None:
    """SIGKILL for the process of this descriptor, if there still is one."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, signal.SIGKILL)


def _ended(process: int, timeout_s: float) -> bool:
    return bool(select.select([process], [], [], timeout_s)[0])


async def receive(peer: socket.socket, count: int) -> bytes:
    """Exactly so many bytes, or fewer where the peer hung up."""
    loop = asyncio.get_running_loop()
    data = bytearray()
    while len(data) < count:
        try:
            part = await loop.sock_recv(peer, count - len(data))
        except ConnectionResetError:
            break
        if not part:
            break
        data += part
    return bytes(data)


async def readable(fd: int) -> None:
    """Return when there is something to read. A process' descriptor is readable once it is dead."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(fd, wake)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def guest_command(executable: Path, limits: Limits) -> list[str]:
    """The command that runs the guest: no site, no user packages, UTF-8, nothing written, and its text."""
    numbers = (
        limits.wall_s,
        limits.cpu_s,
        limits.memory_mb,
        limits.processes,
        limits.output_bytes,
        limits.scratch_mb,
    )
    return [str(executable), "-s", "-S", "-B", "-X", "utf8", "-c", GUEST.read_text(), *map(str, numbers)]


def guest_environment(library_path: str) -> dict[str, str]:
    """All that a program's environment holds. The hash seed is fixed, so that the same program does the same."""
    return {
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "LD_LIBRARY_PATH": library_path,
        "PATH": "/usr/bin",
        "PYTHONHASHSEED": "0",
        "PYTHONSAFEPATH": "1",
        "TMPDIR": "/tmp",
    }


def sealed(data: bytes) -> int:
    """A descriptor to read these bytes from."""
    fd = os.memfd_create("loomrl")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def flat(groups: Iterable[Sequence[str]]) -> list[str]:
    """The words of all groups, one after the other."""
    return [word for group in groups for word in group]
