"""Boxes made by bubblewrap: namespaces, a system-call filter, and, as root, a user id per box."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass

from loomrl.errors import ConfigError, SandboxError
from loomrl.gym.sandbox.box import START_S, GuestBox, flat, receive, seal
from loomrl.gym.sandbox.contract import Interpreter, Limits, find_interpreter
from loomrl.gym.sandbox.place import BoxResources, Slots
from loomrl.gym.sandbox.seccomp import filter_program

OLDEST = (0, 8, 0)
INSTALL = "Install it: apt-get install bubblewrap (0.8.0 or newer)."
DEVICES = ("null", "random", "urandom")
HEEDING = ("/usr/bin/env", "--default-signal=CHLD")
"""Prefix needed if this process ignores SIGCHLD: children inherit that, and lose the processor time of dead
processes.
"""
DROP = ("--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all")


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Opens boxes. `drop` gives up root: bubblewrap started by root itself leaves the kernel's settings writable.

    Only the folders in `writable` can be written to; /tmp is always one of them.
    """

    executable: str
    drop: tuple[str, ...]
    interpreter: Interpreter
    slots: Slots
    filter: bytes
    writable: tuple[str, ...] = ("/tmp",)
    shares_kernel = True

    async def open(self, limits: Limits) -> "Bubble":
        """A box in its own slot, with its guest starting."""
        place = await BoxResources.take(self.slots, limits)
        try:
            bubble = Bubble(self, place, limits)
        except BaseException:
            place.give_back(clean=True)
            raise
        try:
            await bubble.start()
        except OSError as error:
            said = bubble.complaint()
            await bubble.end()
            raise SandboxError(f"no sandbox could be set up: {error}. {said}") from error
        except BaseException:
            await bubble.end()
            raise
        return bubble

    def command(self, uid: int | None, limits: Limits, *, filter_fd: int, status_fd: int, go_fd: int) -> list[str]:
        """The whole command line of a box."""
        python = self.interpreter
        size = str(limits.scratch_mb << 20)
        return [
            *(HEEDING if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN else ()),
            *([word.format(uid=uid) for word in self.drop] if uid is not None else ()),
            self.executable,
            *("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"),
            *("--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"),
            *flat(("--setenv", *pair) for pair in python.environment.items()),
            *flat(("--ro-bind", str(file), str(place)) for file, place in python.mounts),
            *flat(("--symlink", target, str(name)) for target, name in python.links),
            *flat(("--size", "4096", "--tmpfs", str(place), "--remount-ro", str(place)) for place in python.hidden),
            *flat(("--dev-bind", f"/dev/{name}", f"/dev/{name}") for name in DEVICES),
            *flat(("--perms", "0700", "--size", size, "--tmpfs", folder) for folder in self.writable),
            *("--remount-ro", "/", "--chdir", "/tmp"),
            *("--seccomp", str(filter_fd), "--json-status-fd", str(status_fd), "--block-fd", str(go_fd)),
            *python.command(limits),
        ]


class Bubble(GuestBox):
    """A guest in bubblewrap that waits for our signal before it runs anything, and reports its end."""

    def __init__(self, bubblewrap: Bubblewrap, place: BoxResources, limits: Limits) -> None:
        self.place = place
        self._said = bytearray()
        self._is_known = False
        self._writable = bubblewrap.writable
        self._scratch: list[int] = []
        self._status, status = socket.socketpair()
        self._status.setblocking(False)
        wait, self._go = os.pipe()
        filter_fd = seal(bubblewrap.filter)
        fds = {"filter_fd": filter_fd, "status_fd": status.fileno(), "go_fd": wait}
        try:
            super().__init__(bubblewrap.command(place.slot.uid, limits, **fds), passing=tuple(fds.values()))
        except BaseException:
            self._status.close()
            os.close(self._go)
            raise
        finally:
            status.close()
            os.close(wait)
            os.close(filter_fd)

    async def start(self) -> None:
        """Start the guest once its first process, whose end ends all others, is known and in its cgroup."""
        await self._hear()
        if not self._root():
            raise SandboxError(f"bubblewrap did not start. It said: {self.complaint() or 'nothing'}")
        if self.place.cgroup is not None:
            self.place.cgroup.add(self.first)
        os.write(self._go, b"1")

    def on_start(self) -> None:
        """Open its scratch directories while no program can yet replace them."""
        for folder in self._writable:
            path = f"/proc/{self.first}/root{folder}"
            self._scratch.append(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    async def has_ended_inside(self) -> bool:
        """Bubblewrap reports an exit code only for a guest that started and whose end it saw."""
        self._said.clear()
        await self._hear()
        if b"exit-code" in self._said:
            return True
        return self.place.cgroup is not None and self.place.cgroup.out_of_memory()

    def overflows(self, limits: Limits) -> bool:
        """Always counts files, which nothing else limits for all folders together; memory only without a cgroup."""
        assert self._scratch, "overflows() before started()"
        every = [os.fstatvfs(folder) for folder in self._scratch]
        if sum(each.f_files - each.f_ffree for each in every) > limits.scratch_files:
            return True
        if sum((each.f_blocks - each.f_bfree) * each.f_frsize for each in every) > limits.scratch_mb << 20:
            return True
        return self.place.cgroup is None and super().overflows(limits)

    def give_back(self, *, dead: bool) -> None:
        """Release the slot and its cgroup."""
        self._status.close()
        os.close(self._go)
        for folder in self._scratch:
            os.close(folder)
        self.place.give_back(clean=dead and self._is_known)

    async def end(self) -> None:
        """Kill the whole box. If its first process is not known yet, wait for it: it would be left over."""
        if not self._is_known:
            self._status.settimeout(START_S)
            with contextlib.suppress(OSError):
                while not self._said.endswith(b"\n") and (byte := self._status.recv(1)):
                    self._said += byte
            self._root()
        await super().end()

    def _root(self) -> bool:
        """Open the first process, if bubblewrap has reported it and it lives."""
        if not self._said.endswith(b"\n"):
            return False
        self.first = int(json.loads(self._said)["child-pid"])
        self._is_known = True
        # It waits for `go`, so the number is its own, or unused if it could not even start.
        with contextlib.suppress(ProcessLookupError):
            self.roots.append(os.pidfd_open(self.first))
        return bool(self.roots)

    async def _hear(self) -> None:
        """Read to the end of bubblewrap's line."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                while not self._said.endswith(b"\n") and (byte := await receive(self._status, 1)):
                    self._said += byte


def find_bubblewrap(slots: Slots) -> Bubblewrap:
    """The bubblewrap of this machine; a ConfigError if something is missing. Runs nothing in it."""
    executable = shutil.which("bwrap")
    if executable is None:
        raise ConfigError(f"bubblewrap is not on this machine. {INSTALL}")
    said = subprocess.run([executable, "--version"], capture_output=True, text=True, check=False).stdout
    version = tuple(map(int, re.findall(r"\d+", said)))
    if version < OLDEST:
        raise ConfigError(f"bubblewrap is {said.strip() or 'of no known version'}, which is too old. {INSTALL}")
    is_root = os.geteuid() == 0
    drop: tuple[str, ...] = ()
    if is_root:
        slots.check()
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise ConfigError("setpriv is not on this machine, and as root it is needed: apt-get install util-linux.")
        drop = (setpriv, "--reuid={uid}", "--regid={uid}", *DROP)
    return Bubblewrap(executable, drop, find_interpreter(for_others=is_root), slots, filter_program())
