"""Environment versions: immutable snapshots, each recorded once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select

from loomrl.store.db import LoomDB
from loomrl.store.events import Event, record
from loomrl.store.rows import Row, columns_of, from_json, to_json
from loomrl.store.tables import environments


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


def record_environment(db: LoomDB, new: EnvironmentVersion) -> EnvironmentVersion:
    """Record a version unless it exists, and return the recorded one, for comparing the snapshots."""
    row = columns_of(new) | {"content": to_json(dict(new.content), what=f"environment {new.id}")}
    this_version = environments.c.name == new.name, environments.c.version == new.version
    with db.write() as connection:
        stored = connection.execute(select(environments).where(*this_version)).mappings().one_or_none()
        if stored is not None:
            return _version_of(stored)
        connection.execute(insert(environments).values(**row))
        data = {"snapshot": new.snapshot}
        record(connection, Event(kind="environment.registered", subject=new.id, data=data, created_at=new.created_at))
        return new


def list_environments(db: LoomDB, *, name: str | None = None) -> list[EnvironmentVersion]:
    """The recorded versions, in order of recording."""
    query = select(environments).order_by(environments.c.position)
    if name is not None:
        query = query.where(environments.c.name == name)
    with db.read() as connection:
        return [_version_of(row) for row in connection.execute(query).mappings()]


def _version_of(row: Row) -> EnvironmentVersion:
    columns = {**row, "content": from_json(row["content"])}
    del columns["position"]
    return EnvironmentVersion(**columns)
