"""A cgroup for one sandbox, if this process may make one: limits for all its memory and processes together."""

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
REMOVE_S = 0.5


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The directories of one group: one under cgroup v2, one for each controller under v1."""

    folders: tuple[Path, ...]

    def add(self, pid: int) -> None:
        """Add a process, and with it everything it starts from then on."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def out_of_memory(self) -> bool:
        """True if the kernel killed a process here because memory ran out."""
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError):
                    words = (folder / name).read_text().split()
                    counts = dict(zip(words[::2], words[1::2], strict=False))
                    if int(counts.get("oom_kill", 0)):
                        return True
        return False

    def remove(self) -> None:
        """Remove the empty group; the kernel may need a moment to notice that it is empty."""
        deadline = time.monotonic() + REMOVE_S
        for folder in self.folders:
            while True:
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError as error:
                    if error.errno != errno.EBUSY or time.monotonic() > deadline:
                        break  # empty it stays harmless, and the slot's next sandbox takes it over
                    time.sleep(0.001)
                    continue
                break


def make_cgroup(name: str, *, memory: int, processes: int) -> Cgroup | None:
    """A group with these limits, or None if this process may not create one."""
    parents = _parents()
    if not parents:
        return None
    limits = (
        ("memory.max", memory),
        ("memory.swap.max", 0),
        ("memory.memsw.limit_in_bytes", -1),  # it may never be less than the next, also in a group that is taken over
        ("memory.limit_in_bytes", memory),
        ("memory.memsw.limit_in_bytes", memory),
        ("pids.max", processes),
    )
    group = Cgroup(tuple(parent / name for parent in parents))
    for folder in group.folders:
        folder.mkdir(exist_ok=True)
        for file, limit in limits:
            if (folder / file).exists():
                (folder / file).write_text(str(limit))
    return group


@cache
def _parents() -> tuple[Path, ...]:
    """The parent groups. Both memory and processes must be limitable, else there are none."""
    own = dict(_own_groups())
    if (ROOT / "cgroup.controllers").exists():
        base = ROOT / own.get("", "/").lstrip("/")
        candidates = [base] if base == ROOT else [base, base.parent]
        return next(((folder,) for folder in candidates if _can_limit(folder, "memory.max", "pids.max")), ())
    memory, pids = (ROOT / name / own.get(name, "/").lstrip("/") for name in ("memory", "pids"))
    if _can_limit(memory, "memory.limit_in_bytes") and _can_limit(pids, "pids.max"):
        return memory, pids
    return ()


def _own_groups() -> Iterator[tuple[str, str]]:
    """Controller → this process' group; the unified hierarchy's controller is the empty name."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, group


def _can_limit(parent: Path, *files: str) -> bool:
    trial = parent / f"loomrl-trial-{os.getpid()}"
    try:
        trial.mkdir()
    except OSError:
        return False
    able = all(os.access(trial / file, os.W_OK) for file in files)
    trial.rmdir()
    return able
