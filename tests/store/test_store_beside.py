import pytest

from loomrl.errors import StoreError
from loomrl.store import LoomDB, beside, open_store
from loomrl.store.events import EVENTS, Event


def kinds(db: LoomDB) -> list[str]:
    return [event.kind for _, event in EVENTS.read(db)]


def test_neighbours_share_nothing(store_url: str) -> None:
    urls = [store_url, beside(store_url, "run-1"), beside(beside(store_url, "run-1"), "2")]
    stores = [open_store(url) for url in urls]
    for number, db in enumerate(stores):
        EVENTS.append(db, [Event(kind=f"k{number}", subject="s", created_at=0.0)])
    assert [kinds(db) for db in stores] == [["k0"], ["k1"], ["k2"]]
    again = open_store(urls[1])
    assert kinds(again) == ["k1"]
    for db in [*stores, again]:
        db.close()


def test_writing_in_one_does_not_wait_for_a_writer_in_the_other(store_url: str) -> None:
    one, other = open_store(store_url), open_store(beside(store_url, "b"))
    with one.write():
        EVENTS.append(other, [Event(kind="k", subject="s", created_at=0.0)])
    assert kinds(other) == ["k"]
    one.close()
    other.close()


@pytest.mark.parametrize("name", ["", "a/b", 'a"b', "x" * 51, "a b", "ü"])
def test_name_that_could_be_anything_else_is_refused(store_url: str, name: str) -> None:
    with pytest.raises(StoreError, match="letters, digits"):
        beside(store_url, name)
