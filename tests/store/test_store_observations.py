from dataclasses import replace

import pytest
from sqlalchemy import insert

from loomrl.errors import StoreError
from loomrl.store import LoomDB
from loomrl.store.observations import (
    Observation,
    append_observations,
    forget_observations,
    observations,
    read_observations,
)

FAILED = Observation(revision=3, arm="canary", unit=2**64 - 1, metric="error", value=1.0, at=5.5, test="prices")


def test_observations_are_read_in_order_from_a_cursor_and_rows_stay_whole(store: LoomDB) -> None:
    rows = [[replace(FAILED, unit=10 * n + k) for k in range(3)] for n in range(4)]
    for row in rows:
        append_observations(store, "policy", "g1", row, 6.0)
    append_observations(store, "another", "g1", [FAILED], 6.0)
    first = read_observations(store, "policy", limit=3)
    assert [observation for _, observation in first] == [each for row in rows[:3] for each in row]
    assert [each for _, each in read_observations(store, "policy", after=first[-1][0])] == rows[3]
    assert [each for _, each in read_observations(store, "another")] == [FAILED]


def test_no_observations_make_no_row(store: LoomDB) -> None:
    append_observations(store, "policy", "g1", [], 6.0)
    assert read_observations(store, "policy") == []


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
