"""Data sets: frozen lists of trajectories in hubs, with the judgements that held then. Written once, never edited."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Column, Integer, Text, insert, select

from loomrl.canonical import content_hash
from loomrl.errors import DataError, unknown
from loomrl.store.db import LoomDB
from loomrl.store.events import record
from loomrl.store.log import Log, Position, Records, columns_of, scalars
from loomrl.store.runs import POLICIES

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
    """Hash of texts and token columns, which are what can be learnt from."""
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
    """Hash of content and rows."""
    content: Mapping[str, Any]
    """`selection`, `parent` (the policy to train), `counts` (what each filter left out), `sizes` by part."""
    created_at: float

    @property
    def parent(self) -> str | None:
        """The policy that it was made for: a version's id or a model's folder."""
        parent: str | None = self.content["parent"]
        return parent


DATASETS = Log("datasets", Dataset, index=("name",))
DATASET_ROWS = Records(
    "dataset_rows",
    DatasetRow,
    Column("dataset", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("position", Position, nullable=False),
    key=(),
    index=("trajectory",),
)


def identified(name: str, content: Mapping[str, Any], rows: Sequence[DatasetRow], *, created_at: float) -> Dataset:
    """The data set of this content, with the id that follows from it."""
    sha256 = content_hash([dict(content), [columns_of(row) for row in rows]])
    return Dataset(id=f"{name}-{sha256[:12]}", name=name, sha256=sha256, content=content, created_at=created_at)


def record_dataset(db: LoomDB, made: Dataset, rows: Sequence[DatasetRow]) -> None:
    """Store a data set with its rows, once."""
    with db.write() as connection:
        if DATASETS.insert_once(connection, made, changing=("created_at",)):
            stored = [DATASET_ROWS.row(row, dataset=made.id, number=number) for number, row in enumerate(rows)]
            connection.execute(insert(DATASET_ROWS.table), stored)
            told = {"sha256": made.sha256, "sizes": dict(made.content["sizes"]), "parent": made.parent}
            record(connection, "dataset.frozen", made.id, told, at=made.created_at)


def find_dataset(db: LoomDB, what: str) -> Dataset:
    """The data set of this id, or the newest of this name; a DataError names those there are."""
    query = DATASETS.select().where((DATASETS.c.id == what) | (DATASETS.c.name == what))
    found = DATASETS.first(db, query.order_by((DATASETS.c.id == what).desc(), DATASETS.c.position.desc()))
    if found is None:
        known = scalars(db, select(DATASETS.c.id).order_by(DATASETS.c.position))
        raise DataError("data set " + unknown("id", what, known) + " `loomrl data freeze ENDPOINT` makes one.")
    return found


def list_datasets(db: LoomDB, *, limit: int = 50, trajectory: str | None = None) -> list[Dataset]:
    """The latest data sets, newest first; with `trajectory` those that hold it."""
    query = DATASETS.select().order_by(DATASETS.c.position.desc()).limit(limit)
    if trajectory is not None:
        holding = select(DATASET_ROWS.c.dataset).where(DATASET_ROWS.c.trajectory == trajectory)
        query = query.where(DATASETS.c.id.in_(holding))
    return DATASETS.fetch(db, query)


def read_rows(db: LoomDB, id: str, *, part: Part | None = None) -> list[DatasetRow]:
    """The rows of a data set, in their order."""
    return DATASET_ROWS.fetch(db, DATASET_ROWS.select(dataset=id, part=part).order_by(DATASET_ROWS.c.number))


def list_training_ids(db: LoomDB, ids: Sequence[str]) -> set[str]:
    """The trajectories that these data sets have for training."""
    mine = DATASET_ROWS.c.dataset.in_(ids) & (DATASET_ROWS.c.part == "train")
    return set(scalars(db, select(DATASET_ROWS.c.trajectory).where(mine)))


def list_policies_trained_on(db: LoomDB, id: str) -> list[str]:
    """The policy versions that were trained on a data set, oldest first."""
    named = POLICIES.c.data.contains(f'"dataset":{json.dumps(id)}', autoescape=True)
    query = select(POLICIES.c.id).where(named).order_by(POLICIES.c.created_at, POLICIES.c.number)
    return scalars(db, query)
