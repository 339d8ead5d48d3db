"""The resources of one box: a slot, which is a user id on the whole host, and a cgroup if possible."""

import asyncio
import contextlib
import fcntl
import os
import pwd
import signal
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from loomrl.errors import ConfigError, SandboxError
from loomrl.gym.sandbox.contract import Limits
from loomrl.gym.sandbox.process import Cgroup, make_cgroup, processes_of

IN_USE = b"1"
CLEAN = b"0"
RETRY_S = 0.02
SWEEP_S = 2.0


@dataclass(frozen=True, slots=True)
class Slots:
    """`count` user ids from `base` on, which no user of this host may have.

    The default lies between systemd's ranges and below 65536, which is all that many containers map. Without root,
    programs run under our own user id, and a slot only limits the number of sandboxes.
    """

    base: int = 60_800
    count: int = 256
    wait_s: float = 60.0

    async def lease(self) -> "UserSlot":
        """A free slot, with no process of its previous user left. A `SandboxError` if none is free in time."""
        folder = _folder()
        deadline = time.monotonic() + self.wait_s
        while True:
            for number in range(self.base, self.base + self.count):
                fd = _lock(folder / f"{number}.lock")
                if fd is not None:
                    return _take(number, fd)
            if time.monotonic() > deadline:
                raise SandboxError(
                    f"no free slot in {self.wait_s:g} s: {self.count} sandboxes run on this host at once. "
                    "Run fewer episodes at a time, or give open_sandbox(slots=Slots(count=…)) more."
                )
            await asyncio.sleep(RETRY_S)

    def check(self) -> None:
        """Refuse user ids that exist on this host."""
        known = {user.pw_uid: user.pw_name for user in pwd.getpwall()}
        for uid in range(self.base, self.base + self.count):
            if uid in known or uid == 0:
                raise ConfigError(
                    f"slots.base={self.base}: user id {uid} is {known.get(uid, 'root')!r}. Choose unused ids."
                )


@dataclass(frozen=True, slots=True)
class UserSlot:
    """A leased slot with a unique number. `uid` is the same number, or None if we cannot change user."""

    number: int
    uid: int | None
    fd: int

    def release(self, *, clean: bool) -> None:
        """Release it. Unless it is `clean`, its next user first kills what is left."""
        if clean:
            os.pwrite(self.fd, CLEAN, 0)
        fcntl.flock(self.fd, fcntl.LOCK_UN)  # a forked child may hold a copy of the descriptor
        os.close(self.fd)


def _folder() -> Path:
    """The folder of this user's slot locks: one for all its processes, writable by no other user."""
    user = os.geteuid()
    parent = Path("/run") if os.access("/run", os.W_OK) else Path(tempfile.gettempdir())
    folder = parent / f"loomrl-sandbox-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o022:
        raise SandboxError(f"{folder} can be changed by another user, so its locks are worthless. Remove it.")
    return folder


def _lock(file: Path) -> int | None:
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _take(number: int, fd: int) -> UserSlot:
    slot = UserSlot(number, number if os.geteuid() == 0 else None, fd)
    try:
        if slot.uid is not None and os.pread(fd, 1, 0) == IN_USE:
            _sweep(slot.uid)
        # Marked until a clean release: if this process dies, the next user sweeps what is left.
        os.pwrite(fd, IN_USE, 0)
    except BaseException:
        slot.release(clean=False)
        raise
    return slot


def _sweep(uid: int) -> None:
    """Kill processes of a sandbox whose owner died before cleaning up."""
    deadline = time.monotonic() + SWEEP_S
    while left := processes_of(uid, zombies=False):
        if time.monotonic() > deadline:
            raise SandboxError(f"processes {left} of slot user {uid} cannot be killed.")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


WATCHERS = 4
"""Processes of a box besides the program's: the first, the guest, and a few that are just ending."""


@dataclass(frozen=True, slots=True)
class BoxResources:
    """The resources of a box while it exists."""

    slot: UserSlot
    cgroup: Cgroup | None

    @staticmethod
    async def take(
        slots: Slots, limits: Limits, *, extra_mb: int = 0, extra_processes: int = WATCHERS
    ) -> "BoxResources":
        """A slot, and a cgroup if possible, with a margin for processes that are not the program's."""
        slot = await slots.lease()
        memory = limits.memory_bytes + (extra_mb << 20)
        try:
            group = make_cgroup(
                f"loomrl-slot-{slot.number}", memory=memory, processes=limits.processes + extra_processes
            )
        except OSError as error:
            slot.release(clean=True)
            raise SandboxError(f"no cgroup could be set up: {error}") from error
        return BoxResources(slot, group)

    def give_back(self, *, clean: bool) -> None:
        """Release the slot. Unless it is `clean`, its next user looks for leftovers first."""
        if self.cgroup is not None:
            self.cgroup.remove()
        self.slot.release(clean=clean)
