"""Boxes made by gVisor's runsc: programs talk to a kernel of their own, written in Go, and only that to the host's."""

import dataclasses
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loomrl.errors import ConfigError, SandboxError
from loomrl.gym.sandbox.box import GuestBox
from loomrl.gym.sandbox.contract import Interpreter, Limits, find_interpreter
from loomrl.gym.sandbox.place import BoxResources, Slots
from loomrl.gym.sandbox.process import descendants

INSTALL = "Install it: apt-get install runsc, or https://gvisor.dev/docs/user_guide/install."
OVERHEAD_MB = 256
OVERHEAD_THREADS = 4096
"""Threads of gVisor's own kernel beside the program. It does not count per user, and ends if refused one."""
GUEST_CAPABILITIES = ("CAP_KILL", "CAP_SETGID", "CAP_SETUID")
"""The guest is root of its own kernel: it drops this in each program's process, and no program can reach it."""


@dataclass(frozen=True, slots=True)
class Gvisor:
    """Opens boxes, each from a bundle: a configuration, and a root of empty files as mount points."""

    executable: str
    interpreter: Interpreter
    slots: Slots
    shares_kernel = False

    async def open(self, limits: Limits) -> "Cell":
        """A box with its own bundle, with its guest starting."""
        place = await BoxResources.take(self.slots, limits, extra_mb=OVERHEAD_MB, extra_processes=OVERHEAD_THREADS)
        bundle = Path(tempfile.mkdtemp(prefix="loomrl-gvisor-"))
        try:
            self.write_bundle(bundle, limits)
            return Cell(self.command(bundle), place, bundle)
        except BaseException as error:
            shutil.rmtree(bundle, ignore_errors=True)
            place.give_back(clean=True)
            if isinstance(error, OSError):
                raise SandboxError(f"no sandbox could be set up: {error}") from error
            raise

    def command(self, bundle: Path) -> list[str]:
        """The whole command line of a box. Its memory is limited by our cgroup, not by runsc's."""
        rootless = [] if os.geteuid() == 0 else ["--rootless"]
        # No network, and no cgroup of its own: ours already limits the whole box.
        options = ["--root", str(bundle / "state"), "--network", "none", "--ignore-cgroups", *rootless]
        return [self.executable, *options, "run", "--bundle", str(bundle), bundle.name]

    def write_bundle(self, bundle: Path, limits: Limits) -> None:
        """The configuration by the OCI runtime specification, and the root."""
        root = bundle / "rootfs"
        (root / "tmp").mkdir(parents=True)
        bundle.chmod(0o755)
        for file, inside in self.interpreter.mounts:
            point = root / inside.relative_to("/")
            (point if file.is_dir() else point.parent).mkdir(parents=True, exist_ok=True)
            if not file.is_dir():
                point.touch()
        for target, name in self.interpreter.links:
            link = root / name.relative_to("/")
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(target)
        (bundle / "config.json").write_text(json.dumps(self.configuration(limits)))

    def configuration(self, limits: Limits) -> dict[str, Any]:
        """The content of `config.json`."""
        python = self.interpreter
        rights = dict.fromkeys(("bounding", "effective", "permitted"), GUEST_CAPABILITIES)
        files = [_mount(str(inside), "bind", str(file), "ro", "rbind") for file, inside in python.mounts]
        hidden = [_mount(str(place), "tmpfs", "tmpfs", "ro", "size=4096") for place in python.hidden]
        scratch = _mount("/tmp", "tmpfs", "tmpfs", "nosuid", "nodev", f"size={limits.scratch_mb << 20}", "mode=1777")
        return {
            "ociVersion": "1.0.0",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": python.command(limits),
                "env": [f"{name}={value}" for name, value in python.environment.items()],
                "cwd": "/tmp",
                "capabilities": rights,
                "noNewPrivileges": True,
                "rlimits": [
                    {"type": f"RLIMIT_{name}", "hard": most, "soft": most}
                    for name, most in (("NOFILE", 256), ("NPROC", limits.processes), ("MSGQUEUE", 0))
                ],
            },
            "root": {"path": "rootfs", "readonly": True},
            "hostname": "sandbox",
            "mounts": [*files, *hidden, scratch],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]},
        }


class Cell(GuestBox):
    """A guest in gVisor. Guest and programs are different users there, so that no program can end the guest."""

    def __init__(self, command: list[str], place: BoxResources, bundle: Path) -> None:
        super().__init__(command)
        self.place = place
        self.bundle = bundle

    def on_start(self) -> None:
        """Add its processes to the cgroup and to the roots, while no program runs yet."""
        for pid in descendants(self.process.pid):
            self.roots.append(os.pidfd_open(pid))
            if self.place.cgroup is not None:
                self.place.cgroup.add(pid)

    def overflows(self, limits: Limits) -> bool:
        """Includes the memory of gVisor's own kernel, and its files."""
        return self.place.cgroup is None and super().overflows(
            dataclasses.replace(limits, memory_mb=limits.memory_mb + OVERHEAD_MB)
        )

    async def has_ended_inside(self) -> bool:
        """True only if it ran out of memory."""
        return self.place.cgroup is not None and self.place.cgroup.out_of_memory()

    def give_back(self, *, dead: bool) -> None:
        """Release the slot with its cgroup, and the bundle."""
        shutil.rmtree(self.bundle, ignore_errors=True)
        self.place.give_back(clean=dead)


def find_gvisor(slots: Slots) -> Gvisor:
    """The runsc of this machine; a ConfigError if something is missing. Runs nothing in it."""
    executable = shutil.which("runsc")
    if executable is None:
        raise ConfigError(f"runsc is not on this machine. {INSTALL}")
    return Gvisor(executable, find_interpreter(for_others=False), slots)


def _mount(destination: str, kind: str, source: str, *options: str) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": source, "options": list(options)}
