"""Faults and races: several processes, kills, a full disk. Real ones, on both databases."""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from loomrl.errors import StoreError
from loomrl.store import LoomDB, open_store
from loomrl.store.events import EVENTS, Event
from tests.forks import FORKS

pytestmark = pytest.mark.system


def event(subject: str) -> Event:
    return Event(kind="test", subject=subject, created_at=0.0)


def append_slowly(url: str, writer: int, count: int) -> None:
    """`count` transactions, each of which stays open for a moment after it took its position."""
    db, rng = open_store(url), random.Random(writer)
    for number in range(count):
        with db.write() as connection:
            EVENTS.append(connection, [event(f"{writer}:{number}")])
            time.sleep(rng.uniform(0, 0.01))
    db.close()


def follow(db: LoomDB, expected: int) -> list[str]:
    """The events seen by a reader that only goes forward."""
    seen, cursor, deadline = [], 0, time.monotonic() + 60
    while len(seen) < expected and time.monotonic() < deadline:
        for cursor, found in EVENTS.read(db, after=cursor, limit=7):  # noqa: B007, B020
            seen.append(found.subject)
    return seen


def test_a_reader_at_a_cursor_sees_every_row_of_many_writers_exactly_once(store_url: str) -> None:
    db = open_store(store_url)
    with ProcessPoolExecutor(3, mp_context=FORKS) as processes:
        writers = [processes.submit(append_slowly, store_url, writer, 40) for writer in range(3)]
        seen = follow(db, expected=120)
        for writer in writers:
            writer.result()
    assert seen == [found.subject for _, found in EVENTS.read(db)]
    assert Counter(name.split(":")[0] for name in seen) == {"0": 40, "1": 40, "2": 40}
    for writer in "012":
        assert [name for name in seen if name.startswith(writer)] == [f"{writer}:{n}" for n in range(40)]
    db.close()


def test_a_writer_who_came_later_commits_later(store: LoomDB) -> None:
    """Without the lock the second row would be visible before the first, and a cursor would step over the first."""
    other = open_store(store.engine.url.render_as_string(hide_password=False))
    with ThreadPoolExecutor(1) as thread:
        with store.write() as connection:
            EVENTS.append(connection, [event("first")])
            second = thread.submit(EVENTS.append, other, [event("second")])
            time.sleep(0.3)
            assert not second.done()
            assert EVENTS.read(store) == []
        second.result(timeout=10)
    assert [found.subject for _, found in EVENTS.read(store)] == ["first", "second"]
    other.close()


def write_and_hang(url: str, inside: Callable[[], None]) -> None:
    with open_store(url).write() as connection:
        EVENTS.append(connection, [event("half-written")] * 500)
        inside()
        time.sleep(60)


def test_a_writer_killed_inside_a_transaction_leaves_nothing_and_blocks_nobody(store: LoomDB) -> None:
    url = store.engine.url.render_as_string(hide_password=False)
    EVENTS.append(store, [event("before")])
    inside = FORKS.Event()
    writer = FORKS.Process(target=write_and_hang, args=(url, inside.set))
    writer.start()
    assert inside.wait(60)
    writer.kill()
    writer.join()
    EVENTS.append(store, [event("after")])
    assert [found.subject for _, found in EVENTS.read(store)] == ["before", "after"]


def test_reads_inside_one_block_see_one_moment(store: LoomDB) -> None:
    count = text("SELECT count(*) FROM events")
    with store.read() as connection:
        before = connection.execute(count).scalar_one()
        EVENTS.append(store, [event("meanwhile")])
        assert connection.execute(count).scalar_one() == before
    with store.read() as connection:
        assert connection.execute(count).scalar_one() == before + 1


def test_an_exception_inside_a_write_keeps_nothing(store: LoomDB) -> None:
    with pytest.raises(ZeroDivisionError), store.write() as connection:
        EVENTS.append(connection, [event(str(EVENTS.append(connection, [event("never")])[0] / 0))])
    assert EVENTS.read(store) == []


def test_a_writer_waits_for_a_thread_only_so_long(store: LoomDB, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomrl.store.db.BUSY_TIMEOUT_S", 0.2)
    with store.write(), pytest.raises(StoreError, match="held the write lock"), store.write():
        pass


def test_a_writer_asks_often_for_the_lock_of_another_process_and_only_so_long(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    waits = threading.Event()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        waits.set()
        real(seconds)

    real = time.sleep
    with open_store(sqlite_url) as one, open_store(sqlite_url) as other, ThreadPoolExecutor(1) as thread:
        monkeypatch.setattr("loomrl.store.db.time.sleep", sleep)
        with one.write():
            written = thread.submit(EVENTS.append, other, [event("after")])
            assert waits.wait(30)
        written.result(timeout=30)
        assert max(slept) <= 0.01
        monkeypatch.setattr("loomrl.store.db.BUSY_TIMEOUT_S", 0.1)
        with one.write(), pytest.raises(StoreError, match="Another process held the write lock"), other.write():
            pass
        monkeypatch.undo()
        assert len(EVENTS.append(other, [event("again")])) == 1


def test_postgresql_ends_a_writer_that_hangs(postgres_url: str) -> None:
    db = open_store(postgres_url)
    with db.write() as connection:
        assert connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar_one() == "8s"
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar_one() == "1min"
        assert connection.exec_driver_sql("SHOW tcp_user_timeout").scalar_one() == "5000"
    with db.read() as connection:
        assert connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar_one() == "0"
    db.close()


def synchronous(url: str) -> int:
    with open_store(url) as db, db.write() as connection:
        return int(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())


def test_sqlite_has_a_commit_on_the_disk_when_it_returns(sqlite_url: str) -> None:
    with ProcessPoolExecutor(1, mp_context=FORKS) as processes:
        level = processes.submit(synchronous, sqlite_url).result()
    assert level == 2, "FULL, but in tests, which do not wait for the disk"


def write_early(url: str) -> list[object]:
    """What was flushed, what others had read and written by then, and the level of the next write."""
    found: list[object] = []
    fsync = os.fsync
    with open_store(url) as db, open_store(url) as other:

        def flush(file: int) -> None:
            EVENTS.append(other, [event("meanwhile")])
            found.extend(
                [str(Path(f"/proc/self/fd/{file}").readlink()), [one.subject for _, one in EVENTS.read(other)]]
            )
            fsync(file)

        os.fsync = flush
        with db.write(early=True) as connection:
            EVENTS.append(connection, [event("early")])
        EVENTS.read(db)
        with db.write() as connection:
            found.append(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())
            EVENTS.append(connection, [event("later")])
    return found


def test_an_early_write_returns_once_it_is_on_the_disk_and_keeps_nobody_waiting(sqlite_url: str) -> None:
    with ProcessPoolExecutor(1, mp_context=FORKS) as processes:
        found = processes.submit(write_early, sqlite_url).result()
    file = sqlite_url.removeprefix("sqlite:///")
    assert found == [f"{file}-wal", ["early", "meanwhile"], 2]


def test_postgresql_refuses_a_write_that_goes_past_the_lock(postgres_url: str) -> None:
    db = open_store(postgres_url)
    with pytest.raises(StoreError, match="read-only"), db.read() as connection:
        EVENTS.append(connection, [event("unlocked")])
    EVENTS.append(db, [event("locked")])
    db.close()


def test_a_connection_that_the_server_dropped_is_replaced(postgres_url: str) -> None:
    db = open_store(postgres_url)
    other = open_store(postgres_url)
    others = "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with other.read() as connection:
        connection.execute(text(f"SELECT pg_terminate_backend(pid, 10000) FROM {others}"))
    EVENTS.append(db, [event("after")])
    assert len(EVENTS.read(db)) == 1
    db.close()
    other.close()


def test_a_server_that_is_away_for_a_moment_is_awaited_by_whoever_asked_for_it(postgres_url: str) -> None:
    elsewhere = create_engine(make_url(postgres_url).set(drivername="postgresql+psycopg", database="template1"))

    def accepts(really: str) -> None:
        with elsewhere.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(f"ALTER DATABASE postgres ALLOW_CONNECTIONS {really}"))
            connection.execute(
                text("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = 'postgres'")
            )

    try:
        with open_store(postgres_url, reconnect_s=20.0) as patient, open_store(postgres_url) as impatient:
            EVENTS.append(patient, [event("before")])
            accepts("false")
            with pytest.raises(StoreError, match="not currently accepting connections"):
                EVENTS.read(impatient)
            with pytest.raises(StoreError, match="not currently accepting connections"):
                open_store(postgres_url, reconnect_s=20.0)  # it never was there
            with ThreadPoolExecutor() as pool:
                written = pool.submit(EVENTS.append, patient, [event("after")])
                time.sleep(1.0)
                assert not written.done()
                accepts("true")
                assert written.result(timeout=20)
            assert [one.subject for _, one in EVENTS.read(patient, kind="test")] == ["before", "after"]
    finally:
        accepts("true")
        elsewhere.dispose()
