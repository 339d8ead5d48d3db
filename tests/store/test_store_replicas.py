import time
from dataclasses import replace

from loomrl.store import LoomDB
from loomrl.store.replicas import Replica, ReplicaRole, ReplicaState, beat, bury, leave, live_replicas

POLICY = Replica(id="p", role=ReplicaRole.POLICY, policy="math/40", address="127.0.0.1:1", node="here", pid=1)
GATEWAY = Replica(id="g", role=ReplicaRole.GATEWAY, endpoint="math", address="127.0.0.1:2", node="here", pid=2)


def test_a_replica_is_found_by_its_part_and_by_what_it_serves(store: LoomDB) -> None:
    beat(store, POLICY)
    beat(store, GATEWAY)
    assert [each.id for each in live_replicas(store)] == ["p", "g"]
    assert [each.id for each in live_replicas(store, role=ReplicaRole.GATEWAY, endpoint="math")] == ["g"]
    assert [each.id for each in live_replicas(store, policies=["math/40"])] == ["p"]
    assert live_replicas(store, policies=["math/50"]) == []


def test_a_beat_tells_what_changed_and_keeps_the_start(store: LoomDB) -> None:
    first = beat(store, POLICY)
    again = beat(store, replace(first, version="math/40", state=ReplicaState.READY))
    (found,) = live_replicas(store)
    assert found == again
    assert (found.version, found.state) == ("math/40", ReplicaState.READY)
    assert found.started_at == first.started_at
    assert found.beat_at >= first.beat_at


def test_a_silent_replica_is_not_listed_and_its_row_goes(store: LoomDB) -> None:
    beat(store, POLICY)
    time.sleep(0.2)
    beat(store, GATEWAY)
    assert [each.id for each in live_replicas(store, dead_s=0.15)] == ["g"]
    assert bury(store, dead_s=0.15) == ["p"]
    assert bury(store, dead_s=0.15) == []
    assert [each.id for each in live_replicas(store)] == ["g"]


def test_one_that_was_only_frozen_is_there_again(store: LoomDB) -> None:
    alive = beat(store, POLICY)
    bury(store, dead_s=0.0)
    assert live_replicas(store) == []
    assert beat(store, alive).started_at == alive.started_at
    assert [each.id for each in live_replicas(store)] == ["p"]


def test_one_that_ends_in_order_leaves_at_once(store: LoomDB) -> None:
    beat(store, POLICY)
    leave(store, "p")
    assert live_replicas(store) == []
