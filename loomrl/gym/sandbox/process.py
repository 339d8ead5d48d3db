"""Processes of this host, as the kernel reports and limits them."""

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def facts(pid: int) -> dict[str, str]:
    """The kernel's status of a process, from /proc."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def processes_of(uid: int, *, zombies: bool = True) -> list[int]:
    """The processes of a user. Zombies run nothing, but may remain if their parent never reaps them."""
    return [
        pid
        for pid, known in _all()
        if known["Uid"].split()[0] == str(uid) and (zombies or known["State"][0] not in "ZX")
    ]


def descendants(pid: int) -> list[int]:
    """The processes that a process started, directly or indirectly."""
    parents = {child: int(known["PPid"]) for child, known in _all()}
    found = [pid]
    for parent in found:
        found += [child for child, own in parents.items() if own == parent]
    return found[1:]


def family(pid: int) -> Iterator[int]:
    """A process and its living descendants, parents first. Threads have children of their own."""
    found = [pid]
    for known in found:
        yield known
        with contextlib.suppress(OSError):  # it ended meanwhile
            for task in os.listdir(f"/proc/{known}/task"):  # noqa: PTH208 – asked twenty times a second
                children = map(int, _text(f"/proc/{known}/task/{task}/children").split())
                found += [child for child in children if child not in found]


def cpu_seconds(pid: int) -> float:
    """Processor seconds of a process and all its descendants ever, if each was waited for.

    A child's time becomes its parent's once the parent has waited for it. Parents are read first: nothing counts twice.
    """
    ticks = 0
    for known in family(pid):
        with contextlib.suppress(OSError):
            fields = _text(f"/proc/{known}/stat").rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS_PER_S


def memory(pid: int, enough: int) -> int:
    """Bytes that a process and its descendants hold together, without files.

    The quick count includes shared pages once per process. Only if it exceeds `enough` is every page divided among its
    sharers.
    """
    pids = list(family(pid))
    quick = sum(_kilobytes(known, "status", ("RssAnon", "RssShmem", "VmSwap")) for known in pids) << 10
    if quick <= enough:
        return quick
    return sum(_kilobytes(known, "smaps_rollup", ("Pss_Anon", "Pss_Shmem", "SwapPss")) for known in pids) << 10


def _kilobytes(pid: int, file: str, names: tuple[str, ...]) -> int:
    """The sum of these lines; 0 for a process that has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        lines = (line.partition(":") for line in _text(f"/proc/{pid}/{file}").splitlines())
        return sum(int(value.split()[0]) for name, _, value in lines if name in names)
    return 0


def _text(path: str) -> str:
    """A small kernel file, read with fewer calls than `Path` needs."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 1 << 16).decode(errors="replace")
    finally:
        os.close(fd)


def _all() -> Iterator[tuple[int, dict[str, str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), facts(int(entry.name))
            except OSError:
                continue  # it ended meanwhile


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
