"""One bus behind every way to have it, and a broker."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker_support import NatsServer

from loomrl.bus.bus import Bus
from loomrl.bus.open import open_bus
from tests.needs import need


@pytest.fixture(scope="module")
def running_server(unused_tcp_port_factory: Callable[[], int]) -> Iterator[NatsServer]:
    """For the tests of one file, which use other subjects or delete the streams."""
    need("nats-server")
    with tempfile.TemporaryDirectory(prefix="loom-nats-") as folder:
        server = NatsServer(Path(folder), unused_tcp_port_factory())
        server.start()
        yield server
        server.kill()


@pytest.fixture
def nats_server(tmp_path: Path, unused_tcp_port_factory: Callable[[], int]) -> Iterator[NatsServer]:
    """A server of its own for a test that kills it. Not started."""
    need("nats-server")
    server = NatsServer(tmp_path / "nats", unused_tcp_port_factory())
    yield server
    server.kill()


@pytest.fixture(params=["sqlite", "nats"])
def bus_url(request: pytest.FixtureRequest) -> str:
    """The same promises must hold on every bus."""
    if request.param != "nats":
        url: str = request.getfixturevalue(f"{request.param}_url")
        return url
    server: NatsServer = request.getfixturevalue("nats_server")
    server.start()
    return server.url


@pytest.fixture
def bus(bus_url: str) -> Iterator[Bus]:
    with open_bus(bus_url) as bus:
        yield bus
