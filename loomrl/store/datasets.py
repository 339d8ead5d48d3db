"""Data sets: frozen lists of trajectories in hubs, with the judgements that held then. Written once, never edited."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import insert, select

from loomrl.canonical import content_hash
from loomrl.errors import DataError, unknown
from loomrl.store.db import LoomDB
from loomrl.store.events import Event, record
from loomrl.store.rows import Row, columns_of, from_json, insert_once, to_json
from loomrl.store.tables import dataset_rows, datasets, policies

Part = Literal["train", "holdout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRow:
    """A trajectory of a data set, and what was known of it when the set was frozen."""

    part: Part
    hub: str
    """Name of the hub, a LoomDB beside the one with the data set."""
    position: int
    trajectory: str
    sha256: str
    """Of what can be learnt from: texts and token columns."""
    domain: str
    prompt: str
    """Hash of what was asked first, by which equal prompts are known."""
    tokens: int
    """Tokens of the policy; 0 if the ids are lost, or never were ours."""
    versions: tuple[str, ...]
    """Policies that answered."""
    reward: float | None
    """Total of the latest reward; None without any."""
    reward_row: str
    feedback: tuple[str, ...]
    """Ids, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A data set without its rows."""

    id: str
    """Its name, and the beginning of its hash: the same content has the same id."""
    name: str
    sha256: str
    """Of content and rows."""
    content: Mapping[str, Any]
    """`selection`, `parent` (the policy to train), `counts` (what each filter left out), `sizes` by part."""
    created_at: float

    @property
    def parent(self) -> str | None:
        """The policy that it was made for: a version's id or a model's folder."""
        parent: str | None = self.content["parent"]
        return parent


def identified(name: str, content: Mapping[str, Any], rows: Sequence[DatasetRow], *, created_at: float) -> Dataset:
    """The data set of this content, with the id that follows from it."""
    sha256 = content_hash([dict(content), [columns_of(row) for row in rows]])
    return Dataset(id=f"{name}-{sha256[:12]}", name=name, sha256=sha256, content=content, created_at=created_at)


def record_dataset(db: LoomDB, made: Dataset, rows: Sequence[DatasetRow]) -> None:
    """Store a data set with its rows, once."""
    head = columns_of(made) | {"content": to_json(dict(made.content), what=f"data set {made.id!r}")}
    stored = [_row_of(made.id, number, row) for number, row in enumerate(rows)]
    with db.write() as connection:
        if insert_once(connection, datasets, head, changing=("created_at",)):
            connection.execute(insert(dataset_rows), stored)
            told = {"sha256": made.sha256, "sizes": dict(made.content["sizes"]), "parent": made.parent}
            record(connection, Event(kind="dataset.frozen", subject=made.id, data=told, created_at=made.created_at))


def find_dataset(db: LoomDB, what: str) -> Dataset:
    """The data set of this id, or the newest of this name; a DataError names those there are."""
    query = select(datasets).where((datasets.c.id == what) | (datasets.c.name == what))
    by_age = query.order_by((datasets.c.id == what).desc(), datasets.c.position.desc()).limit(1)
    with db.read() as connection:
        row = connection.execute(by_age).mappings().one_or_none()
        if row is None:
            known = connection.scalars(select(datasets.c.id).order_by(datasets.c.position)).all()
            raise DataError("data set " + unknown("id", what, known) + " `loomrl data freeze ENDPOINT` makes one.")
    return _dataset_of(row)


def list_datasets(db: LoomDB, *, limit: int = 50, trajectory: str | None = None) -> list[Dataset]:
    """The latest data sets, newest first; with `trajectory` those that hold it."""
    query = select(datasets).order_by(datasets.c.position.desc()).limit(limit)
    if trajectory is not None:
        holding = select(dataset_rows.c.dataset).where(dataset_rows.c.trajectory == trajectory)
        query = query.where(datasets.c.id.in_(holding))
    with db.read() as connection:
        return [_dataset_of(row) for row in connection.execute(query).mappings()]


def read_rows(db: LoomDB, id: str, *, part: Part | None = None) -> list[DatasetRow]:
    """The rows of a data set, in their order."""
    query = select(dataset_rows).where(dataset_rows.c.dataset == id).order_by(dataset_rows.c.number)
    if part is not None:
        query = query.where(dataset_rows.c.part == part)
    with db.read() as connection:
        return [_made_of(row) for row in connection.execute(query).mappings()]


def trained_trajectories(db: LoomDB, ids: Sequence[str]) -> set[str]:
    """The trajectories that these data sets have for training."""
    query = select(dataset_rows.c.trajectory).where(dataset_rows.c.dataset.in_(ids), dataset_rows.c.part == "train")
    with db.read() as connection:
        return set(connection.scalars(query))


def trained_from(db: LoomDB, id: str) -> list[str]:
    """The policy versions that were trained on a data set, oldest first."""
    named = policies.c.data.contains(f'"dataset":{json.dumps(id)}', autoescape=True)
    query = select(policies.c.id).where(named).order_by(policies.c.created_at, policies.c.number)
    with db.read() as connection:
        return list(connection.scalars(query))


def _row_of(dataset: str, number: int, row: DatasetRow) -> dict[str, Any]:
    lists = {"versions": json.dumps(row.versions), "feedback": json.dumps(row.feedback)}
    return {"dataset": dataset, "number": number, **columns_of(row), **lists}


def _made_of(row: Row) -> DatasetRow:
    lists = {name: tuple(json.loads(row[name])) for name in ("versions", "feedback")}
    columns = {name: value for name, value in row.items() if name not in ("dataset", "number")}
    return DatasetRow(**columns | lists)


def _dataset_of(row: Row) -> Dataset:
    columns = {name: value for name, value in row.items() if name != "position"}
    return Dataset(**columns | {"content": from_json(row["content"])})
