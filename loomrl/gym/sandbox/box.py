"""A running guest as the host sees it: a socket, and a process tree that can be ended."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from loomrl.errors import SandboxError
from loomrl.gym.sandbox.contract import Limits
from loomrl.gym.sandbox.process import cpu_seconds, memory
from loomrl.process import is_readable

START_S = 20.0
"""Start time beyond which a sandbox is broken. Machines under full load need seconds."""
END_S = 10.0
LINGER_S = 2.0
NO_ENVIRONMENT: dict[str, str] = {}


class GuestBox(ABC):
    """One guest, being started. Its creator must `end` it, even if the start failed.

    `roots` are descriptors of processes whose end ends all others of the guest.

    The thread that creates it must outlive it: a sandbox dies with that thread. Without a user id or a function to run
    first, `Popen` uses vfork: quick from large processes, and safe with threads.
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
    def on_start(self) -> None:
        """Called once the guest is ready, before any program runs."""

    @abstractmethod
    async def has_ended_inside(self) -> bool:
        """True if the guest was ended from inside the box, and not by us or the host."""

    @abstractmethod
    def give_back(self, *, dead: bool) -> None:
        """Release its resources; `dead` tells that no process of it can be left."""

    def cpu_seconds(self) -> float:
        """Processor time of everything that ran in it."""
        return cpu_seconds(self.process.pid)

    def overflows(self, limits: Limits) -> bool:
        """True if its processes together hold more memory than allowed, for boxes that nothing else would stop."""
        return memory(self.process.pid, limits.memory_bytes) > limits.memory_bytes

    async def send(self, data: bytes) -> None:
        """Send bytes to the guest. A dead guest is noticed on the next read."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await asyncio.get_running_loop().sock_sendall(self.control, data)

    async def receive(self, count: int) -> bytes:
        """Exactly `count` bytes from the guest, or fewer if it is dead."""
        return await receive(self.control, count)

    def complaint(self) -> str:
        """The last standard error of the guest or its launcher, which no program can write to."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self._stderr, 1 << 16).decode(errors="replace").strip()[-2000:]
        return ""

    async def end(self) -> None:
        """Kill the whole box, wait until it is dead, reap it, and release its resources.

        The launcher reaps the guest and then ends by itself: killed together with it, it would leave a zombie to the
        host's first process, which in many containers reaps nothing.

        If cancelled, it still completes, but blocks the event loop meanwhile.
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
        if not is_readable(self._carrier, LINGER_S):
            kill(self._carrier)
        dead = all(is_readable(process, END_S) for process in (*self.roots, self._carrier))
        if dead:
            self.process.wait()
        self.control.close()
        for fd in (self._stderr, self._carrier, *self.roots):
            os.close(fd)
        self.give_back(dead=dead)


def kill(process: int) -> None:
    """Send SIGKILL to the process of this descriptor, if it still exists."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, signal.SIGKILL)


async def receive(peer: socket.socket, count: int) -> bytes:
    """Exactly `count` bytes, or fewer if the peer hung up."""
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
    """Return once there is something to read. A process descriptor is readable once the process is dead."""
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


def seal(data: bytes) -> int:
    """A read descriptor of these bytes."""
    fd = os.memfd_create("loomrl")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def flat(groups: Iterable[Sequence[str]]) -> list[str]:
    """The words of all groups in order."""
    return [word for group in groups for word in group]
