"""Calls of sessions, stored together."""

from dataclasses import replace

from sqlalchemy import event

from loomrl.store import LoomDB
from loomrl.store.sessions import SESSIONS, NewCall, end_session, keep_calls, read_calls

CALL = NewCall(id=None, session="s", endpoint="e", key="k", payload=b"act", columns=None, created_at=5.0)


def test_each_call_of_a_transaction_has_its_own_fate(store: LoomDB) -> None:
    assert keep_calls(store, [replace(CALL, id="1"), replace(CALL, session="over"), CALL, CALL]) == ["new"] * 4
    end_session(store, "over", {}, at=6.0)
    later = replace(CALL, created_at=7.0)
    calls = {
        "repeated": replace(later, id="1"),
        "new": replace(later, id="2"),
        "foreign": replace(later, key="stranger"),
        "ended": replace(later, session="over"),
    }
    opened = replace(later, session="late")
    new = [*calls.values(), calls["new"], opened, replace(opened, endpoint="another"), opened]
    assert keep_calls(store, new) == [*calls, "repeated", "new", "foreign", "new"]
    assert [one.last_at for one in (SESSIONS.require(store, id) for id in ("s", "over", "late"))] == [7.0, 5.0, 7.0]
    assert [len(read_calls(store, id)[1]) for id in ("s", "over", "late")] == [4, 1, 2]


def test_acts_of_open_sessions_are_kept_by_two_statements(store: LoomDB) -> None:
    acts = [replace(CALL, session=f"s{n}") for n in range(5)]
    keep_calls(store, acts)
    asked = []
    event.listen(store.engine, "before_cursor_execute", lambda *about: asked.append(about[2].split()[0]))
    assert keep_calls(store, acts) == ["new"] * 5
    assert [one for one in asked if one in ("SELECT", "INSERT", "UPDATE")][not store.is_sqlite :] == [
        "UPDATE",
        "INSERT",
    ]
