"""A trajectory's figures without its words and tokens, read ten times as fast as the whole."""

import logging
import math
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.msgpack import Ext
from sqlalchemy import select

from loomrl.errors import CorruptPayload
from loomrl.hub.array import BITS, RUNS
from loomrl.hub.codec import HEADER, MAGIC, REMEDY
from loomrl.store.db import LoomDB
from loomrl.store.hub_tables import trajectories
from loomrl.types import NO_VERSION, End, Source

log = logging.getLogger(__name__)
PLAYED = (str(Source.ROLLOUT), str(Source.EVALUATION))
SERVED = (str(Source.PRODUCTION), str(Source.FOREIGN))
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
    success: float | None
    """None: unknown. The attempt failed, or its session ended without an outcome."""
    reward: float
    turns: int
    """Turns of all threads, or a control policy's steps."""
    tokens: int
    """All of its threads, prompts too; of a foreign agent what it says."""
    sampled: int
    """The tokens that the policy sampled."""
    seconds: float | None
    """The policy's own time, where it is known."""
    usd: float | None
    """The cost that a foreign agent reported."""
    started_at: float
    finished_at: float


class _Tokens(msgspec.Struct, gc=False):
    mask_T: Ext


class _Turn(msgspec.Struct, gc=False):
    tokens: _Tokens | None = None


class _Steps(msgspec.Struct, gc=False):
    versions_T: Ext


class _Task(msgspec.Struct, gc=False):
    environment: str
    version: str
    family: str
    level: int


class _Reward(msgspec.Struct, gc=False):
    total: float = 0.0
    success: float = 0.0


class _Session(msgspec.Struct, gc=False):
    success: float | None = None
    seconds: float | None = None
    arms: list[str] = []


class _Told(msgspec.Struct, gc=False):
    ms: float | None = None


class _Metadata(msgspec.Struct, gc=False):
    total_tokens: int | None = None
    total_cost_usd: float | None = None


class _Foreign(msgspec.Struct, gc=False):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    turns: list[_Told] = []


class _Extra(msgspec.Struct, gc=False):
    session: _Session | None = None
    foreign: _Foreign | None = None


class _Payload(msgspec.Struct, gc=False):
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
    position = after
    found = []
    origin = f"{db.location}: the trajectory at "
    with db.read() as connection, connection.execution_options(yield_per=TOGETHER).execute(query) as rows:
        for position, payload in rows:
            try:
                found.append((position, glance(payload)))
            except CorruptPayload as error:
                log.error("%s%d: %s", origin, position, error)
    return position, found


def trajectory_ids(db: LoomDB, *, upto: int) -> set[str]:
    """The ids in a hub's database up to a cursor."""
    with db.read() as connection:
        return set(connection.scalars(select(trajectories.c.id).where(trajectories.c.position <= upto)))


def glance(payload: bytes) -> Glance:
    """The figures of an encoded trajectory, or CorruptPayload."""
    body = memoryview(payload)[HEADER.size :]
    magic, checksum, length = HEADER.unpack_from(payload) if len(payload) >= HEADER.size else (b"", 0, 0)
    if magic != MAGIC or length != len(body) or zlib.crc32(body) != checksum:
        raise CorruptPayload(f"its {len(payload)} bytes are damaged. {REMEDY}")
    try:
        return _glance(_DECODER.decode(body))
    except (msgspec.DecodeError, ValueError, IndexError) as error:
        raise CorruptPayload(f"not a trajectory: {error}. {REMEDY}") from None


def _glance(one: _Payload) -> Glance:
    turns = one.turns
    for thread in one.threads:
        turns = turns + thread
    tokens = sampled = 0
    for turn in turns:
        if turn.tokens is not None:
            length, drawn = _measure(turn.tokens.mask_T)
            tokens += length
            sampled += drawn
    task = one.task
    extra = one.extra
    foreign = extra.foreign or _NOBODY
    return Glance(
        one.id,
        one.source,
        one.run,
        task.environment,
        task.family,
        task.level,
        f"{task.environment}/{task.family}/{task.level}",
        _version(one),
        extra.session.arms if extra.session is not None else [],
        one.end,
        _success(one),
        one.reward.total,
        len(turns) + (_measure(one.steps.versions_T)[0] if one.steps is not None else 0),
        tokens or foreign.metadata.total_tokens or 0,
        sampled,
        _seconds(one, extra.session, foreign.turns),
        foreign.metadata.total_cost_usd,
        one.started_at,
        one.finished_at,
    )


def _version(one: _Payload) -> str:
    if one.source not in PLAYED:
        return one.task.version
    return f"{one.run}/{one.first_version}" if one.run and one.first_version != NO_VERSION else ""


def _success(one: _Payload) -> float | None:
    """The environment's word for an attempt; the caller's for a session; other people's agents give none."""
    if one.end == End.FAILED:
        return None
    if one.source not in SERVED:
        return one.reward.success
    return one.extra.session.success if one.extra.session is not None else None


def _seconds(one: _Payload, session: _Session | None, told: Sequence[_Told]) -> float | None:
    """Between the calls of a session its people were thinking: only its calls count."""
    if session is not None:
        return session.seconds
    if one.source in PLAYED and one.finished_at > one.started_at:
        return one.finished_at - one.started_at
    ms = [turn.ms for turn in told if turn.ms is not None]
    return math.fsum(ms) / 1000 if ms else None


def _measure(column: Ext) -> tuple[int, int]:
    """The length of a packed column, and how many of its values are true, where they are bits."""
    data = memoryview(column.data)
    form = data[0]
    axes = data[2]
    size = int.from_bytes(data[3:7], "little") if axes else 1
    start = 3 + 4 * axes
    if form == BITS:
        return size, int.from_bytes(data[start:]).bit_count()
    if form != RUNS:
        return size, 0
    count = int.from_bytes(data[start : start + 4], "little")
    lengths = start + 4
    values = start + 4 + 4 * count
    true = [lengths + 4 * at for at, value in enumerate(data[values:]) if value]
    return size, sum(int.from_bytes(data[at : at + 4], "little") for at in true)


_NOBODY = _Foreign()
_DECODER = msgspec.msgpack.Decoder(_Payload)
