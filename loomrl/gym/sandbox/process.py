"""Processes of this host, as the kernel tells of them."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def facts(pid: int) -> dict[str, str]:
    """What /proc tells about a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def owned_by(uid: int, *, zombies: bool = True) -> list[int]:
    """The processes of a user. Zombies run nothing any more, though their parent may never take notice."""
    return [
        pid
        for pid, known in _all()
        if known["Uid"].split()[0] == str(uid) and (zombies or known["State"][0] not in "ZX")
    ]


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that they did."""
    parents = {child: int(known["PPid"]) for child, known in _all()}
    found = [pid]
    for parent in found:
        found += [child for child, own in parents.items() if own == parent]
    return found[1:]


def family(pid: int) -> Iterator[int]:
    """A process and its living descendants, each before its children. Threads have children of their own."""
    found = [pid]
    for known in found:
        yield known
        with contextlib.suppress(OSError):  # it ended meanwhile
            for task in os.listdir(f"/proc/{known}/task"):  # noqa: PTH208 – asked twenty times a second
                children = map(int, _text(f"/proc/{known}/task/{task}/children").split())
                found += [child for child in children if child not in found]


def cpu_seconds(pid: int) -> float:
    """Time of a processor that a process and all that it ever started have taken, as long as each was waited for.

    What a child took is its parent's once that has waited for it. Parents are read first: nothing counts twice.
    """
    ticks = 0
    for known in family(pid):
        with contextlib.suppress(OSError):
            fields = _text(f"/proc/{known}/stat").rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS_PER_S


def memory(pid: int, enough: int) -> int:
    """Bytes that a process and its descendants hold together, files apart.

    The quick count has what they share once for each of them. Only where that comes to more than `enough` is every
    page shared out among those that have it.
    """
    pids = list(family(pid))
    quick = sum(_kilobytes(known, "status", ("RssAnon", "RssShmem", "VmSwap")) for known in pids) << 10
    if quick <= enough:
        return quick
    return sum(_kilobytes(known, "smaps_rollup", ("Pss_Anon", "Pss_Shmem", "SwapPss")) for known in pids) << 10


def _kilobytes(pid: int, file: str, names: tuple[str, ...]) -> int:
    """The sum of these lines. Of a process that has ended there are none."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        lines = (line.partition(":") for line in _text(f"/proc/{pid}/{file}").splitlines())
        return sum(int(value.split()[0]) for name, _, value in lines if name in names)
    return 0


def _text(path: str) -> str:
    """A small file of the kernel's, in fewer calls than a `Path` takes."""
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
