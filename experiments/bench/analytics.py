"""The columns of a million trajectories: loaded from LoomDB, and asked the standard questions."""

import os
import platform
import statistics
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from loomrl.analytics.feeding import Feeding
from loomrl.analytics.place import Place
from loomrl.analytics.question import Limits, open_asking
from loomrl.analytics.schema import STANDARD, TABLES
from loomrl.experiments.bench.rewards import trajectory
from loomrl.hub.codec import HEADER, MAGIC, encode
from loomrl.store import LoomDB, beside, open_store
from loomrl.store.endpoints import Arm, set_endpoint
from loomrl.store.hub_tables import groups, trajectories
from loomrl.store.observations import Observation, append_observations
from loomrl.store.tables import feedback, rewards
from loomrl.types import Task

ENDPOINT = "talk"
KINDS = 1000
"""Different trajectories; the others differ from them in their ids and times."""
FAMILIES, VERSIONS, DAYS = 20, 10, 40
AGAIN_EVERY, TOLD_EVERY = 10, 5
"""One trajectory in so many is judged twice; one in so many has feedback."""
TOGETHER = 20_000
"""Rows in a transaction while LoomDB is filled, which is not measured."""
OBSERVED = 500
"""Observations in a row."""
AT, DAY_S = 1.76e9, 86_400.0


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of work."""

    trajectories: int = 1_000_000
    asked: int = 7


FULL = Size()
QUICK = Size(trajectories=2_000, asked=1)


@dataclass(frozen=True, slots=True)
class Took:
    """Rows, and the seconds they took, on the clock and of the process with all its threads."""

    rows: Mapping[str, int]
    wall_s: float
    cpu_s: float


def measure(size: Size = FULL) -> dict[str, Any]:
    """Every figure of `loomrl bench analytics`. It writes to a temporary folder only, some four gigabytes."""
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as folder:
        url, columns = f"sqlite:///{folder}/loom.db", Path(folder) / "columns"
        place = Place(folder=columns)
        with open_store(url) as db, open_store(beside(url, f"endpoint-{ENDPOINT}")) as hub:
            set_endpoint(db, ENDPOINT, [Arm(name="stable", policy="math-1/0")], at=AT)
            _feed(url, place)  # makes the tables; imports and the engine's start are no part of a rate
            _say(f"{size.trajectories:,} trajectories are put into LoomDB")
            payload = _fill_hub(hub, size.trajectories)
            _say("they are loaded")
            served = _feed(url, place)
            _say("they are judged")
            _fill_judgements(db, size.trajectories)
            judged = _feed(url, place)
            checked = _feed(url, place)
        questions, counts = _ask(place, size)
        megabytes = sum(file.stat().st_size for file in columns.rglob("*") if file.is_file()) / 2**20
    loaded = sum(judged.rows.values())
    return {
        "rows": counts,
        "trajectories_per_s": round(served.rows["trajectories"] / served.wall_s),
        "trajectories_per_cpu_s": round(served.rows["trajectories"] / served.cpu_s),
        "judgements_per_s": round(loaded / judged.wall_s),
        "judgements_per_cpu_s": round(loaded / judged.cpu_s),
        "nothing_new_s": round(checked.wall_s, 2),
        "question_ms": {name: wall for name, (wall, _) in questions.items()},
        "question_cpu_ms": {name: cpu for name, (_, cpu) in questions.items()},
        "payload_bytes": payload,
        "columns_mb": round(megabytes),
        "machine": {
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
            "system": platform.platform(),
        },
    }


def _feed(url: str, place: Place) -> Took:
    began, cpu = time.perf_counter(), time.process_time()
    with Feeding(url, place) as feeding:
        fed = feeding.round()
    return Took(fed.loaded, time.perf_counter() - began, time.process_time() - cpu)


def _ask(place: Place, size: Size) -> tuple[dict[str, tuple[float, float]], dict[str, int]]:
    """The median of each standard question, in milliseconds, of the clock and of all threads; rows by table."""
    found = {}
    with open_asking(place, Limits(timeout_s=600)) as asking:
        for name in STANDARD:
            took = [_timed(partial(asking.ask, f"SELECT * FROM {name}")) for _ in range(size.asked + 1)][1:]
            wall, cpu = (round(1e3 * statistics.median(column), 1) for column in zip(*took, strict=True))
            found[name] = wall, cpu
        counts = {one.name: asking.ask(f"SELECT count() FROM {one.name}").rows[0][0] for one in TABLES}
    return found, counts


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - cpu


def _fill_hub(hub: LoomDB, number: int) -> int:
    """Put trajectories into a hub's database as its intake would, less its checks; the bytes of one."""
    bodies = [_body(kind) for kind in range(min(KINDS, number))]
    with hub.write() as connection:
        connection.execute(groups.insert(), [_group()])
    for first in range(0, number, TOGETHER):
        rows = [_row(n, bodies[n % KINDS]) for n in range(first, min(number, first + TOGETHER))]
        with hub.write() as connection:
            connection.execute(trajectories.insert(), rows)
    return sum(map(len, bodies)) // len(bodies)


def _body(kind: int) -> bytes:
    """An encoded trajectory without its header, whose id and times are zeros."""
    made = trajectory(f"{kind:032x}", has_tokens=True)
    task = Task(ENDPOINT, f"math-1/{kind % VERSIONS}", f"family-{kind // 7 % FAMILIES}", 1, 0)
    return encode(replace(made, task=task, group="all", started_at=AT, finished_at=AT + 1))[HEADER.size :]


def _row(n: int, body: bytes) -> dict[str, Any]:
    """A row whose id and time of ending are those of trajectory `n`."""
    known = f"{n % KINDS:032x}".encode()
    ended = struct.pack(">d", AT + n % DAYS * DAY_S)
    body = body.replace(known, f"{n:032x}".encode(), 1).replace(struct.pack(">d", AT + 1), ended, 1)
    return {
        "position": n + 1, "id": f"{n:032x}", "group_position": 1, "late": False, "environment": ENDPOINT,
        "family": "", "level": 1, "source": "production", "ending": "terminated", "success": 0.0, "run": "",
        "first_version": -1, "last_version": -1, "created_at": AT,
        "payload": HEADER.pack(MAGIC, zlib.crc32(body), len(body)) + body,
    }  # fmt: skip


def _group() -> dict[str, Any]:
    return {
        "position": 1, "id": "all", "environment": ENDPOINT, "size": 1, "needed": 1, "version": -1, "state": "acked",
        "cause": "", "arrived": 1, "usable": 1, "oldest": None, "lease": None, "opened_at": AT, "deadline": AT,
    }  # fmt: skip


def _fill_judgements(db: LoomDB, number: int) -> None:
    """A reward of each, a second one of some, feedback on some, and an observation of each."""
    content = (
        '{"components":{"task_completion":{"value":0.5},"efficiency":{"value":0.25},"user_feedback":{"value":null}}}'
    )
    judged = [*((n, 0) for n in range(number)), *((n, 1) for n in range(0, number, AGAIN_EVERY))]
    for some in _slices(judged):
        rows = [
            {
                "id": f"{n}:{again}", "trajectory": f"{n:032x}", "endpoint": ENDPOINT,
                "task": f"{ENDPOINT}/family-{n % KINDS // 7 % FAMILIES}/1", "total": n % 97 / 97, "confidence": 0.75,
                "first": "{}", "content": content, "created_at": AT + n % DAYS * DAY_S,
            }
            for n, again in some
        ]  # fmt: skip
        with db.write() as connection:
            connection.execute(rewards.insert(), rows)
    for some in _slices(range(0, number, TOLD_EVERY)):
        rows = [
            {
                "id": f"f{n}", "trajectory": f"{n:032x}", "source": "human", "kind": "thumb", "value": float(n % 3 > 0),
                "comment": "", "created_at": AT + n % DAYS * DAY_S, "call": "", "data": "{}",
            }
            for n in some
        ]  # fmt: skip
        with db.write() as connection:
            connection.execute(feedback.insert(), rows)
    for first in range(0, number, OBSERVED):
        seen = [_observation(n) for n in range(first, min(number, first + OBSERVED))]
        append_observations(db, ENDPOINT, "bench", seen, at=AT)


def _observation(n: int) -> Observation:
    arm, metric = ("stable", "new")[n % 2], ("reward", "error")[n // 2 % 2]
    return Observation(revision=1, arm=arm, unit=n, metric=metric, value=n % 97 / 97, at=AT, test="wording")


def _slices(every: Sequence[Any]) -> list[Sequence[Any]]:
    return [every[start : start + TOGETHER] for start in range(0, len(every), TOGETHER)]


def _say(text: str) -> None:
    print(f"bench analytics: {text}", file=sys.stderr, flush=True)
