"""Questions that may be answered again."""

import asyncio
from collections.abc import Sequence

import pytest

from loomrl.errors import ConfigError
from loomrl.gym.answer import TaggedAnswer
from loomrl.gym.base import Step
from loomrl.gym.question import WRONG, QuestionEnvironment
from loomrl.types import Reward, Task


class Seven(QuestionEnvironment):
    """Asks for seven; six is half right."""

    name = "Seven"

    def ask(self, task: Task) -> str:
        return "Which number?"

    async def judge(self, submission: TaggedAnswer) -> Reward:
        share = {"7": 1.0, "6": 0.5}.get(submission.answer, 0.0)
        return Reward(share, {"right": share}, success=float(share == 1))

    def oracle(self) -> str:
        return "<answer>7</answer>"


def played(replies: Sequence[str], **settings: object) -> list[Step]:
    environment = Seven(settings)

    async def play() -> list[Step]:
        await environment.reset()
        return [await environment.step(reply) for reply in replies]

    return asyncio.run(play())


def answers(*numbers: int) -> list[str]:
    return [f"<answer>{number}</answer>" for number in numbers]


def test_without_retry_a_wrong_answer_is_the_last() -> None:
    (step,) = played(answers(6), max_steps=5)
    assert (step.terminated, step.reward.total, step.observation) == (True, 0.5, ())


def test_a_wrong_answer_is_told_and_a_later_one_is_worth_less() -> None:
    wrong, also_wrong, right = played(answers(6, 1, 7), max_steps=5, retry=0.5)
    assert [message.content for step in (wrong, also_wrong) for message in step.observation] == [WRONG, WRONG]
    assert not any(step.terminated or step.truncated or step.reward.total for step in (wrong, also_wrong))
    assert right.terminated
    assert right.reward == Reward(0.25, {"right": 0.25}, success=1.0)


def test_an_answer_without_tags_costs_a_reply_and_is_no_wrong_answer() -> None:
    *_, right = played(["seven", *answers(7)], max_steps=2, retry=0.5)
    assert right.reward.total == 1.0


def test_the_last_answer_is_judged_as_any_other() -> None:
    _, last = played(answers(1, 6), max_steps=2, retry=0.5)
    assert (last.terminated, last.truncated, last.reward.total) == (True, False, 0.25)


def test_each_episode_begins_anew() -> None:
    environment = Seven({"max_steps": 2, "retry": 0.5})

    async def play() -> float:
        await environment.reset()
        await environment.step("<answer>1</answer>")
        await environment.reset()
        return (await environment.step("<answer>7</answer>")).reward.total

    assert asyncio.run(play()) == 1.0


def test_retry_needs_a_second_reply() -> None:
    with pytest.raises(ConfigError, match=r"retry: with max_steps=1 there is no second answer"):
        Seven({"max_steps": 1, "retry": 0.5})
