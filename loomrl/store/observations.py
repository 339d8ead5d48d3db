"""Observations of an endpoint's arms, many in a row, in the order in which gateways wrote them."""

from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass
from hashlib import blake2b
from typing import Any

import msgspec
from sqlalchemy import Column, Float, Index, LargeBinary, Select, Table, Text, bindparam, delete, insert, select, update

from loomrl.errors import StoreError
from loomrl.store.db import LoomDB
from loomrl.store.log import Position, Row, fetch, metadata, scalar

observations = Table(
    "observations",
    metadata,
    Column("position", Position, primary_key=True, autoincrement=True),
    Column("endpoint", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
    Index("observations_by_endpoint", "endpoint", "position"),
    sqlite_autoincrement=True,
)
"""Outcomes of calls, many in a row, as the gateways saw them; `source` is the gateway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The outcome of one unit in one metric.

    A unit is a user, a session, or a call without either. It has one observation of a
    metric, over its first calls: its calls share an arm, so they are not evidence of their own.
    """

    revision: int
    """The endpoint's revision when the unit was assigned, which tells the shares."""
    arm: str
    """The assigned arm, also where another one answered for it."""
    unit: int
    """A hash of the unit's name, 64 bits."""
    metric: str
    """`error`, `latency_s`, `violation`, `trip`, `reward`, `success`, `negative`, or one of the caller's."""
    value: float
    at: float
    """Unix time."""
    test: str = ""
    """The A/B test that assigned the unit; empty if the endpoint's shares did."""


ROWS = 200
"""Rows that `forget_units` looks at in one go."""
_REWRITE = update(observations).where(observations.c.position == bindparam("at")).values(payload=bindparam("left"))
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[int, str, int, str, float, float, str]]).decode


def append_observations(db: LoomDB, endpoint: str, source: str, new: Sequence[Observation], at: float) -> None:
    """Store observations, all or none. `source` is who saw them, such as a gateway's id."""
    if not new:
        return
    payload = _encode([astuple(observation) for observation in new])
    row = {"endpoint": endpoint, "source": source, "payload": payload, "created_at": at}
    with db.write() as connection:
        connection.execute(insert(observations).values(**row))


def read_observations(db: LoomDB, endpoint: str, *, after: int = 0, limit: int = 1000) -> list[tuple[int, Observation]]:
    """The observations in the next rows past a position. Continue reading from the last one's position.

    `limit` counts rows: those that were stored together have one position, and are read together.
    """
    query = _rows(endpoint).where(observations.c.position > after).order_by(observations.c.position)
    rows = fetch(db, query.limit(limit))
    return [(row["position"], each) for row in rows for each in _decode_row(row)]


def latest_observations(db: LoomDB, endpoint: str, *, rows: int) -> list[Observation]:
    """The observations in an endpoint's newest rows, in their order."""
    found = fetch(db, _rows(endpoint).order_by(observations.c.position.desc()).limit(rows))
    return [each for row in reversed(found) for each in _decode_row(row)]


def unit_hash(name: str) -> int:
    """The unit of this name."""
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def first_observation(db: LoomDB, endpoint: str) -> int | None:
    """The position of an endpoint's oldest row; None without any."""
    found: int | None = scalar(db, _rows(endpoint).order_by(observations.c.position).limit(1))
    return found


def units_in(db: LoomDB, endpoint: str) -> set[int]:
    """The units that have observations."""
    found: set[int] = set()
    after = 0
    while page := read_observations(db, endpoint, after=after):
        found.update(each.unit for _, each in page)
        after = page[-1][0]
    return found


def forget_units(db: LoomDB, endpoint: str, units: Collection[int]) -> int:
    """Delete all observations of these units; how many. Positions stay."""
    deleted = 0
    after = 0
    query = _rows(endpoint).order_by(observations.c.position).limit(ROWS)
    while True:
        rows = fetch(db, query.where(observations.c.position > after))
        if not rows:
            return deleted
        after = rows[-1]["position"]
        changes = []
        for row in rows:
            every = _decode_row(row)
            kept = [each for each in every if each.unit not in units]
            if len(kept) < len(every):
                deleted += len(every) - len(kept)
                changes.append({"at": row["position"], "left": _encode([astuple(each) for each in kept])})
        if changes:
            with db.write() as connection:
                connection.execute(_REWRITE, changes)


def forget_observations(db: LoomDB, endpoint: str, *, before: float) -> int:
    """Delete the rows that were stored before then; how many."""
    mine = observations.c.endpoint == endpoint
    # Most of the time nothing is old, and no writer has to wait.
    oldest = scalar(db, select(observations.c.created_at).where(mine).order_by(observations.c.position).limit(1))
    if oldest is None or oldest >= before:
        return 0
    with db.write() as connection:
        return connection.execute(delete(observations).where(mine, observations.c.created_at < before)).rowcount


def _rows(endpoint: str) -> Select[Any]:
    return select(observations.c.position, observations.c.payload).where(observations.c.endpoint == endpoint)


def _decode_row(row: Row) -> list[Observation]:
    try:
        return [
            Observation(revision=revision, arm=arm, unit=unit, metric=metric, value=value, at=at, test=test)
            for revision, arm, unit, metric, value, at, test in _decode(row["payload"])
        ]
    except msgspec.DecodeError as error:
        raise StoreError(f"observations at {row['position']} cannot be read: {error}. Restore the database.") from None
