"""What a trajectory tells without its words and tokens: read ten times as fast as the whole of it."""

import logging
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import select

from loomrl.errors import CorruptPayload
from loomrl.hub.array import BITS, RUNS
from loomrl.hub.codec import HEADER, READABLE, REMEDY
from loomrl.store.db import LoomDB
from loomrl.store.hub_tables import trajectories
from loomrl.types import NO_VERSION, Source

log = logging.getLogger(__name__)
PLAYED = (Source.ROLLOUT, Source.EVALUATION)
TOGETHER = 64
"""Payloads in memory at once."""


class Glance(NamedTuple):
    """A trajectory in figures and labels."""

    id: str
    source: str
    run: str
    environment: str
    family: str
    level: int
    task: str
    """Its type: what it is compared with."""
    version: str
    """The policy version that it began with, as lineage names it; of a foreign agent its model."""
    arms: list[str]
    ending: str
    success: float
    reward: float
    turns: int
    """Of all threads; of a control policy steps, too."""
    tokens: int
    """All of its threads, prompts too; of a foreign agent what it says."""
    sampled: int
    """Of these, those that the policy drew."""
    seconds: float | None
    """The policy's own time, where it is known."""
    usd: float | None
    """What a foreign agent says it cost."""
    started_at: float
    finished_at: float


class _Tokens(msgspec.Struct):
    mask_T: Any


class _Turn(msgspec.Struct):
    tokens: _Tokens | None = None


class _Steps(msgspec.Struct):
    versions_T: Any


class _Task(msgspec.Struct):
    environment: str
    version: str
    family: str
    level: int


class _Reward(msgspec.Struct):
    total: float = 0.0
    success: float = 0.0


class _Session(msgspec.Struct):
    seconds: float | None = None
    arms: list[str] = []


class _Told(msgspec.Struct):
    ms: float | None = None


class _Metadata(msgspec.Struct):
    total_tokens: int | None = None
    total_cost_usd: float | None = None


class _Foreign(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    turns: list[_Told] = []


class _Extra(msgspec.Struct):
    session: _Session | None = None
    foreign: _Foreign | None = None


class _Payload(msgspec.Struct):
    """The fields of a trajectory that are looked at; all others are skipped."""

    id: str
    task: _Task
    turns: list[_Turn]
    end: str
    reward: _Reward
    first_version: int = NO_VERSION
    source: str = Source.ROLLOUT
    run: str = ""
    started_at: float = 0.0
    finished_at: float = 0.0
    extra: _Extra = msgspec.field(default_factory=_Extra)
    threads: list[list[_Turn]] = []
    steps: _Steps | None = None


def read_glances(db: LoomDB, *, after: int, limit: int) -> tuple[int, list[tuple[int, Glance]]]:
    """The next trajectories in a hub's database, with their cursors, in commit order; and the cursor behind them.

    A damaged one is logged and left out: it stops none of the others.
    """
    query = select(trajectories.c.position, trajectories.c.payload)
    query = query.where(trajectories.c.position > after).order_by(trajectories.c.position).limit(limit)
    position, found = after, []
    with db.read() as connection, connection.execution_options(yield_per=TOGETHER).execute(query) as rows:
        for position, payload in rows:
            try:
                found.append((position, glance(payload, origin=f"{db.location}: the trajectory at {position}")))
            except CorruptPayload as error:
                log.error("%s", error)
    return position, found


def trajectory_ids(db: LoomDB, *, upto: int) -> set[str]:
    """The ids in a hub's database up to a cursor."""
    with db.read() as connection:
        return set(connection.scalars(select(trajectories.c.id).where(trajectories.c.position <= upto)))


def glance(payload: bytes, *, origin: str = "payload") -> Glance:
    """The figures of an encoded trajectory, or CorruptPayload."""
    body = memoryview(payload)[HEADER.size :]
    magic, checksum, length = HEADER.unpack_from(payload) if len(payload) >= HEADER.size else (b"", 0, 0)
    if magic not in READABLE or length != len(body) or zlib.crc32(body) != checksum:
        raise CorruptPayload(f"{origin}: its {len(payload)} bytes are damaged. {REMEDY}")
    try:
        return _glance(_DECODER.decode(body))
    except (msgspec.DecodeError, ValueError, struct.error) as error:
        raise CorruptPayload(f"{origin}: not a trajectory: {error}. {REMEDY}") from None


def _glance(one: _Payload) -> Glance:
    turns = [*one.turns, *(turn for thread in one.threads for turn in thread)]
    masks = [turn.tokens.mask_T for turn in turns if turn.tokens is not None]
    foreign = one.extra.foreign or _NOBODY
    session = one.extra.session
    return Glance(
        id=one.id,
        source=one.source,
        run=one.run,
        environment=one.task.environment,
        family=one.task.family,
        level=one.task.level,
        task=f"{one.task.environment}/{one.task.family}/{one.task.level}",
        version=_version(one),
        arms=session.arms if session is not None else [],
        ending=one.end,
        success=one.reward.success,
        reward=one.reward.total,
        turns=len(turns) + (one.steps.versions_T[0] if one.steps is not None else 0),
        tokens=sum(mask[0] for mask in masks) or foreign.metadata.total_tokens or 0,
        sampled=sum(mask[1] for mask in masks),
        seconds=_seconds(one, session, foreign.turns),
        usd=foreign.metadata.total_cost_usd,
        started_at=one.started_at,
        finished_at=one.finished_at,
    )


def _version(one: _Payload) -> str:
    if one.source not in PLAYED:
        return one.task.version
    return f"{one.run}/{one.first_version}" if one.run and one.first_version != NO_VERSION else ""


def _seconds(one: _Payload, session: _Session | None, told: Sequence[_Told]) -> float | None:
    """Between the calls of a session its people were thinking: only its calls count."""
    if one.source in PLAYED and one.finished_at > one.started_at:
        return one.finished_at - one.started_at
    ms = [turn.ms for turn in told if turn.ms is not None]
    if ms:
        return math.fsum(ms) / 1000
    return None if session is None else session.seconds


def _measured(_code: int, data: memoryview) -> tuple[int, int]:
    """The length of a packed column, and how many of its values are true, where they are bits."""
    form, axes = data[0], data[2]
    size = struct.unpack_from("<I", data, 3)[0] if axes else 1
    body = data[3 + 4 * axes :]
    if form == BITS:
        return size, int.from_bytes(body).bit_count()
    if form == RUNS:
        (count,) = struct.unpack_from("<I", body)
        lengths = struct.unpack_from(f"<{count}I", body, 4)
        return size, sum(length for length, value in zip(lengths, body[4 + 4 * count :], strict=False) if value)
    return size, 0


_NOBODY = _Foreign()
_DECODER = msgspec.msgpack.Decoder(_Payload, ext_hook=_measured)
