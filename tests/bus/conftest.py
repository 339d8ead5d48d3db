"""A bus in LoomDB, its database, a sink, and a broker."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker_support import NatsServer

from loomrl.bus.sink import Sink
from loomrl.bus.stored import StoredBus
from loomrl.store import LoomDB, open_store
from tests.needs import need


@pytest.fixture
def url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def db(store: LoomDB) -> LoomDB:
    return store


@pytest.fixture
def bus(url: str) -> Iterator[StoredBus]:
    with StoredBus(open_store(url)) as bus:
        yield bus


@pytest.fixture
def sink(db: LoomDB, url: str, bus: StoredBus) -> Iterator[Sink]:
    sink = Sink(db, url, bus)
    yield sink
    sink.close()


@pytest.fixture
def nats_server(tmp_path: Path, unused_tcp_port_factory: Callable[[], int]) -> Iterator[NatsServer]:
    """Not started, and of one test, which may kill it."""
    need("nats-server")
    server = NatsServer(tmp_path / "nats", unused_tcp_port_factory())
    yield server
    server.kill()
