from dataclasses import asdict

import pytest
from sqlalchemy import text

from loomrl.errors import StoreError
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS
from loomrl.store.keys import FORM, KEYS, create_key, digest, revoke_key


def test_a_key_is_stored_as_its_hash_only(store: LoomDB) -> None:
    plain, key = create_key(store, "app", scopes=("act", "feedback"), rate=5.0, expires_at=100.0, at=1.0)
    found = FORM.fullmatch(plain)
    assert found is not None
    assert (found[1], digest(found[2])) == (key.id, key.sha256)
    assert KEYS.find(store, key.id) == key
    with store.read() as connection:
        stored = [
            str(row) for table in ("keys", "events") for row in connection.execute(text(f"SELECT * FROM {table}"))
        ]
    assert not any(found[2] in row for row in stored)


def test_a_key_holds_until_it_expires_or_is_revoked(store: LoomDB) -> None:
    _, key = create_key(store, "app", expires_at=10.0, at=1.0)
    assert key.holds(9.9)
    assert not key.holds(10.0)
    assert not revoke_key(store, key.id, at=2.0, reason="lost").holds(3.0)
    assert revoke_key(store, key.id, at=5.0).revoked_at == 2.0
    kinds = [(event.kind, event.subject) for _, event in EVENTS.read(store, subject=key.id)]
    assert kinds == [("key.created", key.id), ("key.revoked", key.id)]


def test_a_key_can_be_revoked_by_itself(store: LoomDB) -> None:
    plain, key = create_key(store, "app", at=1.0)
    assert revoke_key(store, plain, at=2.0).id == key.id


def test_keys_are_listed_newest_first(store: LoomDB) -> None:
    names = ["one", "two", "three"]
    made = [create_key(store, name, at=1.0)[1] for name in names]
    assert [asdict(key) for key in KEYS.latest(store)] == [asdict(key) for key in reversed(made)]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"scopes": ("act", "fedback")}, "Did you mean 'feedback'"),
        ({"scopes": ()}, "open nothing"),
        ({"rate": 0.0}, "above 0"),
        ({"expires_at": 1.0}, "expired before it begins"),
    ],
)
def test_a_key_that_could_open_nothing_is_refused(store: LoomDB, settings: dict[str, float], said: str) -> None:
    with pytest.raises(StoreError, match=said):
        create_key(store, "app", at=1.0, **settings)  # type: ignore[arg-type]
    assert KEYS.latest(store) == []


def test_an_unknown_key_cannot_be_revoked(store: LoomDB) -> None:
    _, key = create_key(store, "app", at=1.0)
    with pytest.raises(StoreError, match=f"Known: {key.id}"):
        revoke_key(store, "nobody", at=2.0)
