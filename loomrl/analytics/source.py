"""LoomDB as rows for the columnar store: hubs, archives, rewards, feedback, observations, each read by cursor."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loomrl.bus.agent import hub_name, list_agents
from loomrl.hub.glance import Glance, glance, read_glances, trajectory_ids
from loomrl.hub.open import run_hubs
from loomrl.serving.retention.archive import exists, ids_in, read_payloads
from loomrl.store import LoomDB, beside, open_store
from loomrl.store.archives import ArchiveFile, list_files
from loomrl.store.db import is_there, neighbours
from loomrl.store.endpoints import endpoint_names
from loomrl.store.events import EVENTS
from loomrl.store.feedback import FEEDBACK
from loomrl.store.log import count_rows, last_row
from loomrl.store.observations import read_observations
from loomrl.store.rewards import REWARDS, find_replaced

RUNS = "runs"
"""The name of LoomDB's own hub."""
LONGEST = 50
"""Letters in the name of a database beside another. Names have no quotes: they may stand in SQL."""
Columns = list[Sequence[Any]]
"""Columns of a table, in its order, all of one length."""
ERASURE = "person.forgotten"
"""The event of a person's deletion."""
EMPTY = 1000
"""Pages of rows in a line from which a person's observations were all that was deleted."""
LIMIT_MS = 4_102_444_800_000
"""The year 2100: no time on record is later."""


@dataclass(frozen=True, slots=True)
class RowPage:
    """Rows past a cursor, as columns; `cursor` is behind the last of them."""

    cursor: int
    columns: Columns
    count: int


class HubSource:
    """A hub's trajectories, those in its database and those in its archived files."""

    def __init__(self, db: LoomDB, name: str, *, records: LoomDB, endpoint: str | None) -> None:
        self._db = db
        self.name = name
        self._records = records
        self._endpoint = endpoint

    def read(self, after: int, limit: int) -> RowPage:
        """The next trajectories in the database."""
        cursor, found = read_glances(self._db, after=after, limit=limit)
        return RowPage(
            cursor, self._columns([position for position, _ in found], [one for _, one in found]), len(found)
        )

    def waiting(self, after: int) -> int:
        """The trajectories in the database behind a cursor."""
        return count_rows(self._db, "trajectories", after=after)

    def last(self) -> int:
        """The newest position in the database."""
        return last_row(self._db, "trajectories")

    def count(self, upto: int) -> int:
        """The trajectories in the database up to a cursor, and those in files."""
        return count_rows(self._db, "trajectories", upto=upto) + sum(file.count for file in self._files())

    def ids(self, upto: int) -> set[str]:
        """Their ids. What moves into a file meanwhile is there before it leaves the database."""
        found = trajectory_ids(self._db, upto=upto)
        return found.union(*(ids_in(file.url) for file in self._files() if exists(file.url)))

    def archived(self, ids: set[str]) -> Iterator[RowPage]:
        """Those of these trajectories that are in files, a file at a time."""
        for file in self._files():
            if not exists(file.url) or ids.isdisjoint(ids_in(file.url)):
                continue
            every = [glance(payload) for payload in read_payloads(file.url)]
            found = [one for one in every if one.id in ids]
            yield RowPage(0, self._columns([0] * len(found), found), len(found))

    def _files(self) -> list[ArchiveFile]:
        if self._endpoint is None:
            return []
        return [file for file in list_files(self._records, self._endpoint) if file.state != "leaving"]

    def _columns(self, positions: Sequence[int], found: Sequence[Glance]) -> Columns:
        if not found:
            return []
        *fields, started, finished = map(list, zip(*found, strict=True))
        at = (list(map(milliseconds, started)), list(map(milliseconds, finished)))
        return [[self.name] * len(found), positions, *fields, *at]


class HubReader:
    """Every hub of a LoomDB: its own, those of endpoints, and those of other people's agents; opened once."""

    def __init__(self, db: LoomDB, url: str) -> None:
        self._db = db
        self._url = url
        self._opened: dict[str, LoomDB] = {}
        self._sources: dict[str, HubSource] = {RUNS: HubSource(db, RUNS, records=db, endpoint=None)}

    def look(self) -> Iterator[HubSource]:
        """Those that are there now. One of a run is closed when the next is taken: there may be a thousand of them."""
        of_runs = run_hubs(self._db, neighbours(self._url))
        for name, endpoint in (*self._hub_names(), *((name, None) for name in of_runs)):
            if name not in self._sources and is_there(beside(self._url, name)):
                self._opened[name] = open_store(beside(self._url, name))
                self._sources[name] = HubSource(self._opened[name], name, records=self._db, endpoint=endpoint)
                if name in of_runs:
                    self._opened[name].close()
        for name, source in list(self._sources.items()):
            yield source
            if name in of_runs:
                self._opened[name].close()

    def close(self) -> None:
        """Close all but LoomDB itself, which the caller owns."""
        for db in self._opened.values():
            db.close()

    def _hub_names(self) -> Iterator[tuple[str, str | None]]:
        for endpoint in endpoint_names(self._db):
            if len(f"endpoint-{endpoint}") <= LONGEST:  # it has no hub otherwise
                yield f"endpoint-{endpoint}", endpoint
        for agent in list_agents(self._db):
            yield hub_name(agent), None
        shard = 2
        while shard == 2 or str(shard - 1) in self._sources:
            yield str(shard), None
            shard += 1


def newest(db: LoomDB, hubs: HubReader) -> Mapping[str, int]:
    """How far everything goes that is loaded, and deletions of persons: as long as it is the same, nothing is new."""
    logs = {log: last_row(db, log) for log in ("rewards", "feedback", "observations")}
    return logs | {hub.name: hub.last() for hub in hubs.look()} | {ERASURE: EVENTS.last(db, kind=ERASURE)}


def reward_page(db: LoomDB, after: int, limit: int) -> tuple[RowPage, Mapping[str, str]]:
    """The next rewards, without their versions, and the endpoint of each trajectory."""
    found = REWARDS.read(db, after=after, limit=limit)
    if not found:
        return RowPage(after, [], 0), {}
    last = found[-1][0]
    replaced = find_replaced(db, after, last)
    rows = [
        (
            position,
            replaced.get(position, 0),
            one.id,
            one.trajectory,
            one.endpoint,
            one.task,
            "",
            one.total,
            one.confidence,
            _components(one.content),
            milliseconds(one.created_at),
        )
        for position, one in found
    ]
    return RowPage(last, _transpose(rows), len(rows)), {one.trajectory: one.endpoint for _, one in found}


def feedback_page(db: LoomDB, after: int, limit: int) -> RowPage:
    """The next feedback, without its words."""
    found = FEEDBACK.read(db, after=after, limit=limit)
    rows = [
        (position, one.id, one.trajectory, one.source, one.kind, one.value, milliseconds(one.created_at))
        for position, one in found
    ]
    return RowPage(found[-1][0] if found else after, _transpose(rows), len(rows))


def exposure_page(db: LoomDB, endpoint: str, after: int, limit: int) -> RowPage:
    """The next observations of an endpoint's arms."""
    rows: list[tuple[Any, ...]] = []
    before = 0
    number = 0
    found = read_observations(db, endpoint, after=after, limit=limit)
    found = found or read_observations(db, endpoint, after=after, limit=EMPTY * limit)
    for position, one in found:
        before, number = position, number + 1 if position == before else 0
        at = milliseconds(one.at)
        rows.append((endpoint, position, number, one.revision, one.test, one.arm, one.unit, one.metric, one.value, at))
    return RowPage(before or after, _transpose(rows), len(rows))


def milliseconds(seconds: float) -> int:
    """A time as columns have it; one that is no time of ours becomes the nearest that is."""
    return int(min(max(1000 * seconds, 0), LIMIT_MS)) if seconds == seconds else 0


def _components(content: Mapping[str, Any]) -> dict[str, float]:
    parts: Mapping[str, Mapping[str, Any]] = content.get("components", {})
    return {name: part["value"] for name, part in parts.items() if part.get("value") is not None}


def _transpose(rows: Sequence[tuple[Any, ...]]) -> Columns:
    return [list(column) for column in zip(*rows, strict=True)]
