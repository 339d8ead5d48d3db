from loomrl.store import LoomDB
from loomrl.store.notes import Notes


def test_the_last_text_kept_under_a_key_is_found(store: LoomDB) -> None:
    notes = Notes(store)
    assert notes.find("trainer") is None
    notes.keep("trainer", "{}")
    notes.keep("trainer", '{"step": 1}')
    notes.keep("other", "")
    assert (Notes(store).find("trainer"), notes.find("other")) == ('{"step": 1}', "")


def test_the_first_text_kept_under_a_key_stays(store: LoomDB) -> None:
    assert [Notes(store).keep_first("name", text) for text in ("a", "b")] == ["a", "a"]
    assert Notes(store).find("name") == "a"
