"""A world on both databases."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from loomrl.analytics.engine import ChdbEngine
from tests.analytics.world import World
from tests.needs import need


@pytest.fixture(scope="session")
def engine() -> Iterator[ChdbEngine]:
    """For all worlds: an opening by a process that is there costs a tenth of its start."""
    with closing(ChdbEngine()) as made:
        yield made


@pytest.fixture
def world(store_url: str, tmp_path: Path, engine: ChdbEngine) -> Iterator[World]:
    need("chdb")
    made = World(store_url, tmp_path, engine)
    yield made
    made.close()


@pytest.fixture
def small(sqlite_url: str, tmp_path: Path, engine: ChdbEngine) -> Iterator[World]:
    """On SQLite alone, where the database makes no difference."""
    need("chdb")
    made = World(sqlite_url, tmp_path, engine)
    yield made
    made.close()


@pytest.fixture
def filled(full: World, tmp_path: Path, engine: ChdbEngine) -> Iterator[World]:
    """Filled, not fed: a copy, which costs less than filling."""
    yield from _copied(full, "loom", tmp_path, engine)


@pytest.fixture
def fed(full: World, tmp_path: Path, engine: ChdbEngine) -> Iterator[World]:
    """Filled and fed."""
    yield from _copied(full, "", tmp_path, engine)


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory, engine: ChdbEngine) -> Iterator[World]:
    """Filled and fed once; for tests that only ask."""
    need("chdb")
    folder = tmp_path_factory.mktemp("full")
    made = World(f"sqlite:///{folder}/loom.db", folder, engine)
    made.fill()
    made.feed()
    yield made
    made.close()


def _copied(world: World, beginning: str, folder: Path, engine: ChdbEngine) -> Iterator[World]:
    world.close()  # so that its files are whole; it opens again with its next use
    for path in world.place.folder.parent.glob(f"{beginning}*"):
        if path.is_dir():
            shutil.copytree(path, folder / path.name, symlinks=True)
        else:
            shutil.copy(path, folder)
    made = World(f"sqlite:///{folder}/loom.db", folder, engine)
    yield made
    made.close()
