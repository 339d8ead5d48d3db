"""A person answers on the command line what an episode waits for."""

import asyncio

import pytest

from loomrl.errors import LoomError
from loomrl.gym.judge import HumanJudgeConfig, Inquiry, open_judge
from loomrl.types import Message
from tests.command_line import typed_json

INQUIRY = Inquiry("How polite is it?", (Message("assistant", "Kindly wait."),), ("rude", "plain", "polite"))


async def test_what_waits_is_shown_and_its_answer_reaches_the_episode(tmp_path):
    at = ("--store", f"sqlite:///{tmp_path}/loom.db")
    judge = open_judge(HumanJudgeConfig(store=at[1], timeout_s=60))
    asked = asyncio.create_task(judge.ask(INQUIRY))
    waiting = []
    while not waiting:
        await asyncio.sleep(0.01)
        waiting = typed_json("feedback", "questions", *at)["questions"]
    assert waiting[0]["conversation"][0][:2] == ["assistant", "Kindly wait."]
    answer = ("feedback", "answer", waiting[0]["id"])
    with pytest.raises(LoomError, match="Did you mean 'polite'"):
        typed_json(*answer, "polit", *at)
    typed_json(*answer, "polite", "--who", "Ada", "--comment", "It says kindly.", *at)
    opinion = await asked
    assert (opinion.choice, opinion.reason, opinion.who) == ("polite", "It says kindly.", "Ada")
    assert typed_json("feedback", "questions", *at)["questions"] == []
