"""Leases that span shards end the same way everywhere, wherever the power goes out."""

from collections.abc import Iterator

import pytest
from hub_samples import Clock, attempts, ids, math_of, take

from loomrl.config import HubConfig
from loomrl.errors import LeaseLost
from loomrl.hub import open_hub
from loomrl.hub.open import shard_urls
from loomrl.hub.sharded import ShardedHub

GROUPS = [f"g{number}" for number in range(12)]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hub(sqlite_url: str, clock: Clock) -> Iterator[ShardedHub]:
    with open_hub(sqlite_url, HubConfig(shards=3, lease_s=10), clock=clock) as hub:
        for name in GROUPS:
            hub.append(attempts(name))
        yield hub


def test_every_shard_has_a_database_of_its_own() -> None:
    assert shard_urls("sqlite:///a/loom.db", 3) == [
        "sqlite:///a/loom.db",
        "sqlite:///a/loom-2.db",
        "sqlite:///a/loom-3.db",
    ]
    assert shard_urls("postgresql://me@host/loom?sslmode=on", 2) == [
        "postgresql://me@host/loom?sslmode=on",
        "postgresql://me@host/loom?schema=2&sslmode=on",
    ]


def test_ack_cut_off_after_the_decision_is_carried_out_by_the_next_question(hub: ShardedHub, clock: Clock) -> None:
    lease = take(hub, 12, at_least=12)
    first, *others = hub._holders(lease.id)
    assert len(others) == 2, "it spans all shards"
    for shard in others:
        shard.pin(lease.id)
    first.ack(lease.id, version=1)
    clock.now += 11
    assert math_of(hub).acked == 12
    hub.ack(lease.id, version=1)


def test_ack_cut_off_before_the_decision_gives_everything_back_once(hub: ShardedHub, clock: Clock) -> None:
    lease = take(hub, 12)
    for shard in hub._holders(lease.id)[1:]:
        shard.pin(lease.id)
    clock.now += 11
    assert sorted(ids(take(hub, 12).groups)) == sorted(GROUPS)
    with pytest.raises(LeaseLost):
        hub.ack(lease.id, version=1)


def test_lease_lost_in_one_shard_is_lost_in_all(hub: ShardedHub) -> None:
    lease = take(hub, 12)
    hub._holders(lease.id)[-1].release(lease.id)
    with pytest.raises(LeaseLost):
        hub.ack(lease.id, version=1)
    line = math_of(hub)
    assert (line.ready, line.leased, line.acked) == (12, 0, 0)


def test_release_cannot_undo_half_of_a_decided_ack(hub: ShardedHub) -> None:
    lease = take(hub, 12)
    first, *others = hub._holders(lease.id)
    for shard in others:
        shard.pin(lease.id)
    first.ack(lease.id, version=1)
    hub.release(lease.id)
    hub.ack(lease.id, version=1)
    assert math_of(hub).acked == 12
