"""The event that other systems read."""

import json
import uuid

import pytest
from pydantic import TypeAdapter

from loomrl.bus.contract import RewardEvent
from loomrl.canonical import as_uuid
from loomrl.config import RewardPipeline
from loomrl.feedback.reward.pipeline import Pipeline, Trails, as_event
from loomrl.store.rewards import StoredReward
from loomrl.types import Feedback
from tests.feedback.support import said, served

PIPELINE = Pipeline(RewardPipeline())
SOURCES = {"automated", "human", "linter", "test_results", "benchmark"}


def judged(*feedback: Feedback, success: float | None = None) -> StoredReward:
    case = PIPELINE.case(served("s-1", success=success))
    return PIPELINE.reward(case, feedback, Trails(9), endpoint="talk", at=1_700_000_000.25)


def test_a_reward_fits_the_contract() -> None:
    reward = judged(said("f", "s-1", value=0.0), success=1.0)
    text = json.dumps(as_event(reward), allow_nan=False)
    TypeAdapter(RewardEvent).validate_json(text)
    event = json.loads(text)
    assert event.keys() == {
        "reward_id", "trajectory_id", "session_id", "timestamp", "reward_components", "total_reward", "reward_type",
        "normalization", "metadata",
    }  # fmt: skip
    assert str(uuid.UUID(event["reward_id"])) == reward.id
    assert event["trajectory_id"] == as_uuid("s-1")
    assert event["session_id"] == "s-1"
    assert event["timestamp"] == "2023-11-14T22:13:20.250000+00:00"
    assert event["normalization"] == {"method": "z-score"}
    parts = event["reward_components"]
    assert parts.keys() == {"task_completion", "efficiency", "code_quality", "user_feedback"}
    for part in parts.values():
        assert part.keys() == {"score", "weight", "source", "reasoning", "raw_data"}
        assert 0 <= part["weight"] <= 1
        assert part["source"] in SOURCES
    assert sum(part["score"] * part["weight"] for part in parts.values()) == pytest.approx(event["total_reward"])
    assert parts["efficiency"]["score"] == 0.5
    assert parts["efficiency"]["reasoning"].endswith(": neutral")
    assert parts["user_feedback"]["raw_data"]["signals"][0]["kind"] == "thumb"


@pytest.mark.parametrize(
    ("feedback", "success", "method"),
    [((), 1.0, "automated"), (("thumb",), None, "human"), (("thumb",), 1.0, "hybrid"), (("left",), None, "automated")],
)
def test_it_says_who_judged(feedback: tuple[str, ...], success: float | None, method: str) -> None:
    told = [said(kind, "s-1", kind) for kind in feedback]
    assert as_event(judged(*told, success=success))["metadata"]["evaluation_method"] == method


def test_an_id_that_is_no_uuid_always_becomes_the_same_one() -> None:
    given = "0123456789abcdef0123456789abcdef"
    assert as_uuid(given) == str(uuid.UUID(given))
    assert as_uuid("s-1") == as_uuid("s-1") != as_uuid("s-2")
