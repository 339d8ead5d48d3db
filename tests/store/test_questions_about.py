"""Questions to people about trajectories on record: found once answered, and deleted with what they are about."""

import pytest

from loomrl.store import LoomDB
from loomrl.store.erasures import erase
from loomrl.store.judgements import Judgement, answer, ask, id_about, list_answered, trajectory_of, waiting
from loomrl.types import Message

pytestmark = pytest.mark.system
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
