"""Programs in boxes: the host's side of the guest's protocol, and the attribution of failures."""

import asyncio
import signal
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from loomrl.errors import SandboxError
from loomrl.gym.sandbox.box import START_S, GuestBox
from loomrl.gym.sandbox.contract import DEFAULT_LIMITS, Ending, Execution, Limits

SIZES = struct.Struct("<IId")
EXECUTION = struct.Struct("<cB?dII")
"""The same as in guest.py, which cannot import it."""

GRACE_S = 0.2
"""The host's deadline after the guest's own. A program may stop the guest, but not the host."""

CPU_GRACE_S = 0.25
"""Extra processor time of all processes of a program together; a single one is ended by the kernel, to the tick."""

WATCH_S = 0.05
"""Interval between checks of their use."""

ENDINGS = {b"E": Ending.EXITED, b"S": Ending.SIGNALLED, b"T": Ending.TIMEOUT, b"O": Ending.OVERFLOW}


class Boxes(Protocol):
    """Creates boxes: one implementation per kind of sandbox."""

    @property
    def shares_kernel(self) -> bool:
        """True if programs use the host's own kernel."""
        ...

    async def open(self, limits: Limits) -> GuestBox:
        """A box whose guest has been started but is not ready yet."""
        ...


class Sandbox:
    """Runs untrusted Python, every program or session in a box of its own.

    Only its own failures are a `SandboxError`, never anything the program did.
    """

    def __init__(self, boxes: Boxes) -> None:
        self.boxes = boxes

    async def run(self, program: str, *, stdin: bytes = b"", limits: Limits = DEFAULT_LIMITS) -> Execution:
        """Run the text of a Python program in its own sandbox."""
        async with self.session(limits=limits) as session:
            return await session.run(program, stdin=stdin)

    @asynccontextmanager
    async def session(self, *, preload: str = "", limits: Limits = DEFAULT_LIMITS) -> AsyncIterator["SandboxSession"]:
        """A warm sandbox for one episode, opened by its first program; it runs `preload`, trusted text, once."""
        session = SandboxSession(self.boxes, preload=preload, limits=limits)
        try:
            yield session
        finally:
            await session.close()


class SandboxSession:
    """Forks of one warm guest, one program at a time. A guest damaged by a program is replaced; with `keeps_files` the
    session is then over.
    """

    def __init__(self, boxes: Boxes, *, preload: str, limits: Limits) -> None:
        self._boxes = boxes
        self._preload = preload
        self._limits = limits
        self._box: GuestBox | None = None
        self._turn = asyncio.Lock()
        self._began = False

    @property
    def is_lost(self) -> bool:
        """True if the files that this session was to keep are gone: a program's end was the end of its box."""
        return self._limits.keeps_files and self._began and self._box is None

    async def run(self, program: str, stdin: bytes = b"", *, wall_s: float | None = None) -> Execution:
        """Run the text of a Python program to its end or to its limits; `wall_s` replaces that of the limits."""
        wall_s = self._limits.wall_s if wall_s is None else wall_s
        text = program.encode("utf-8", "surrogatepass")  # what is no UTF-8 is the program's own syntax error
        request = SIZES.pack(len(text), len(stdin), wall_s) + text + stdin
        async with self._turn:
            try:
                return await self._run(request, wall_s)
            except BaseException:
                await self.close()
                raise

    async def close(self) -> None:
        """End the guest and everything left in its box."""
        box = self._box
        self._box = None
        if box is not None:
            await box.end()

    async def _run(self, request: bytes, wall_s: float) -> Execution:
        # A reused box is asked first: if it fails before the program exists, the program is not to blame.
        if self._box is not None and await _answer(self._box, request) != b"S":
            await self.close()  # without a process nothing that went wrong can be this program's doing
        if self.is_lost:
            raise SandboxError("the box of this session is gone, and the files with it that it was to keep.")
        if self._box is None:
            self._began = True
            self._box = await self._boxes.open(self._limits)
            await self.warm_up(self._box, self._preload)
            if await _answer(self._box, request) != b"S":
                raise SandboxError(f"a fresh sandbox made no process. {self._box.complaint()}")
        execution, reusable = await self._execution(self._box, wall_s)
        if not reusable:
            await self.close()
        return execution

    @staticmethod
    async def warm_up(box: GuestBox, preload: str) -> None:
        """Have a fresh guest run `preload` and wait until it is ready."""
        text = preload.encode()
        if await _answer(box, SIZES.pack(len(text), 0, 0.0) + text) != b"R":
            raise SandboxError(f"the sandbox did not start. It said: {box.complaint() or 'nothing'}")
        box.on_start()

    async def _execution(self, box: GuestBox, wall_s: float) -> tuple[Execution, bool]:
        """The program's outcome, and whether the box can be reused."""
        start = time.monotonic()
        reply = asyncio.ensure_future(_reply(box))
        try:
            ending = await self._watch(box, reply, wall_s)
        finally:
            reply.cancel()
            await asyncio.wait({reply})
        if ending is None and (found := reply.result()) is not None:
            return found
        if ending is None and not await box.has_ended_inside():
            raise SandboxError(f"the sandbox broke under a program. It said: {box.complaint() or 'nothing'}")
        return Execution(ending or Ending.SIGNALLED, signal.SIGKILL, b"", b"", time.monotonic() - start), False

    async def _watch(self, box: GuestBox, reply: "asyncio.Task[Reply]", wall_s: float) -> Ending | None:
        """The reason to kill the program from here, or None once the guest has answered or is dead."""
        deadline = time.monotonic() + wall_s + GRACE_S
        before = box.cpu_seconds()
        while not reply.done():
            left = deadline - time.monotonic()
            if left <= 0:
                return Ending.TIMEOUT
            await asyncio.wait({reply}, timeout=min(WATCH_S, left))
            if reply.done():
                break
            if box.cpu_seconds() - before > self._limits.cpu_s + CPU_GRACE_S:
                return Ending.TIMEOUT
            if box.overflows(self._limits):
                return Ending.SIGNALLED
        return None


Reply = tuple[Execution, bool] | None


async def _reply(box: GuestBox) -> Reply:
    """The guest's complete report of a program's end, or None if the guest is dead."""
    head = await box.receive(1 + EXECUTION.size)
    if len(head) < 1 + EXECUTION.size:
        return None
    ending, status, reusable, wall_s, out, err = EXECUTION.unpack(head[1:])
    output = await box.receive(out)
    errors = await box.receive(err)
    if (len(output), len(errors)) != (out, err):
        return None
    return Execution(ENDINGS[ending], status, output, errors, wall_s), reusable


async def _answer(box: GuestBox, message: bytes) -> bytes:
    """The first byte of the guest's answer; empty if it is dead or silent."""
    try:
        async with asyncio.timeout(START_S):
            await box.send(message)
            return await box.receive(1)
    except TimeoutError:
        return b""
