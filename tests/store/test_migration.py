import sqlite3
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import produce_migrations, render_python_code
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from loomrl.errors import StoreError
from loomrl.store import LoomDB, migration, open_store
from loomrl.store.db import connect
from loomrl.store.log import metadata
from loomrl.store.migration import VERSION_TABLE
from tests.forks import FORKS


def test_migrated_schema_equals_the_tables_in_code(store: LoomDB) -> None:
    with store.read() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "compare_type": True})
        missing = produce_migrations(context, metadata).upgrade_ops
    assert missing.is_empty(), "add a migration with these operations:\n" + render_python_code(missing)


def test_the_second_new_database_of_a_process_is_made_as_the_first_one_was(tmp_path: Path) -> None:
    def made(name: str) -> list[str]:
        open_store(f"sqlite:///{tmp_path}/{name}").close()
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            return list(connection.iterdump())

    migration._NEW.clear()
    first = made("first")
    assert migration._NEW.keys() == {"sqlite"}
    assert made("second") == first


def test_opening_again_keeps_what_is_there(store_url: str) -> None:
    first = open_store(store_url)
    with first.write() as connection:
        connection.execute(text("INSERT INTO events (kind, subject, data, created_at) VALUES ('k', 's', '{}', 0)"))
    first.close()
    second = open_store(store_url)
    with second.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM events")).scalar() == 1
    second.close()


def test_a_database_newer_than_the_code_is_refused_and_left_alone(store_url: str) -> None:
    db = open_store(store_url)
    with db.write() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    db.close()
    with pytest.raises(StoreError, match=r"'9999'.*'0001_.*another version") as refusal:
        open_store(store_url)
    assert "only-on-loopback" not in str(refusal.value)


def open_and_count_tables(url: str) -> int:
    db = open_store(url)
    with db.read() as connection:
        tables = len(inspect(connection).get_table_names())
    db.close()
    return tables


def test_first_opens_from_several_processes_do_not_collide(postgres_url: str) -> None:
    with ProcessPoolExecutor(4, mp_context=FORKS) as processes:
        tables = set(processes.map(open_and_count_tables, [postgres_url] * 8))
    assert tables == {len(metadata.tables) + 1}


def open_at(url: str, at: float) -> None:
    time.sleep(max(0.0, at - time.time()))
    open_store(url).close()


def test_first_opens_at_the_same_moment_wait_for_each_other(tmp_path: Path) -> None:
    """SQLite does not wait by itself when two processes switch one new file to WAL."""
    with ProcessPoolExecutor(4, mp_context=FORKS) as processes:
        for number in range(10):
            at = time.time() + (0.5 if number == 0 else 0.05)  # the first one pays for the start
            opens = [processes.submit(open_at, f"sqlite:///{tmp_path}/{number}.db", at) for _ in range(4)]
            for opened in opens:
                opened.result()


def test_a_migration_that_fails_leaves_nothing_behind(store_url: str) -> None:
    unused = LoomDB(connect(store_url))
    with unused.write() as connection:
        connection.execute(text("CREATE TABLE runs (theirs INTEGER)"))  # someone else's table of this name
    with pytest.raises(StoreError, match="already exists"):
        open_store(store_url)
    with unused.read() as connection:
        assert inspect(connection).get_table_names() == ["runs"]
    unused.close()


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("not a database, but long enough to look at " * 40)
    before = notes.read_bytes()
    with pytest.raises(StoreError, match="choose another path"):
        open_store(f"sqlite:///{notes}")
    assert notes.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "loom.db"
    open_store(f"sqlite:///{path}").close()
    sqlite3.connect(path).execute("PRAGMA wal_checkpoint(TRUNCATE)").connection.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(StoreError, match="damaged"):
        open_store(f"sqlite:///{path}")


def test_a_home_folder_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    open_store("sqlite:///~/loom.db").close()
    assert (tmp_path / "loom.db").is_file()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("loom.db", "is no URL"),
        ("sqlite://", "in-memory"),
        ("sqlite:///:memory:", "in-memory"),
        ("mysql://host/db", "Known: postgresql, sqlite"),
        ("postgres://host/db", "Did you mean 'postgresql'"),
        ("postgresql://loom:secret@127.0.0.1:1/loom", r"127\.0\.0\.1:1.*running and reachable"),
        ("sqlite:////proc/nowhere/loom.db", "/proc/nowhere"),
        ("sqlite:///{folder}", "folder"),
        ("sqlite:///{folder}/file/loom.db", "folder"),
    ],
)
def test_an_address_that_cannot_work_names_the_choices(tmp_path: Path, url: str, said: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=said):
        open_store(url.format(folder=tmp_path))


def test_a_wrong_password_is_named_and_never_shown(postgres_url: str) -> None:
    wrong = postgres_url.replace("only-on-loopback", "guess")
    with pytest.raises(StoreError, match="user name and password") as refusal:
        open_store(wrong)
    assert "guess" not in str(refusal.value)


def test_a_missing_database_says_how_to_create_it(postgres_server: str) -> None:
    with pytest.raises(StoreError, match="createdb"):
        open_store(f"{postgres_server}/nowhere")
