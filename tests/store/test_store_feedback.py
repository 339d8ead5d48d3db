from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomrl.errors import IdTaken, StoreError
from loomrl.store import LoomDB
from loomrl.store.erasures import erase
from loomrl.store.events import EVENTS
from loomrl.store.feedback import FEEDBACK, append_feedback, feedback_of
from loomrl.store.judgements import Judgement, answer, ask, id_about, list_answered, trajectory_of, waiting
from loomrl.store.verdicts import VERDICTS, StoredVerdict, VerdictOutcome, approve_verdict, find_verdict, record_verdict
from loomrl.types import Feedback, Message

THUMBS_UP = Feedback(id="f1", trajectory="t1", source="human", kind="thumb", value=1.0, comment="yes", created_at=3.5)
unicode_text = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=50)


def test_repeated_feedback_counts_once_whatever_the_time(store: LoomDB) -> None:
    assert append_feedback(store, [THUMBS_UP, THUMBS_UP]) == 1
    assert append_feedback(store, [replace(THUMBS_UP, created_at=9.0)]) == 0
    assert feedback_of(store, ["t1", "nobody's"]) == [THUMBS_UP]
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


def test_what_is_no_feedback_is_refused(store: LoomDB) -> None:
    for wrong, said in (
        ({"value": -1.0}, r"value=-1\.0 must be within 0\.\.1"),
        ({"value": float("nan")}, "value=nan"),
        ({"source": "humans"}, "Did you mean 'human'"),
        ({"kind": "thumbs"}, "Did you mean 'thumb'"),
        ({"data": {"text": float("nan")}}, "cannot be stored as JSON"),
        ({"comment": "a\0b"}, "NUL"),
    ):
        with pytest.raises(StoreError, match=said):
            append_feedback(store, [THUMBS_UP, replace(THUMBS_UP, id="f2", **wrong)])  # type: ignore[arg-type]
    assert FEEDBACK.read(store) == []


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(comment=unicode_text, value=st.floats(0, 1), data=st.dictionaries(unicode_text, unicode_text, max_size=3))
def test_whatever_people_write_comes_back_unchanged(
    store: LoomDB, comment: str, value: float, data: dict[str, str]
) -> None:
    newest = FEEDBACK.last(store)
    said = replace(THUMBS_UP, id=f"said-{newest}", comment=comment, value=value, data=data)
    append_feedback(store, [said])
    assert [judgement for _, judgement in FEEDBACK.read(store, after=newest)] == [said]


NAMES = ("a", "a:b", "run/1/2/3", "about:a")


def put(store: LoomDB, trajectory: str, question: str) -> str:
    said = (Message("assistant", f"said in {trajectory}"),)
    asked = Judgement(
        id=id_about(trajectory, question),
        question=question,
        conversation=said,
        choices=("no", "yes"),
        created_at=1.0,
        expires_at=9.0,
    )
    return ask(store, asked).id


def test_answers_are_found_by_their_question_and_trajectory(store: LoomDB) -> None:
    ids = {(name, question): put(store, name, question) for name in NAMES for question in ("Kind?", "Short?")}
    assert put(store, "a", "Kind?") == ids["a", "Kind?"]
    other = Judgement(
        id="another", question="Kind?", conversation=(), choices=("no", "yes"), created_at=1.0, expires_at=9.0
    )
    for id in (*(ids[name, "Kind?"] for name in NAMES), ids["a", "Short?"], ask(store, other).id):
        answer(store, id, "yes", who="ann", at=2.0)
    assert [trajectory_of(one.id) for one in list_answered(store, ["Kind?"])] == list(NAMES)
    assert [one.id for one in list_answered(store, ["Short?", "Long?"])] == [ids["a", "Short?"]]


def test_questions_are_deleted_with_what_they_are_about(store: LoomDB) -> None:
    kept = [put(store, name, "Kind?") for name in ("a", "run/1/2/3")]
    for name in ("a:b", "about:a"):
        answer(store, put(store, name, "Kind?"), "no", who="ann", at=2.0)
        put(store, name, "Short?")
    assert erase(store, ["a:b", "about:a", "never"])["questions"] == 4
    assert [one.id for one in waiting(store, now=3.0)] == kept
    assert list_answered(store, ["Kind?"]) == []


WAITING = StoredVerdict(
    id="v1",
    policy="run/12",
    fingerprint="",
    against="run/10",
    suite="tiny@1.0.0",
    suite_hash="a" * 64,
    outcome=VerdictOutcome.WAITING,
    report={"approvers": ["anna", "ben"], "checks": []},
    created_at=1.0,
)
WHERE = {"policy": "run/12", "fingerprint": "", "against": "run/10", "suite_hash": "a" * 64}


def test_verdict_is_stored_once_and_found_by_its_question(store: LoomDB) -> None:
    record_verdict(store, WAITING)
    record_verdict(store, WAITING)
    assert VERDICTS.latest(store) == [WAITING] == VERDICTS.latest(store, policy="run/12")
    assert find_verdict(store, **WHERE) == WAITING
    assert find_verdict(store, **{**WHERE, "against": None}) is None
    assert find_verdict(store, **{**WHERE, "fingerprint": "other"}) is None
    later = replace(WAITING, id="v2", outcome=VerdictOutcome.REFUSED, against=None)
    record_verdict(store, later)
    assert find_verdict(store, **{**WHERE, "against": None}) == later
    with pytest.raises(StoreError, match="stored already"):
        record_verdict(store, replace(WAITING, outcome=VerdictOutcome.ALLOWED))


def test_approval_lets_a_waiting_verdict_pass_and_leaves_the_evidence(store: LoomDB) -> None:
    record_verdict(store, WAITING)
    assert not WAITING.is_allowed
    approved = approve_verdict(store, "v1", who="anna", at=2.0, comment="looked at the leaks")
    assert approve_verdict(store, "v1", who="anna", at=3.0) == approved
    assert approved.is_allowed
    assert approved == VERDICTS.require(store, "v1") == replace(WAITING, approved_by=("anna",))
    (event,) = [event for _, event in EVENTS.read(store, kind="verdict.approved")]
    assert (event.subject, event.data["who"], event.created_at) == ("v1", "anna", 2.0)


def test_approval_without_the_right_or_of_another_outcome_is_refused(store: LoomDB) -> None:
    record_verdict(store, WAITING)
    with pytest.raises(StoreError, match=r"may not approve.*Did you mean 'anna'"):
        approve_verdict(store, "v1", who="ana", at=2.0)
    record_verdict(store, replace(WAITING, id="v2", outcome=VerdictOutcome.REFUSED))
    with pytest.raises(StoreError, match="is refused: only one that waits"):
        approve_verdict(store, "v2", who="anna", at=2.0)
    with pytest.raises(StoreError, match="no id 'v3'"):
        approve_verdict(store, "v3", who="anna", at=2.0)
    assert not VERDICTS.require(store, "v1").approved_by
