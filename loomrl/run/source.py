"""Hashes of the code that a run is made by: this loomrl, and the user's own modules that it names."""

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import loomrl

INSIDE = ("algorithms", "cluster", "envs", "experiments")
"""Packages that an installation has below `loomrl`, and a checkout beside it."""


def source_hashes(experiment: Any) -> dict[str, str]:
    """Package or module → SHA-256 of its source. Environments are not among them: they have snapshots."""
    own = {point.partition(":")[0] for point in _entry_points(experiment.plain)}
    found = {module: hash for module in sorted(own) if (hash := _hash_of(module)) is not None}
    return {"loomrl": package_hash(), **found}


@cache
def package_hash() -> str:
    """SHA-256 of all Python files of this loomrl, equal wherever it is installed."""
    files = dict(_files(Path(loomrl.__file__).resolve().parent, "loomrl"))
    for name in INSIDE:
        spec = find_spec(f"loomrl.{name}")
        places = spec.submodule_search_locations if spec is not None else None
        for place in places or ():
            files |= dict(_files(Path(place).resolve(), f"loomrl/{name}"))
    hashed = hashlib.sha256()
    for name, file in sorted(files.items()):
        hashed.update(f"{name} {hashlib.sha256(_content(file)).hexdigest()}\n".encode())
    return hashed.hexdigest()


def _files(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    for file in folder.rglob("*.py"):
        yield f"{name}/{file.relative_to(folder).as_posix()}", file


def _entry_points(value: Any) -> Iterator[str]:
    """The values of all settings of this name."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name == "entry_point" and isinstance(item, str):
                yield item
            else:
                yield from _entry_points(item)
    elif isinstance(value, list):
        for item in value:
            yield from _entry_points(item)


def _hash_of(module: str) -> str | None:
    """The hash of a module's file; None if it has none here."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return None
    return hashlib.sha256(_content(Path(spec.origin))).hexdigest()


def _content(file: Path) -> bytes:
    return file.read_bytes().replace(b"\r\n", b"\n")  # line endings differ between checkouts
