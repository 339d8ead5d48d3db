from dataclasses import replace

import pytest
from sqlalchemy import text

from loomrl.errors import StoreError
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS
from loomrl.store.keys import FORM, KEYS, create_key, digest, revoke_key
from loomrl.store.replicas import Replica, ReplicaRole, ReplicaState, beat, bury, leave, live_replicas


def test_a_key_is_stored_as_its_hash_only(store: LoomDB) -> None:
    plain, key = create_key(store, "app", scopes=("act", "feedback"), rate=5.0, expires_at=100.0, at=1.0)
    found = FORM.fullmatch(plain)
    assert (found[1], digest(found[2])) == (key.id, key.sha256)
    assert KEYS.find(store, key.id) == key
    with store.read() as connection:
        stored = [
            str(row) for table in ("keys", "events") for row in connection.execute(text(f"SELECT * FROM {table}"))
        ]
    assert not any(found[2] in row for row in stored)


def test_a_key_holds_until_it_expires_or_is_revoked(store: LoomDB) -> None:
    plain, key = create_key(store, "app", expires_at=10.0, at=1.0)
    assert key.holds(9.9)
    assert not key.holds(10.0)
    assert not revoke_key(store, plain, at=2.0, reason="lost").holds(3.0)
    assert revoke_key(store, key.id, at=5.0).revoked_at == 2.0
    kinds = [(event.kind, event.subject) for _, event in EVENTS.read(store, subject=key.id)]
    assert kinds == [("key.created", key.id), ("key.revoked", key.id)]


def test_a_key_that_could_open_nothing_or_is_unknown_is_refused(store: LoomDB) -> None:
    for settings, said in (
        ({"scopes": ("act", "fedback")}, "Did you mean 'feedback'"),
        ({"scopes": ()}, "open nothing"),
        ({"rate": 0.0}, "above 0"),
        ({"expires_at": 1.0}, "expired before it begins"),
    ):
        with pytest.raises(StoreError, match=said):
            create_key(store, "app", at=1.0, **settings)  # type: ignore[arg-type]
    assert KEYS.latest(store) == []
    _, key = create_key(store, "app", at=1.0)
    with pytest.raises(StoreError, match=f"Known: {key.id}"):
        revoke_key(store, "nobody", at=2.0)


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
    with store.write() as connection:
        connection.execute(text("UPDATE replicas SET beat_at = beat_at - 1000"))
    beat(store, GATEWAY)
    assert [each.id for each in live_replicas(store, dead_s=500)] == ["g"]
    assert bury(store, dead_s=500) == ["p"]
    assert bury(store, dead_s=500) == []
    assert [each.id for each in live_replicas(store, dead_s=2000)] == ["g"]


def test_one_that_was_only_frozen_is_there_again(store: LoomDB) -> None:
    alive = beat(store, POLICY)
    bury(store, dead_s=0.0)
    assert live_replicas(store) == []
    assert beat(store, alive).started_at == alive.started_at
    assert [each.id for each in live_replicas(store)] == ["p"]
    leave(store, "p")
    assert live_replicas(store) == [], "one that ends in order leaves at once"
