from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomrl.errors import IdTaken, StoreError
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS
from loomrl.store.feedback import FEEDBACK, append_feedback, feedback_of
from loomrl.types import Feedback

THUMBS_UP = Feedback(id="f1", trajectory="t1", source="human", kind="thumb", value=1.0, comment="yes", created_at=3.5)
unicode_text = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=50)


def test_feedback_is_read_in_order_from_a_cursor(store: LoomDB) -> None:
    new = [replace(THUMBS_UP, id=f"f{n}", trajectory=f"t{n % 2}") for n in range(5)]
    assert append_feedback(store, new) == 5
    positions, found = zip(*FEEDBACK.read(store, limit=3), strict=True)
    assert list(found) == new[:3]
    assert [judgement for _, judgement in FEEDBACK.read(store, after=positions[-1])] == new[3:]
    assert [judgement.id for _, judgement in FEEDBACK.read(store, trajectory="t1")] == ["f1", "f3"]
    assert feedback_of(store, ["t0", "nobody's"]) == [new[0], new[2], new[4]]
    assert FEEDBACK.last(store) == FEEDBACK.read(store)[-1][0]


def test_repeated_feedback_counts_once_whatever_the_time(store: LoomDB) -> None:
    assert append_feedback(store, [THUMBS_UP, THUMBS_UP]) == 1
    assert append_feedback(store, [replace(THUMBS_UP, created_at=9.0)]) == 0
    assert [judgement for _, judgement in FEEDBACK.read(store)] == [THUMBS_UP]
    assert len(EVENTS.read(store, kind="feedback.given")) == 1


def test_a_feedback_id_with_other_content_is_refused_whole(store: LoomDB) -> None:
    append_feedback(store, [THUMBS_UP])
    with pytest.raises(IdTaken, match=r"'f1'.*value=1\.0.*0\.0"):
        append_feedback(store, [replace(THUMBS_UP, id="f2"), replace(THUMBS_UP, value=0.0)])
    assert [judgement for _, judgement in FEEDBACK.read(store)] == [THUMBS_UP]
    assert len(EVENTS.read(store, kind="feedback.given")) == 1


def test_each_feedback_is_an_event_without_its_words(store: LoomDB) -> None:
    data = {"text": "the right answer"}
    append_feedback(store, [replace(THUMBS_UP, kind="correction", value=0.2, call="c", data=data)])
    ((_, event),) = EVENTS.read(store, kind="feedback.given")
    assert (event.subject, event.created_at) == ("t1", 3.5)
    assert event.data == {"id": "f1", "call": "c", "source": "human", "kind": "correction", "value": 0.2}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"value": -1.0}, r"value=-1\.0 must be within 0\.\.1"),
        ({"value": float("nan")}, "value=nan"),
        ({"source": "humans"}, "Did you mean 'human'"),
        ({"kind": "thumbs"}, "Did you mean 'thumb'"),
        ({"data": {"text": float("nan")}}, "cannot be stored as JSON"),
    ],
    ids=["below", "nan", "source", "kind", "data"],
)
def test_what_is_no_feedback_is_refused(store: LoomDB, wrong: dict[str, object], said: str) -> None:
    with pytest.raises(StoreError, match=said):
        append_feedback(store, [THUMBS_UP, replace(THUMBS_UP, id="f2", **wrong)])  # type: ignore[arg-type]
    assert FEEDBACK.read(store) == []


def test_a_nul_character_is_refused_on_every_database(store: LoomDB) -> None:
    with pytest.raises(StoreError, match="NUL"):
        append_feedback(store, [replace(THUMBS_UP, comment="a\0b")])


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(comment=unicode_text, value=st.floats(0, 1), data=st.dictionaries(unicode_text, unicode_text, max_size=3))
def test_whatever_people_write_comes_back_unchanged(
    store: LoomDB, comment: str, value: float, data: dict[str, str]
) -> None:
    newest = FEEDBACK.last(store)
    said = replace(THUMBS_UP, id=f"said-{newest}", comment=comment, value=value, data=data)
    append_feedback(store, [said])
    assert [judgement for _, judgement in FEEDBACK.read(store, after=newest)] == [said]
