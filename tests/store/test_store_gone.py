"""A SQLite database is private, and a write is confirmed only while its file is the one at its path."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from loomrl.config import HubConfig
from loomrl.errors import StoreError
from loomrl.hub.open import open_hub
from loomrl.store import LoomDB, open_store
from loomrl.store.events import EVENTS, record


def write(db: LoomDB) -> None:
    with db.write() as connection:
        record(connection, "key.created", "x", {}, at=1.0)


HARMS: dict[str, Callable[[Path], object]] = {
    "delete": lambda file: file.unlink(),
    "delete all": lambda file: [each.unlink() for each in file.parent.glob(f"{file.name}*")],
    "move": lambda file: file.rename(file.with_name("elsewhere.db")),
    "replace": lambda file: Path(shutil.copy(file, file.with_name("copy.db"))).rename(file),
    "delete log": lambda file: Path(f"{file}-wal").unlink(),
    "delete folder": lambda file: shutil.rmtree(file.parent),
}


@pytest.mark.parametrize("harm", HARMS)
def test_no_write_is_confirmed_once_the_file_is_gone(harm: str, tmp_path: Path) -> None:
    file = tmp_path / "place" / "loom.db"
    with open_store(f"sqlite:///{file}") as db:
        write(db)
        HARMS[harm](file)
        for _ in range(10):
            with pytest.raises(StoreError, match=r"loom\.db.*(deleted|unable to open)"):
                write(db)


def test_a_write_during_which_the_file_is_deleted_is_not_confirmed(tmp_path: Path) -> None:
    file = tmp_path / "loom.db"

    def write_and_delete(db: LoomDB) -> None:
        with db.write() as connection:
            record(connection, "key.created", "x", {}, at=1.0)
            file.unlink()

    with open_store(f"sqlite:///{file}") as db, pytest.raises(StoreError, match="deleted, moved or replaced"):
        write_and_delete(db)


def test_no_empty_database_takes_the_place_of_one_that_was_deleted(tmp_path: Path) -> None:
    file = tmp_path / "loom.db"
    with open_store(f"sqlite:///{file}") as db, db.engine.connect():  # so that another connection is needed
        file.unlink()
        with pytest.raises(StoreError, match="Was the file deleted"):
            EVENTS.read(db)
        assert not file.exists()


def test_several_that_open_a_file_and_close_it_do_not_disturb_each_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/loom.db"
    with open_store(url) as first:
        write(first)
        for _ in range(3):
            with open_store(url) as other:
                write(other)
            write(first)
        assert len(EVENTS.read(first)) == 7


def test_databases_and_hubs_are_for_this_user_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        folder = tmp_path / "made" / "for it"
        open_hub(f"sqlite:///{folder}/loom.db", HubConfig(shards=2))
    finally:
        os.umask(before)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert {name for name in modes if name.endswith(("-wal", "-shm"))}
    assert set(modes.values()) == {0o600}, modes
    assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, folder.parent)] == [0o700, 0o700]


def test_a_file_that_others_share_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "loom.db"
    file.touch()
    file.chmod(0o660)
    with open_store(f"sqlite:///{file}") as db:
        write(db)
        assert stat.S_IMODE(file.stat().st_mode) == 0o660
