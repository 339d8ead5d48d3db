"""Attacks on a sandbox, as data: a program, and the outcome expected if the sandbox holds."""

import asyncio
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loomrl.gym.sandbox.contract import Ending, Execution, Limits, Sandbox

PRELUDE = '''
import ctypes, json, os, sys
stage = json.loads(sys.stdin.readline())
libc = ctypes.CDLL(None, use_errno=True)
machine = os.uname().machine
def breached(what):
    os.write(1, f"breached: {what!r}"[:500].encode())
    os._exit(0)
def refused(attempt, *arguments):
    """The attempt must raise; whatever it returns is a breach."""
    try:
        result = attempt(*arguments)
    except (OSError, ValueError, MemoryError):
        return
    breached(result)
def no_call(numbers, *arguments):
    """The system call of this machine must fail."""
    number = numbers[("x86_64", "aarch64").index(machine)]
    if number is not None:
        wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
        result = libc.syscall(ctypes.c_long(number), *wide)
        if result != -1:
            breached(("system call", number, result))
def must(truth, what):
    if not truth:
        breached(what)
'''
HELD = b"held"
PATIENT = Limits(wall_s=30.0, cpu_s=10)
"""An attempt cut off by a stalled machine proves nothing."""
SECRET = "LOOMRL_SANDBOX_SECRET"


def says_held(execution: Execution) -> bool:
    """The program tried everything, and everything was refused."""
    return execution.ending is Ending.EXITED and execution.status == 0 and execution.output == HELD


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack. `then` runs afterwards in its own sandbox, and must find nothing.

    `on_kernel` marks attacks on the kernel shared with the host: for a sandbox with its own kernel (gVisor) they prove
    nothing. `works_outside` marks harmless ones that succeed without a sandbox, which shows that they work.
    """

    name: str
    program: str
    holds: Callable[[Execution], bool] = says_held
    then: str = ""
    limits: Limits = PATIENT
    on_kernel: bool = False
    works_outside: bool = False

    @property
    def text(self) -> str:
        """The whole program."""
        return whole(self.program)


def whole(program: str) -> str:
    """A program with the prelude before it and its success message after it."""
    return f"{PRELUDE}\n{program}\nos.write(1, {HELD!r})\n"


@dataclass(frozen=True, slots=True)
class Breach:
    """An attack that the sandbox did not hold, and the evidence."""

    attack: str
    seen: str


@contextmanager
def staged() -> Iterator[bytes]:
    """A host worth attacking: a file, a secret, two listeners. Yields their description for the attacks."""
    with tempfile.TemporaryDirectory(prefix="loomrl-stage-") as folder, socket.socket() as tcp:
        Path(folder).chmod(0o755)
        canary = Path(folder) / "canary"
        canary.write_text("canary")
        canary.chmod(0o666)
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        with socket.socket(socket.AF_UNIX) as unix:
            name = f"loomrl-stage-{os.getpid()}-{tcp.getsockname()[1]}"
            unix.bind(f"\0{name}")
            unix.listen()
            os.environ[SECRET] = "secret"
            try:
                told = {"pid": os.getpid(), "canary": str(canary), "port": tcp.getsockname()[1], "unix": name}
                yield json.dumps({**told, "secret": SECRET}).encode() + b"\n"
            finally:
                os.environ.pop(SECRET, None)


async def attempt(sandbox: Sandbox, attack: Attack, told: bytes) -> Breach | None:
    """Run one attack. None if it was held."""
    breach = seen_in(await sandbox.run(attack.text, stdin=told, limits=attack.limits), attack)
    if breach is None and attack.then:
        execution = await sandbox.run(whole(attack.then), stdin=told, limits=PATIENT)
        if not says_held(execution):
            return Breach(attack.name, f"afterwards: {_seen(execution)}")
    return breach


def seen_in(execution: Execution, attack: Attack) -> Breach | None:
    """The breach that this end of the attack's program shows."""
    return None if attack.holds(execution) else Breach(attack.name, _seen(execution))


async def survey(sandbox: Sandbox, attacks: Iterable[Attack], *, at_once: int = 4) -> list[Breach]:
    """Every breach by these attacks. A failure of the sandbox itself is a `SandboxError`."""
    places = asyncio.Semaphore(at_once)

    async def one(attack: Attack, told: bytes) -> Breach | None:
        async with places:
            return await attempt(sandbox, attack, told)

    with staged() as told:
        found = await asyncio.gather(*(one(attack, told) for attack in attacks))
    return [breach for breach in found if breach is not None]


def _seen(execution: Execution) -> str:
    return f"{execution.ending} {execution.status}: {execution.output[:200]!r} {execution.errors[-300:]!r}"
