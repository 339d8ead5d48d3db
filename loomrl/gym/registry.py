"""The environments of a LoomDB: every version an immutable snapshot, compared with the importable code.

A snapshot's hash is equal on every machine.
"""

import importlib.metadata
import importlib.util
import inspect
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from loomrl.canonical import content_hash
from loomrl.errors import RegistryError, did_you_mean
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.catalogue import EnvironmentType, FoundEnvironment, find, make, names, register_environment
from loomrl.schema import merge
from loomrl.store.db import LoomDB
from loomrl.store.environments import EnvironmentVersion, list_environments, record_environment

Content = Mapping[str, Mapping[str, Any]]
"""`sources`: file → hash; `configuration` and `settings`: key → value; `dependencies`: name → version."""

DECLARED = ("families", "template_families", "reward_range", "ceilings", "guess_floor")


@dataclass(frozen=True, slots=True)
class EnvironmentSnapshot:
    """The content of an environment version, by part."""

    content: Content

    @property
    def hash(self) -> str:
        """SHA-256 of the content; equal content has an equal hash on every installation."""
        return content_hash(self.content)


@dataclass(frozen=True, slots=True)
class Difference:
    """One changed value: the part of the content, its name, old and new value (None: absent)."""

    part: str
    name: str
    old: Any
    new: Any

    def __str__(self) -> str:
        if self.part == "sources":
            change = "added" if self.old is None else "removed" if self.new is None else "changed"
            return f"{self.name} {change}"
        return f"{self.part}.{self.name}: {self.old!r} → {self.new!r}"


def take_snapshot(
    cls: type[BaseEnvironment], *, settings: Mapping[str, Any], registered: Mapping[str, Any]
) -> EnvironmentSnapshot:
    """The snapshot of a class as it is importable now, with these settings and its registration's data."""
    declared = {name: getattr(cls, name) for name in DECLARED}
    parts: dict[str, Mapping[str, Any]] = {
        "sources": dict(_sources(cls)),
        "configuration": declared | dict(registered),
        # not validated: settings that every user has to give, such as a server's address, are missing here
        "settings": merge(cls.settings_class.defaults(), settings),
        "dependencies": {name: _find_version(cls, name) for name in _declared_by_all(cls, "dependencies")},
    }
    return EnvironmentSnapshot(
        {part: {name: _plain(value) for name, value in facts.items()} for part, facts in parts.items()}
    )


def differences(old: Content, new: Content) -> list[Difference]:
    """The differences between two contents, part by part."""
    found = []
    for part in sorted(old.keys() | new.keys()):
        before, after = old.get(part, {}), new.get(part, {})
        names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        found += [Difference(part, name, before.get(name), after.get(name)) for name in names]
    return found


def _sources(cls: type[BaseEnvironment]) -> Iterator[tuple[str, str]]:
    """File below its top-level package → hash: the modules of the class and its ancestors, and their declared
    sources.
    """
    ancestors = [ancestor for ancestor in cls.__mro__ if _is_own(ancestor.__module__)]
    for name in {ancestor.__module__ for ancestor in ancestors}:
        yield from _source_of_module(sys.modules[name])
    for name in _declared_by_all(cls, "sources"):
        yield from _source_of_name(cls, name)


def _source_of_name(cls: type[BaseEnvironment], name: str) -> Iterator[tuple[str, str]]:
    """The source of a module or package, found without importing it: its requirements may not be installed."""
    try:
        spec = importlib.util.find_spec(name)
    except ImportError as error:
        raise RegistryError(f"{cls.__name__}.sources names {name!r}: {error}. Is it spelt right?") from None
    if spec is None:
        raise RegistryError(f"{cls.__name__}.sources names {name!r}: there is no such module. Is it spelt right?")
    if spec.submodule_search_locations is not None:
        yield from _source_of_package(name, spec.submodule_search_locations)
    else:
        yield f"{name.replace('.', '/')}.py", _hash_of_file(_file_of(name, spec.origin))


def _is_own(module: str) -> bool:
    package = module.partition(".")[0]
    return package != "loomrl" and package not in sys.stdlib_module_names


def _source_of_module(module: ModuleType) -> Iterator[tuple[str, str]]:
    file = _file_of(module.__name__, inspect.getsourcefile(module))
    path = module.__name__.replace(".", "/")
    yield (f"{path}/__init__.py" if hasattr(module, "__path__") else f"{path}.py"), _hash_of_file(file)


def _file_of(name: str, file: str | None) -> Path:
    if file is None or not file.endswith(".py") or not Path(file).is_file():
        raise RegistryError(f"module {name!r} has no source file, so nothing can pin it. Move it to a file.")
    return Path(file)


def _source_of_package(name: str, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    for root in map(Path, paths):
        for file in root.rglob("*"):
            below = file.relative_to(root)
            if file.is_file() and not any(part == "__pycache__" or part.startswith(".") for part in below.parts):
                yield f"{name.replace('.', '/')}/{below.as_posix()}", _hash_of_file(file)


def _hash_of_file(file: Path) -> str:
    # Line endings differ between checkouts; the hash must not.
    return sha256(file.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def _declared_by_all(cls: type[BaseEnvironment], attribute: str) -> list[str]:
    """All names declared by the class and its ancestors: a subclass keeps its base's dependencies."""
    return sorted({name for ancestor in cls.__mro__ for name in vars(ancestor).get(attribute, ())})


def _find_version(cls: type[BaseEnvironment], distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        raise RegistryError(
            f"{cls.__name__} depends on {distribution!r}, which is not installed: pip install {distribution}."
        ) from None


def _plain(value: Any) -> Any:
    """The value as plain JSON. Infinite reward bounds, which JSON lacks, become text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise RegistryError(f"an environment is declared with plain data only, not with {value!r:.100}.")


__all__ = ["EnvironmentType", "Registry", "Verification", "make", "names", "register_environment", "snapshot_of"]


@dataclass(frozen=True, slots=True)
class Verification:
    """The comparison of recorded and importable code, with the differences."""

    id: str
    recorded: str
    current: str
    differences: tuple[Difference, ...]

    @property
    def equal(self) -> bool:
        """True if both snapshots have the same hash."""
        return self.recorded == self.current


class Registry:
    """The environment versions recorded in a LoomDB."""

    def __init__(self, db: LoomDB, *, clock: Callable[[], float] = time.time) -> None:
        self._db = db
        self._clock = clock

    def register(self, id: str) -> EnvironmentVersion:
        """Record the importable code of this id, once; the same version with other content is a RegistryError."""
        found = find(id)
        snapshot = _take(found)
        new = EnvironmentVersion(
            name=found.registration.name,
            version=found.version,
            entry_point=found.registration.entry_point,
            snapshot=snapshot.hash,
            content=snapshot.content,
            created_at=self._clock(),
        )
        recorded = record_environment(self._db, new)
        if recorded.snapshot != new.snapshot:
            changes = "; ".join(map(str, differences(recorded.content, new.content)[:5]))
            raise RegistryError(
                f"{new.id} is recorded with snapshot {recorded.snapshot}, now it is {new.snapshot} ({changes}). "
                "A version never changes: give it a new version number."
            )
        return recorded

    def record(self, id: str) -> tuple[str, str]:
        """`register`, for who needs the id with its version and the snapshot alone."""
        version = self.register(id)
        return version.id, version.snapshot

    def list(self) -> list[EnvironmentVersion]:
        """Every recorded version, in order of recording."""
        return list_environments(self._db)

    def show(self, id: str) -> EnvironmentVersion:
        """The recorded version `Name@version`, or the latest recorded one of `Name`."""
        name, _, version = id.partition("@")
        versions = [known for known in list_environments(self._db, name=name) if version in ("", known.version)]
        if not versions:
            known = (environment.id for environment in self.list())
            hint = did_you_mean(id, known) or " `loomrl envs list` shows what is recorded."
            raise RegistryError(f"environment {id!r} is not recorded in {self._db.location}.{hint}")
        return versions[-1]

    def verify(self, id: str) -> Verification:
        """Compare a recorded version with the code that is importable under its id."""
        recorded = self.show(id)
        current = snapshot_of(recorded.id)
        changes = differences(recorded.content, current.content)
        return Verification(recorded.id, recorded.snapshot, current.hash, tuple(changes))

    def diff(self, old: str, new: str) -> tuple[Difference, ...]:
        """The differences from one recorded version to another."""
        return tuple(differences(self.show(old).content, self.show(new).content))


def snapshot_of(id: str) -> EnvironmentSnapshot:
    """The snapshot of the code that is importable under this id; needs no database."""
    return _take(find(id))


def _take(found: FoundEnvironment) -> EnvironmentSnapshot:
    """Name and version are left out: a snapshot must tell whether they stand for the same content."""
    registration = found.registration
    facts = {"entry_point": registration.entry_point, "reward_threshold": registration.reward_threshold}
    return take_snapshot(found.cls, settings=registration.all_settings(), registered=facts)
