import time
from types import SimpleNamespace

import pytest

from loomrl.errors import StoreError
from loomrl.store import LoomDB, beside, db, open_store
from loomrl.store.events import EVENTS, Event
from loomrl.store.notes import Notes


def kinds(db: LoomDB) -> list[str]:
    return [event.kind for _, event in EVENTS.read(db)]


def test_neighbours_share_nothing_and_have_names_that_could_be_nothing_else(store_url: str) -> None:
    for name in ("", "a/b", 'a"b', "x" * 51, "a b", "ü"):
        with pytest.raises(StoreError, match="letters, digits"):
            beside(store_url, name)
    urls = [store_url, beside(store_url, "run-1"), beside(beside(store_url, "run-1"), "2")]
    stores = [open_store(url) for url in urls]
    for number, opened in enumerate(stores):
        EVENTS.append(opened, [Event(kind=f"k{number}", subject="s", created_at=0.0)])
    assert [kinds(opened) for opened in stores] == [["k0"], ["k1"], ["k2"]]
    again = open_store(urls[1])
    assert kinds(again) == ["k1"]
    for opened in [*stores, again, open_store(beside(store_url, "agent-x.y"))]:
        opened.close()
    assert {"run-1", "agent-x.y"} <= set(db.neighbours(store_url))


def test_writing_in_one_does_not_wait_for_a_writer_in_the_other(store_url: str) -> None:
    one, other = open_store(store_url), open_store(beside(store_url, "b"))
    with one.write():
        EVENTS.append(other, [Event(kind="k", subject="s", created_at=0.0)])
    assert kinds(other) == ["k"]
    one.close()
    other.close()


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


def test_its_version_tells_of_every_commit(store_url: str) -> None:
    with open_store(store_url) as one, open_store(store_url) as other:
        known = one.version()
        assert (one.version() == known) is one.is_sqlite
        for writer in (one, other, one):
            known = one.version()
            EVENTS.append(writer, [Event(kind="k", subject="s", created_at=0.0)])
            assert one.version() != known


def test_the_last_text_kept_under_a_key_is_found(store: LoomDB) -> None:
    notes = Notes(store)
    assert notes.find("trainer") is None
    notes.keep("trainer", "{}")
    notes.keep("trainer", '{"step": 1}')
    notes.keep("other", "")
    assert (Notes(store).find("trainer"), notes.find("other")) == ('{"step": 1}', "")
    assert [notes.keep_first("name", text) for text in ("a", "b")] == [notes.find("name"), "a"] == ["a", "a"]
