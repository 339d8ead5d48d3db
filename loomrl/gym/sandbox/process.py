"""Processes of this host, as the kernel reports them."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def facts(pid: int) -> dict[str, str]:
    """The kernel's status of a process, from /proc."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def owned_by(uid: int, *, zombies: bool = True) -> list[int]:
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
