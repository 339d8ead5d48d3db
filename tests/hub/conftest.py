"""One hub behind every way to reach it."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hub_samples import Clock, OpenHub, served

from loomrl.config import EnvironmentConfig, HubConfig
from loomrl.hub import Hub, open_hub
from loomrl.hub.client import HubClient
from loomrl.hub.http import create_app


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every promise holds on both databases."""
    if "store_url" in metafunc.fixturenames:
        metafunc.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", "postgresql", "sharded", "http"])
def opened(request: pytest.FixtureRequest, clock: Clock) -> Iterator[OpenHub]:
    """Opens a hub with some settings; the same promises must hold on every kind of hub."""
    kind = request.param
    url = request.getfixturevalue("postgres_url" if kind == "postgresql" else "sqlite_url")

    with ExitStack() as stack:

        def open_one(groups_per_update: int = 100, weights: dict[str, Any] | None = None, **settings: Any) -> Hub:
            shards = 3 if kind == "sharded" else 1
            hub = open_hub(
                url,
                HubConfig(shards=shards, **settings),
                groups_per_update=groups_per_update,
                environments=[EnvironmentConfig(id=id, **share) for id, share in (weights or {}).items()],
                clock=clock,
            )
            stack.enter_context(hub)
            if kind != "http":
                return hub
            address = stack.enter_context(served(create_app(hub, token="secret")))
            return stack.enter_context(HubClient(address, token="secret", patience_s=1))

        yield open_one


@pytest.fixture
def hub(opened: OpenHub) -> Hub:
    """A hub with default settings and much room."""
    return opened()
