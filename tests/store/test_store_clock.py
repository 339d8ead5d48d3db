"""Hosts whose clocks are apart do not share a LoomDB."""

import time
from types import SimpleNamespace

import pytest

from loomrl.errors import StoreError
from loomrl.store import db, open_store


@pytest.mark.parametrize(("ahead_s", "said"), [(60.0, "60 s ahead of the database's"), (-60.0, "60 s behind the")])
def test_a_clock_that_is_apart_is_refused_by_name(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, ahead_s: float, said: str
) -> None:
    monkeypatch.setattr(db, "time", SimpleNamespace(time=lambda: time.time() + ahead_s))
    with pytest.raises(StoreError, match=said):
        open_store(postgres_url)


def test_a_slow_answer_is_not_taken_for_another_time(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter((time.time(), time.time() + 20.0))
    monkeypatch.setattr(db, "time", SimpleNamespace(time=lambda: next(seen)))
    open_store(postgres_url).close()
    assert next(seen, None) is None
