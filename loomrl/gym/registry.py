"""The environments of a LoomDB: every version an immutable snapshot, compared with the importable code."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from loomrl.errors import RegistryError, did_you_mean
from loomrl.gym.catalogue import EnvironmentType, Found, find, make, names, register_environment
from loomrl.gym.snapshot import Difference, Snapshot, differences, take_snapshot
from loomrl.store.db import LoomDB
from loomrl.store.environments import EnvironmentVersion, list_environments, record_environment

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


def snapshot_of(id: str) -> Snapshot:
    """The snapshot of the code that is importable under this id; needs no database."""
    return _take(find(id))


def _take(found: Found) -> Snapshot:
    """Name and version are left out: a snapshot must tell whether they stand for the same content."""
    registration = found.registration
    facts = {"entry_point": registration.entry_point, "reward_threshold": registration.reward_threshold}
    return take_snapshot(found.cls, settings=registration.all_settings(), registered=facts)
