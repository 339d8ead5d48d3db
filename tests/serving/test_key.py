import asyncio
import time

import pytest

from loomrl.serving.deployment import key as module
from loomrl.serving.deployment.key import StoredKeys
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS
from loomrl.store.keys import create_key, revoke_key


async def cause_of(keys: StoredKeys, token: str | None, scope: str = "act") -> RefusalCause | None:
    try:
        await keys.caller(token, scope=scope)
    except Refusal as refusal:
        return refusal.cause
    return None


async def test_a_key_opens_what_its_scopes_say(store: LoomDB) -> None:
    plain, key = create_key(store, "app", scopes=("act", "feedback"), at=time.time())
    keys = StoredKeys(store, required=True)
    assert (await keys.caller(plain, scope="feedback")).key == key.id
    assert await cause_of(keys, plain, "record") is RefusalCause.FORBIDDEN
    boss, _ = create_key(store, "boss", scopes=("admin",), at=time.time())
    assert await cause_of(keys, boss, "record") is None


async def test_without_a_key_nothing_opens_where_one_is_required(store: LoomDB) -> None:
    plain, _ = create_key(store, "app", at=time.time())
    strict, open_ = StoredKeys(store, required=True), StoredKeys(store, required=False)
    wrong = plain[:-1] + ("0" if plain[-1] != "0" else "1")
    for token in (None, "sk-something", wrong, plain.replace("loom", "look"), f"loom-{'0' * 12}-{'0' * 48}"):
        assert await cause_of(strict, token) is RefusalCause.KEY
    assert await cause_of(open_, None) is None
    assert await cause_of(open_, "sk-something") is None
    assert await cause_of(open_, wrong) is RefusalCause.KEY
    assert await cause_of(open_, plain) is None


async def test_a_new_key_works_at_once_and_a_revoked_one_soon_stops(store: LoomDB) -> None:
    keys = StoredKeys(store, required=True)
    assert await cause_of(keys, None) is RefusalCause.KEY
    plain, key = create_key(store, "app", at=time.time())
    assert await cause_of(keys, plain) is None
    revoke_key(store, key.id, at=time.time())
    deadline = time.monotonic() + module.STALE_S + 1
    while await cause_of(keys, plain) is None:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_an_expired_key_is_refused(store: LoomDB) -> None:
    plain, _ = create_key(store, "app", expires_at=time.time() + 100, at=time.time())
    keys = StoredKeys(store, required=True, clock=lambda: time.time() + 101)
    with pytest.raises(Refusal, match="has expired"):
        await keys.caller(plain, scope="act")


async def test_a_rate_limit_says_when_to_come_again(store: LoomDB) -> None:
    plain, _ = create_key(store, "app", rate=5.0, at=time.time())
    keys = StoredKeys(store, required=True)
    began = time.monotonic()
    allowed = [await cause_of(keys, plain) for _ in range(5)]
    assert allowed == [None] * 5
    with pytest.raises(Refusal, match="5 calls a second") as refused:
        await keys.caller(plain, scope="act")
    assert refused.value.cause is RefusalCause.BUDGET
    assert refused.value.retry_after_s is not None
    assert 0 < refused.value.retry_after_s <= 0.2
    await asyncio.sleep(refused.value.retry_after_s + 0.01)
    assert await cause_of(keys, plain) is None
    assert time.monotonic() - began < 5


async def test_thousands_of_wrong_keys_leave_the_database_alone_and_are_on_record(
    store: LoomDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AUDIT_S", 0.0)
    plain, _ = create_key(store, "app", at=time.time())
    keys = StoredKeys(store, required=True)
    began = time.monotonic()
    tokens = [f"loom-{number:012x}-{number:048x}" for number in range(2000)]
    assert set(await asyncio.gather(*(cause_of(keys, token) for token in tokens))) == {RefusalCause.KEY}
    assert keys.looks <= 12 + (time.monotonic() - began) / module.PACE_S
    assert keys.looks < 200
    assert await cause_of(keys, plain) is None
    await cause_of(keys, f"loom-{'f' * 12}-{'f' * 48}")
    counted = sum(sum(event.data.values()) for _, event in EVENTS.read(store, kind="key.refused"))
    assert 1_800 <= counted <= 2_001


async def test_a_wrong_key_costs_the_same_whether_its_id_is_known_or_not(store: LoomDB) -> None:
    plain, key = create_key(store, "app", at=time.time())
    keys = StoredKeys(store, required=True)
    assert await cause_of(keys, plain) is None
    looks = []
    for id in (key.id, "0" * 12):
        before = keys.looks
        assert await cause_of(keys, f"loom-{id}-{'0' * 48}") is RefusalCause.KEY
        looks.append(keys.looks - before)
    assert looks[0] == looks[1] >= 1
    before = keys.looks
    assert await cause_of(keys, plain) is None
    assert keys.looks - before <= 1, "a right one waits for no look"


async def test_known_keys_hold_while_the_database_is_away(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from loomrl.errors import StoreError
    from loomrl.store import open_store

    with open_store(sqlite_url) as db:
        plain, _ = create_key(db, "app", at=time.time())
        keys = StoredKeys(db, required=True)
        assert await cause_of(keys, plain) is None

        def away(*_: object, **__: object) -> None:
            raise StoreError("away")

        monkeypatch.setattr(module, "read_keys", away)
        monkeypatch.setattr(module, "STALE_S", 0.0)
        assert await cause_of(keys, plain) is None
        monkeypatch.setattr(module, "BLIND_S", 0.0)
        assert await cause_of(keys, plain) is RefusalCause.UNAVAILABLE
