"""The proof that a sandbox must pass before anything untrusted runs in it: the kernel's report, and a few attacks."""

import asyncio
import json
import os
import socket
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loomrl.errors import ConfigError, LoomError, SandboxError
from loomrl.gym.sandbox.attack import (
    HOST_ATTACKS,
    KERNEL_ATTACKS,
    PATIENT,
    RESOURCE_ATTACKS,
    SECRET,
    Attack,
    says_held,
    whole,
)
from loomrl.gym.sandbox.bubblewrap import Bubblewrap
from loomrl.gym.sandbox.contract import Execution, Limits
from loomrl.gym.sandbox.process import descendants, facts
from loomrl.gym.sandbox.session import Boxes, Sandbox, SandboxSession

ESSENTIAL = (
    "reads_a_file_anyone_may_read",
    "sees_more_than_its_own_directories",
    "writes_into_the_interpreter",
    "finds_descriptors_of_the_host",
    "finds_processes_of_others",
    "becomes_another_user",
    "has_capabilities",
    "inherits_the_environment",
    "connects_to_the_host",
    "connects_to_an_abstract_socket",
    "writes_a_kernel_setting",
    "makes_a_user_namespace",
    "raises_its_own_limits",
)
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
NO_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
TRIES = 3
"""Failed starts, as on a machine under full load, before the sandbox counts as broken."""


@dataclass(frozen=True, slots=True)
class Breach:
    """An attack that the sandbox did not hold, and the evidence."""

    attack: str
    seen: str


@contextmanager
def stage_host() -> Iterator[bytes]:
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
    breach = find_breach(await sandbox.run(attack.text, stdin=told, limits=attack.limits), attack)
    if breach is None and attack.then:
        execution = await sandbox.run(whole(attack.then), stdin=told, limits=PATIENT)
        if not says_held(execution):
            return Breach(attack.name, f"afterwards: {_describe(execution)}")
    return breach


def find_breach(execution: Execution, attack: Attack) -> Breach | None:
    """The breach that this end of the attack's program shows."""
    return None if attack.holds(execution) else Breach(attack.name, _describe(execution))


async def survey(sandbox: Sandbox, attacks: Iterable[Attack], *, at_once: int = 4) -> list[Breach]:
    """Every breach by these attacks. A failure of the sandbox itself is a `SandboxError`."""
    places = asyncio.Semaphore(at_once)

    async def one(attack: Attack, told: bytes) -> Breach | None:
        async with places:
            return await attempt(sandbox, attack, told)

    with stage_host() as told:
        found = await asyncio.gather(*(one(attack, told) for attack in attacks))
    return [breach for breach in found if breach is not None]


def _describe(execution: Execution) -> str:
    return f"{execution.ending} {execution.status}: {execution.output[:200]!r} {execution.errors[-300:]!r}"


def attacks_on(boxes: Boxes) -> list[Attack]:
    """All attacks that apply to these boxes."""
    every = (*HOST_ATTACKS, *KERNEL_ATTACKS, *RESOURCE_ATTACKS)
    return [attack for attack in every if boxes.shares_kernel or not attack.on_kernel]


def prove(boxes: Boxes) -> None:
    """Refuse boxes that break their promises. Blocks for some tenths of a second."""
    found: list[str] = []

    def judge() -> None:
        try:
            found.extend(asyncio.run(_complaints_at_last(boxes)))
        except LoomError as error:
            found.append(str(error))

    thread = threading.Thread(target=judge)  # the caller may be inside an event loop already
    thread.start()
    thread.join()
    if found:
        raise ConfigError(f"no safe sandbox here: {' '.join(found)}")


async def _complaints_at_last(boxes: Boxes) -> list[str]:
    """A breach counts at once; a failure of the sandbox itself is retried."""
    for _ in range(TRIES - 1):
        try:
            return await _complaints(boxes)
        except SandboxError:
            continue
    return await _complaints(boxes)


async def _complaints(boxes: Boxes) -> list[str]:
    found = await _kernel_complaints(boxes) if isinstance(boxes, Bubblewrap) else []
    if found:
        return found
    return [f"a program in it {breach.attack} ({breach.seen})." for breach in await _essential_breaches(boxes)]


async def _essential_breaches(boxes: Boxes) -> list[Breach]:
    """One box for all of these attacks, as an episode has one for all of its programs: boxes are what takes time."""
    essential = [attack for attack in attacks_on(boxes) if attack.name in ESSENTIAL]
    with stage_host() as told:
        async with Sandbox(boxes).session(limits=PATIENT) as session:
            found = [find_breach(await session.run(attack.text, told), attack) for attack in essential]
    return [breach for breach in found if breach is not None]


async def _kernel_complaints(bubblewrap: Bubblewrap) -> list[str]:
    """The kernel's report on an idle guest, seen from outside, where no program can falsify it."""
    box = await bubblewrap.open(Limits())
    try:
        await SandboxSession.warm_up(box, "")
        return [complaint for pid in (box.first, *descendants(box.first)) for complaint in process_complaints(pid)]
    finally:
        await box.end()


def process_complaints(pid: int) -> list[str]:
    """All rights of a process that a sandboxed one must not have."""
    known = facts(pid)
    found = [f"it holds {name}={known[name]}." for name in NO_CAPABILITIES if int(known[name], 16)]
    users = {*known["Uid"].split(), *known["Gid"].split()}
    if os.geteuid() == 0 and ("0" in users or len(users) > 1):
        found.append(f"it runs as user {known['Uid'].split()} outside, which is root's or not its own.")
    if known["NoNewPrivs"] != "1":
        found.append("it may gain privileges.")
    if known["Seccomp"] != "2":
        found.append("no filter of system calls is on it.")
    same = [name for name in NAMESPACES if _namespace(pid, name) == _namespace(os.getpid(), name)]
    return [*found, *(f"it is in the host's {name} namespace." for name in same)]


def _namespace(pid: int, name: str) -> str:
    return str(Path(f"/proc/{pid}/ns/{name}").readlink())
