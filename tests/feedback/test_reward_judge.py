"""A judge of completion, behind a real server: asked only where nobody told, and no judgement where it fails."""

import pytest

from loomrl.config import RewardPipeline
from loomrl.feedback.reward.inspection import Inspection
from loomrl.feedback.reward.pipeline import COMPLETION, Pipeline, Trails, as_event
from loomrl.gym.judge import conversation
from loomrl.types import Message
from tests.feedback.support import served
from tests.gym.test_judge import Server, completion, server  # noqa: F401 - a fixture

pytestmark = pytest.mark.system


def test_a_judge_is_asked_where_nobody_told_and_its_failure_is_no_zero(server: Server) -> None:  # noqa: F811
    server.says(completion("It did some.\nVERDICT: in part"))
    settings = RewardPipeline.parse({"judge": {"url": server.url, "model": "m"}})
    inspection, pipeline = Inspection(settings), Pipeline(settings)
    silent, told = served("a", "half of it"), served("b", "all of it", success=1.0)
    assert (inspection.takes_time(silent), inspection.takes_time(told)) == (True, False)
    found = inspection.inspect([silent, told])
    assert len(server.asked) == 1
    assert found["a"][COMPLETION].value == 0.75
    reward = pipeline.reward(pipeline.case(silent, found=found["a"]), [], Trails(9), endpoint="talk", at=1.0)
    assert reward.first == {"task_completion": 0.75}
    assert as_event(reward)["metadata"]["evaluation_method"] == "model-based"
    server.says(b"", status=400)
    assert inspection.inspect([silent])["a"][COMPLETION].value is None


def test_a_judge_sees_the_whole_conversation() -> None:
    assert conversation(served("a", "one", "two")) == (
        Message("user", "please"),
        Message("assistant", "one"),
        Message("user", "please"),
        Message("assistant", "two"),
    )
