"""A judge of whole conversations: asked at the end of a successful one, masked where there is no answer."""

import asyncio
import time

import pytest

from loomrl.envs.dialogue import DialogueEnvironment
from loomrl.gym.episode import Attempt, run_episode
from loomrl.gym.policy import OraclePolicy
from loomrl.store import open_store
from loomrl.store.judgements import answer, waiting
from loomrl.types import End


async def played(sqlite_url, timeout_s):
    settings = {"judge": {"kind": "human", "store": sqlite_url, "timeout_s": timeout_s}}
    environment = DialogueEnvironment(settings)
    task = environment.task("support", 4, 0)
    return await run_episode(environment, OraclePolicy(environment, None), Attempt(id="1", task=task, group="g"))


async def answered(sqlite_url):
    with open_store(sqlite_url) as db:
        async with asyncio.timeout(20):
            while not (found := waiting(db, now=time.time())):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        answer(db, found[0].id, "good", who="ann", at=time.time())
    return found[0]


async def test_people_judge_the_whole_conversation(sqlite_url):
    trajectory, asked = await asyncio.gather(played(sqlite_url, 20.0), answered(sqlite_url))
    assert trajectory.end is End.TERMINATED
    assert trajectory.reward.parts["coherence"] == pytest.approx(0.08 * 2 / 3)
    assert [message.content for message in asked.conversation if message.role == "assistant"] == [
        turn.action for turn in trajectory.turns
    ]


async def test_without_an_answer_the_episode_is_masked(sqlite_url):
    trajectory = await played(sqlite_url, 0.3)
    assert trajectory.end is End.FAILED
    assert (trajectory.failure.boundary, trajectory.failure.kind) == ("scorer", "ScorerError")
