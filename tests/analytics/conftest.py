"""A world on both databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.analytics.world import World
from tests.needs import need


@pytest.fixture
def world(store_url: str, tmp_path: Path) -> Iterator[World]:
    need("chdb")
    made = World(store_url, tmp_path)
    yield made
    made.close()


@pytest.fixture
def small(sqlite_url: str, tmp_path: Path) -> Iterator[World]:
    """On SQLite alone, where the database makes no difference."""
    need("chdb")
    made = World(sqlite_url, tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Fed once; for tests that only ask."""
    need("chdb")
    folder = tmp_path_factory.mktemp("full")
    made = World(f"sqlite:///{folder}/loom.db", folder)
    made.fill()
    made.feed()
    yield made
    made.close()
