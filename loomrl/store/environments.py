"""Environment versions: immutable snapshots, each recorded once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loomrl.store.db import LoomDB
from loomrl.store.events import record
from loomrl.store.log import Log


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentVersion:
    """One version of an environment, as recorded."""

    name: str
    version: str
    entry_point: str
    snapshot: str
    """SHA-256 of the content."""
    content: Mapping[str, Any]
    created_at: float

    @property
    def id(self) -> str:
        """`Name@version`."""
        return f"{self.name}@{self.version}"


ENVIRONMENTS = Log("environments", EnvironmentVersion, key=("name", "version"))


def record_environment(db: LoomDB, new: EnvironmentVersion) -> EnvironmentVersion:
    """Record a version unless it exists, and return the recorded one, for comparing the snapshots."""
    with db.write() as connection:
        stored = ENVIRONMENTS.newest(connection, name=new.name, version=new.version)
        if stored is not None:
            return stored
        ENVIRONMENTS.append(connection, [new])
        record(connection, "environment.registered", new.id, {"snapshot": new.snapshot}, at=new.created_at)
        return new


def list_environments(db: LoomDB, *, name: str | None = None) -> list[EnvironmentVersion]:
    """The recorded versions, in order of recording."""
    return ENVIRONMENTS.fetch(db, ENVIRONMENTS.select(name=name).order_by(ENVIRONMENTS.c.position))
