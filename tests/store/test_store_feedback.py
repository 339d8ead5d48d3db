from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomrl.errors import StoreError
from loomrl.store import LoomDB
from loomrl.store.feedback import append_feedback, read_feedback
from loomrl.types import Feedback

THUMBS_UP = Feedback(id="f1", trajectory="t1", source="user:7", kind="thumb", value=1.0, comment="yes", created_at=3.5)
unicode_text = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=50)


def test_feedback_is_read_in_order_from_a_cursor(store: LoomDB) -> None:
    new = [replace(THUMBS_UP, id=f"f{n}", trajectory=f"t{n % 2}") for n in range(5)]
    assert append_feedback(store, new) == 5
    positions, found = zip(*read_feedback(store, limit=3), strict=True)
    assert list(found) == new[:3]
    assert [judgement for _, judgement in read_feedback(store, after=positions[-1])] == new[3:]
    assert [judgement.id for _, judgement in read_feedback(store, trajectory="t1")] == ["f1", "f3"]


def test_repeated_feedback_counts_once(store: LoomDB) -> None:
    assert append_feedback(store, [THUMBS_UP, THUMBS_UP]) == 1
    assert append_feedback(store, [THUMBS_UP]) == 0
    assert len(read_feedback(store)) == 1


def test_a_feedback_id_with_other_content_is_refused_whole(store: LoomDB) -> None:
    append_feedback(store, [THUMBS_UP])
    with pytest.raises(StoreError, match=r"'f1'.*value=1\.0.*-1\.0"):
        append_feedback(store, [replace(THUMBS_UP, id="f2"), replace(THUMBS_UP, value=-1.0)])
    assert [judgement for _, judgement in read_feedback(store)] == [THUMBS_UP]


def test_a_nul_character_is_refused_on_every_database(store: LoomDB) -> None:
    with pytest.raises(StoreError, match="NUL"):
        append_feedback(store, [replace(THUMBS_UP, comment="a\0b")])


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(comment=unicode_text, value=st.floats(allow_nan=False))
def test_whatever_people_write_comes_back_unchanged(store: LoomDB, comment: str, value: float) -> None:
    (newest, _), *_ = reversed([(0, THUMBS_UP), *read_feedback(store)])
    said = replace(THUMBS_UP, id=f"said-{newest}", comment=comment, value=value)
    append_feedback(store, [said])
    assert [judgement for _, judgement in read_feedback(store, after=newest)] == [said]
