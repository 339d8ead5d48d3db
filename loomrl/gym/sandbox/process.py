"""Processes of this host, as the kernel tells of them."""

import os
from collections.abc import Iterator
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


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


def private_memory(pid: int) -> int:
    """Bytes of memory that are a process' own or its descendants', as far as the kernel lists children."""
    total, pids = 0, [pid]
    for known in pids:
        try:
            sizes = Path(f"/proc/{known}/statm").read_text().split()
            pids += map(int, Path(f"/proc/{known}/task/{known}/children").read_text().split())
        except OSError:
            continue  # it ended meanwhile
        total += (int(sizes[1]) - int(sizes[2])) * PAGE
    return total


def _all() -> Iterator[tuple[int, dict[str, str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), facts(int(entry.name))
            except OSError:
                continue  # it ended meanwhile
