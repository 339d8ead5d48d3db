"""A rubric among the components of what was served: its evidence, its failures, and what is never in it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from loomrl.config import RewardPipeline
from loomrl.feedback.reward.inspection import Inspection
from loomrl.feedback.reward.pipeline import Pipeline, Trails, as_event
from loomrl.gym import chat_server as judge_server
from loomrl.types import End, Failure
from tests.feedback.support import served
from tests.gym.rubric_support import ScriptedJudge, by_words, completion, serve_judge
from tests.gym.test_rubric import calibrate

pytestmark = pytest.mark.system


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedJudge]:
    monkeypatch.setattr(judge_server, "PAUSE_S", 0.01)
    with serve_judge(by_words({"kind": ("please", "thanks"), "short": ("brief",)})) as found:
        yield found


def settings(judge: ScriptedJudge, **more: object) -> RewardPipeline:
    part = judge.part("kind", "short", name="manners", weight=0.5, **more)
    return RewardPipeline.parse({"parts": [part.plain, {"entry_point": "tests.gym.test_rewards:LOUD", "weight": 0}]})


def test_a_rubric_is_a_component_with_its_evidence_and_without_anybodys_words(judge: ScriptedJudge) -> None:
    pipeline, inspection = Pipeline(settings(judge)), Inspection(settings(judge))
    said = served("a", "please be brief")
    assert inspection.takes_time(said)
    found = inspection.inspect([said])["a"]
    reward = pipeline.reward(pipeline.case(said, found=found), [], Trails(9), endpoint="talk", at=1.0)
    part = reward.content["components"]["manners"]
    assert (part["value"], round(part["weight"], 6), part["reasoning"]) == (
        0.75,
        round(0.5 / 1.5, 6),
        "m judges: kind 0.5, short 1",
    )
    assert part["evidence"] == {"judge": "m", "raw": 0.75, "criteria": {"kind": 0.5, "short": 1.0}}
    assert as_event(reward)["metadata"]["evaluation_method"] == "model-based"
    assert "Because of" not in json.dumps(reward.content)
    assert len(judge.asked) == 1


def test_a_judge_without_a_verdict_leaves_the_component_unknown(judge: ScriptedJudge) -> None:
    inspection = Inspection(settings(judge))
    judge.faults = [(200, completion("You said: please be brief"))] * 2
    (unread,) = inspection.inspect([served("a")]).values()
    assert (unread["manners"].value, unread["manners"].reasoning) == (
        None,
        "the judge gave no verdict: its answer could not be read",
    )
    judge.faults = [(404, b"no such model")]
    (away,) = inspection.inspect([served("b", "x")]).values()
    assert away["manners"].value is None
    assert "no such model" in away["manners"].reasoning


def test_failed_attempts_are_not_judged_and_where_nothing_is_said_there_is_nothing_to_judge(
    judge: ScriptedJudge,
) -> None:
    pipeline, inspection = Pipeline(settings(judge)), Inspection(settings(judge))
    failed = replace(served("a"), end=End.FAILED, failure=Failure("policy", "Hang", "late"))
    mute = replace(served("b"), turns=())
    assert not inspection.takes_time(failed)
    found = inspection.inspect([failed, mute])
    scores = [pipeline.case(one, found=found[one.id]).scores["manners"] for one in (failed, mute)]
    assert [(score.value, score.applies) for score in scores] == [(None, True), (None, False)]
    assert judge.asked == []


def test_another_calibration_is_another_ground_for_judging_again(judge: ScriptedJudge, tmp_path: Path) -> None:
    part, file = judge.part("kind", "short"), tmp_path / "map.json"
    calibrate(part, file)
    first = Pipeline(settings(judge, calibration=str(file)))
    calibrate(part, file, people=[0.0, 0.1, 0.7])
    from loomrl.gym.rubric_judge import open_rubric

    open_rubric.cache_clear()
    assert Pipeline(settings(judge, calibration=str(file))).sha256 != first.sha256
    assert Pipeline(settings(judge)).sha256 not in (first.sha256, Pipeline(RewardPipeline()).sha256)
