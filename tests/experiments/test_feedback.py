"""A person answers on the command line what an episode waits for."""

import asyncio
import json
import subprocess
import sys

import pytest

from loomrl.gym.judge import HumanJudgeConfig, Inquiry, open_judge
from loomrl.types import Message

pytestmark = pytest.mark.system
INQUIRY = Inquiry("How polite is it?", (Message("assistant", "Kindly wait."),), ("rude", "plain", "polite"))


def feedback(*words, store, code=0):
    command = [sys.executable, "-m", "loomrl", "feedback", *words, "--store", store, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


async def test_what_waits_is_shown_and_its_answer_reaches_the_episode(tmp_path):
    store = f"sqlite:///{tmp_path}/loom.db"
    judge = open_judge(HumanJudgeConfig(store=store, timeout_s=60))
    asked = asyncio.create_task(judge.ask(INQUIRY))
    waiting = []
    while not waiting:  # every look takes a second
        waiting = (await asyncio.to_thread(feedback, "questions", store=store))["questions"]
    assert waiting[0]["conversation"][0][:2] == ["assistant", "Kindly wait."]
    wrong = await asyncio.to_thread(feedback, "answer", waiting[0]["id"], "polit", store=store, code=2)
    assert "Did you mean 'polite'?" in wrong
    words = ("answer", waiting[0]["id"], "polite", "--who", "Ada", "--comment", "It says kindly.")
    await asyncio.to_thread(feedback, *words, store=store)
    opinion = await asked
    assert (opinion.choice, opinion.reason, opinion.who) == ("polite", "It says kindly.", "Ada")
    assert feedback("questions", store=store)["questions"] == []
