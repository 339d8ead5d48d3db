import pytest
from sqlalchemy import text

from loomrl.errors import StoreError
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS, Event


def event(subject: str, kind: str = "run.started") -> Event:
    return Event(kind=kind, subject=subject, data={"n": 1, "text": "é\n"}, created_at=12.5)


def test_events_come_back_in_the_order_they_were_appended(store: LoomDB) -> None:
    positions = EVENTS.append(store, [event("a"), event("b"), event("c")])
    assert EVENTS.read(store) == list(zip(positions, [event("a"), event("b"), event("c")], strict=True))
    assert positions == sorted(positions)


def test_reading_goes_on_after_the_cursor(store: LoomDB) -> None:
    EVENTS.append(store, [event(name) for name in "abcde"])
    (first, _), (second, _) = EVENTS.read(store, limit=2)
    assert first < second
    assert [found.subject for _, found in EVENTS.read(store, after=second)] == ["c", "d", "e"]


def test_events_are_found_by_kind_and_by_subject(store: LoomDB) -> None:
    EVENTS.append(store, [event("a"), event("b"), event("a", "run.failed")])
    assert [found.kind for _, found in EVENTS.read(store, subject="a")] == ["run.started", "run.failed"]
    assert [found.subject for _, found in EVENTS.read(store, kind="run.failed")] == ["a"]
    assert EVENTS.read(store, kind="run.failed", subject="b") == []


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET subject = 'other'",
        "DELETE FROM events",
        "DELETE FROM events WHERE position = 1",
    ],
)
def test_the_database_itself_refuses_to_change_an_event(store: LoomDB, change: str) -> None:
    EVENTS.append(store, [event("a")])
    with pytest.raises(StoreError, match="append-only"), store.write() as connection:
        connection.execute(text(change))
    assert [found for _, found in EVENTS.read(store)] == [event("a")]


def test_an_event_cannot_be_replaced(store: LoomDB) -> None:
    EVENTS.append(store, [event("a")])
    replace = "INSERT OR REPLACE INTO" if store.is_sqlite else "TRUNCATE events; INSERT INTO"
    with pytest.raises(StoreError, match="append-only"), store.write() as connection:
        connection.execute(
            text(f"{replace} events (position, kind, subject, data, created_at) VALUES (1, '', '', '{{}}', 0)")
        )
    assert [found for _, found in EVENTS.read(store)] == [event("a")]


def test_events_of_a_failed_append_are_not_kept(store: LoomDB) -> None:
    not_json = Event(kind="k", subject="s", data={"loss": float("nan")}, created_at=0.0)
    with pytest.raises(StoreError, match="JSON"):
        EVENTS.append(store, [event("a"), not_json])
    assert EVENTS.read(store) == []


def test_text_that_is_no_unicode_is_refused(store: LoomDB) -> None:
    with pytest.raises(StoreError, match="Unicode"):
        EVENTS.append(store, [event("\ud800")])
