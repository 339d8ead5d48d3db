"""A gateway sees endpoints, replicas and their deaths in LoomDB, on both databases."""

import asyncio
from dataclasses import replace

import pytest

from loomrl.serving.channel.link import ChannelLink
from loomrl.serving.channel.server import ChannelServer
from loomrl.serving.deployment.reconcile import StoredView
from loomrl.store import LoomDB
from loomrl.store.endpoints import Arm, Role, drain_endpoint, set_endpoint
from loomrl.store.replicas import Replica, ReplicaRole, ReplicaState, beat, leave
from tests.serving.test_channel import Echo
from tests.serving.waiting import until


async def replica(db: LoomDB, id: str, policy: str) -> ChannelServer:
    server = ChannelServer(Echo(), token="secret")
    address = await server.start()
    row = Replica(id=id, role=ReplicaRole.POLICY, policy=policy, address=address, node="here", pid=1)
    beat(db, Replica(**{**_fields(row), "state": ReplicaState.READY}))
    return server


def _fields(row: Replica) -> dict[str, object]:
    return {name: getattr(row, name) for name in row.__slots__}


async def test_changes_are_seen_and_the_dead_are_not_asked(store: LoomDB) -> None:
    one, two = await replica(store, "a", "run/1"), await replica(store, "b", "run/1")
    set_endpoint(store, "e", [Arm(name="stable", policy="run/1")], at=1.0)
    view = StoredView(store, token="secret")
    await view.start()
    await until(lambda: len(view.replicas("run/1")) == 2)
    found = view.endpoint("e")
    assert found is not None
    assert (found.revision, view.replicas("run/2"), view.endpoint("f")) == (1, (), None)

    await one.close()
    await until(lambda: len(view.replicas("run/1")) == 1)
    leave(store, "b")
    await until(lambda: not view.replicas("run/1"))

    three = await replica(store, "c", "run/2")
    arms = [Arm(name="stable", policy="run/1", share=0.5), Arm(name="new", policy="run/2", share=0.5, role=Role.CANARY)]
    set_endpoint(store, "e", arms, at=2.0)
    await until(lambda: len(view.replicas("run/2")) == 1)
    drain_endpoint(store, "e", at=3.0)
    await until(lambda: (now := view.endpoint("e")) is not None and now.revision == 3)
    await view.close()
    for server in (two, three):
        await server.close()


async def test_a_new_revision_takes_hold_once_its_policies_are_linked(
    store: LoomDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = ChannelLink.open

    async def slow(address: str, *, token: str) -> ChannelLink:
        await asyncio.sleep(0.3)
        return await opened(address, token=token)

    one = await replica(store, "a", "run/1")
    stable = Arm(name="stable", policy="run/1")
    set_endpoint(store, "e", [stable], at=1.0)
    view = StoredView(store, token="secret")
    await view.start()
    monkeypatch.setattr(ChannelLink, "open", slow)
    two = await replica(store, "b", "run/2")
    set_endpoint(
        store, "e", [replace(stable, share=0.5), Arm(name="new", policy="run/2", share=0.5, role=Role.CANARY)], at=2.0
    )
    await until(lambda: (now := view.endpoint("e")) is not None and now.revision == 2)
    assert len(view.replicas("run/2")) == 1
    await view.close()
    for server in (one, two):
        await server.close()


async def test_a_replica_tells_when_its_version_changes() -> None:
    echo = Echo()
    server = ChannelServer(echo, token="secret")
    link = await ChannelLink.open(await server.start(), token="secret")
    echo.about = type(echo.about)(kind="language", version="r/2", number=2, context=64)
    server.announce()
    await until(lambda: link.about.version == "r/2")
    await link.close()
    await server.close()
