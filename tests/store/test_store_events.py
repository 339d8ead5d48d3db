from dataclasses import replace

import pytest
from sqlalchemy import insert, text

from loomrl.errors import StoreError
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS, Event
from loomrl.store.observations import (
    Observation,
    append_observations,
    forget_observations,
    observations,
    read_observations,
)


def event(subject: str, kind: str = "run.started") -> Event:
    return Event(kind=kind, subject=subject, data={"n": 1, "text": "é\n"}, created_at=12.5)


def test_events_are_found_by_kind_and_by_subject(store: LoomDB) -> None:
    EVENTS.append(store, [event("a"), event("b"), event("a", "run.failed")])
    assert [found.kind for _, found in EVENTS.read(store, subject="a")] == ["run.started", "run.failed"]
    assert [found.subject for _, found in EVENTS.read(store, kind="run.failed")] == ["a"]
    assert EVENTS.read(store, kind="run.failed", subject="b") == []


def test_the_database_itself_refuses_to_change_an_event(store: LoomDB) -> None:
    EVENTS.append(store, [event("a")])
    replacing = "INSERT OR REPLACE INTO" if store.is_sqlite else "TRUNCATE events; INSERT INTO"
    for change in (
        "UPDATE events SET subject = 'other'",
        "DELETE FROM events",
        "DELETE FROM events WHERE position = 1",
        f"{replacing} events (position, kind, subject, data, created_at) VALUES (1, '', '', '{{}}', 0)",
    ):
        with pytest.raises(StoreError, match="append-only"), store.write() as connection:
            connection.execute(text(change))
    assert [found for _, found in EVENTS.read(store)] == [event("a")]


def test_events_of_a_failed_append_are_not_kept(store: LoomDB) -> None:
    not_json = Event(kind="k", subject="s", data={"loss": float("nan")}, created_at=0.0)
    with pytest.raises(StoreError, match="JSON"):
        EVENTS.append(store, [event("a"), not_json])
    with pytest.raises(StoreError, match="Unicode"):
        EVENTS.append(store, [event("a"), event("\ud800")])
    assert EVENTS.read(store) == []


FAILED = Observation(revision=3, arm="canary", unit=2**64 - 1, metric="error", value=1.0, at=5.5, test="prices")


def test_observations_are_read_in_order_from_a_cursor_and_rows_stay_whole(store: LoomDB) -> None:
    rows = [[replace(FAILED, unit=10 * n + k) for k in range(3)] for n in range(4)]
    for row in rows:
        append_observations(store, "policy", "g1", row, 6.0)
    append_observations(store, "another", "g1", [FAILED], 6.0)
    append_observations(store, "silent", "g1", [], 6.0)
    assert read_observations(store, "silent") == []
    first = read_observations(store, "policy", limit=3)
    assert [observation for _, observation in first] == [each for row in rows[:3] for each in row]
    assert [each for _, each in read_observations(store, "policy", after=first[-1][0])] == rows[3]
    assert [each for _, each in read_observations(store, "another")] == [FAILED]


def test_old_observations_of_an_endpoint_are_deleted(store: LoomDB) -> None:
    for at in (1.0, 2.0, 3.0):
        append_observations(store, "policy", "g1", [replace(FAILED, at=at)], at)
        append_observations(store, "another", "g1", [FAILED], at)
    assert forget_observations(store, "policy", before=1.0) == 0
    assert forget_observations(store, "policy", before=3.0) == 2
    assert [each.at for _, each in read_observations(store, "policy")] == [3.0]
    assert len(read_observations(store, "another")) == 3


def test_damaged_observations_are_named(store: LoomDB) -> None:
    with store.write() as connection:
        row = {"endpoint": "policy", "source": "g1", "payload": b"\x91\xc0", "created_at": 1.0}
        connection.execute(insert(observations).values(**row))
    with pytest.raises(StoreError, match="observations at"):
        read_observations(store, "policy")
