"""Writes are committed together, each on its own responsibility; a store that fails loses nothing it confirmed."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from hub_samples import attempt, attempts, math_of, served, take
from sqlalchemy import Connection, event

from loomrl.config import EnvironmentConfig, HubConfig
from loomrl.errors import Conflict, HubError, StoreAway, StoreError
from loomrl.hub import open_hub
from loomrl.hub.codec import encode
from loomrl.hub.http import create_app
from loomrl.hub.queue import LocalHub
from loomrl.store.db import MOST_TIMES


@pytest.fixture
def hub(sqlite_url: str) -> Iterator[LocalHub]:
    with open_hub(sqlite_url, HubConfig()) as hub:
        yield hub


@contextmanager
def write_lock_held(file: Path) -> Iterator[None]:
    """As if another process were writing."""
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("COMMIT")
        other.close()


def submit_together(hub: LocalHub, file: Path, jobs: list[Callable[[], Any]]) -> tuple[list[Future[Any]], int]:
    """The outcome of jobs that were all waiting when the database became free, and how many commits they took."""
    commits = []
    event.listen(hub._db.engine, "commit", commits.append)
    with ThreadPoolExecutor(len(jobs)) as threads, write_lock_held(file):
        futures = [threads.submit(job) for job in jobs]
        time.sleep(0.3)
        assert not any(future.done() for future in futures)
    return futures, len(commits)


def test_waiting_appends_are_committed_together(hub: LocalHub, tmp_path: Path) -> None:
    jobs = [lambda number=number: hub.append(attempts(f"g{number}")) for number in range(12)]
    futures, commits = submit_together(hub, tmp_path / "loom.db", jobs)
    assert sorted(cursor for future in futures for cursor in future.result()) == list(range(1, 25))
    assert commits <= 2


def test_refused_append_spoils_none_that_is_committed_with_it(hub: LocalHub, tmp_path: Path) -> None:
    hub.append(attempts("g"))
    jobs: list[Callable[[], Any]] = [lambda number=number: hub.append(attempts(f"h{number}")) for number in range(5)]
    jobs.insert(2, lambda: hub.append([*attempts("new"), attempt("g/0", "g", group_size=2, finished_at=5.0)]))
    futures, _ = submit_together(hub, tmp_path / "loom.db", jobs)
    assert [type(future.exception()) for future in futures] == [type(None)] * 2 + [Conflict] + [type(None)] * 3
    assert {t.group for _, t in hub.read()} == {"g", "h0", "h1", "h2", "h3", "h4"}


def test_full_disk_is_said_and_keeps_what_was_confirmed(hub: LocalHub) -> None:
    hub.append(attempts("before"))

    @event.listens_for(hub._db.engine, "begin")
    def _limit(connection: Any) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {full[0]}")

    full = [1]
    with pytest.raises(StoreError, match=r"full.*Free disk space; nothing of this write was kept"):
        hub.append(attempts("too much", extra={"x": "y" * 500_000}))
    full[0] = 1 << 30
    assert [t.group for _, t in hub.read()] == ["before"] * 2
    assert math_of(hub).trajectories == 2
    hub.append(attempts("too much", extra={"x": "y" * 500_000}))
    assert math_of(hub).ready == 2


@contextmanager
def database_down(server: str) -> Iterator[None]:
    """Nobody gets into the database, and everybody is thrown out."""

    def allow(answer: str) -> None:
        with psycopg.connect(f"{server}/template1", autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE postgres ALLOW_CONNECTIONS {answer}")
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres'")

    allow("false")
    try:
        yield
    finally:
        allow("true")


def test_database_that_is_down_is_said_and_loses_nothing(postgres_server: str, postgres_url: str) -> None:
    assert postgres_url.endswith("/postgres")
    with open_hub(postgres_url, HubConfig()) as hub, served(create_app(hub)) as url:
        hub.append(attempts("before"))
        with database_down(postgres_server):
            with pytest.raises(StoreError, match="not currently accepting connections"):
                hub.append(attempts("during"))
            answer = httpx.post(f"{url}/v2/append", content=encode(attempt("x")), trust_env=False)
            assert (answer.status_code, answer.json()["error"]) == (503, "StoreError")
            assert "only-on-loopback" not in answer.text
            assert httpx.get(f"{url}/v2/health", trust_env=False).status_code == 503
        hub.append(attempts("during"))
        assert [group.id for group in take(hub, 9).groups] == ["before", "during"]


def thrown_out_at(hub: LocalHub, moment: str, times: int) -> list[int]:
    """How many of these times the server will still end the connection at that moment of a transaction."""
    left = [times]
    url = hub._db.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)

    @event.listens_for(hub._db.engine, moment)
    def _throw_out(connection: Connection) -> None:
        if left[0]:
            left[0] -= 1
            pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
            with psycopg.connect(url, autocommit=True) as admin:
                admin.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))

    return left


@pytest.mark.parametrize("thrown_out", [1, MOST_TIMES])
def test_a_transaction_under_which_the_server_goes_away_is_repeated(postgres_url: str, thrown_out: int) -> None:
    with open_hub(postgres_url, HubConfig()) as hub:
        hub.append(attempts("before"))
        left = thrown_out_at(hub, "commit", thrown_out)
        if thrown_out < MOST_TIMES:
            assert hub.append(attempts("during")) == [3, 4]
        else:
            with pytest.raises(StoreAway):
                hub.append(attempts("during"))
        assert left == [0]
        assert len(hub.append(attempts("during"))) == 2
        assert math_of(hub).trajectories == 4


@pytest.mark.parametrize("thrown_out", [1, MOST_TIMES])
def test_a_look_under_which_the_server_goes_away_is_repeated(postgres_url: str, thrown_out: int) -> None:
    with open_hub(postgres_url, HubConfig()) as hub:
        hub.append(attempts("before"))
        left = thrown_out_at(hub, "begin", thrown_out)
        if thrown_out < MOST_TIMES:
            assert math_of(hub).trajectories == 2
        else:
            with pytest.raises(StoreAway):
                hub.stats()
        assert left == [0]


def test_closed_hub_says_so(sqlite_url: str) -> None:
    hub = open_hub(sqlite_url, HubConfig())
    hub.close()
    hub.close()
    with pytest.raises(HubError, match="closed"):
        hub.append(attempts("g"))


def test_everything_is_there_after_opening_again(sqlite_url: str) -> None:
    weights = [EnvironmentConfig(id="Math", weight=2.5)]
    with open_hub(sqlite_url, HubConfig(), environments=weights) as hub:
        hub.append(attempts("a"))
        lease = take(hub, 1)
        hub.append(attempts("b"))
        stats = math_of(hub)
    with open_hub(sqlite_url, HubConfig()) as hub:
        again = math_of(hub)
        assert (again.weight, again.leased, again.ready, again.parts) == (2.5, 1, 1, stats.parts)
        hub.ack(lease.id, version=1)


def test_two_processes_worth_of_hubs_share_one_database(store_url: str) -> None:
    with open_hub(store_url, HubConfig()) as one, open_hub(store_url, HubConfig()) as two:
        with ThreadPoolExecutor(2) as threads:
            for hub, name in ((one, "a"), (two, "b")):
                threads.submit(lambda hub=hub, name=name: [hub.append(attempts(f"{name}{n}")) for n in range(10)])
        assert math_of(one).ready == 20
        lease = take(one, 15)
        assert len(take(two, 15).groups) == 5
        two.ack(lease.id, version=1)
        assert math_of(one).acked == 15
