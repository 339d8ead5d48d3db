"""Processes of this host, as the kernel tells of them."""

from collections.abc import Iterator
from pathlib import Path


def facts(pid: int) -> dict[str, str]:
    """What /proc tells about a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def owned_by(uid: int) -> list[int]:
    """The processes of a user."""
    return [pid for pid, known in _all() if known["Uid"].split()[0] == str(uid)]


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that they did."""
    parents = {child: int(known["PPid"]) for child, known in _all()}
    found = [pid]
    for parent in found:
        found += [child for child, own in parents.items() if own == parent]
    return found[1:]


def _all() -> Iterator[tuple[int, dict[str, str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), facts(int(entry.name))
            except OSError:
                continue  # it ended meanwhile
