"""The four environments that are made by themselves and played by hand."""

import asyncio
import math
import time

import pytest

from loomrl.envs import DialogueEnv, LogicPuzzleEnv, MemoryBufferEnv, MetaReasoningEnv
from loomrl.errors import ConfigError
from loomrl.store import open_store
from loomrl.store.judgements import answer, waiting

ALL = [DialogueEnv, LogicPuzzleEnv, MemoryBufferEnv, MetaReasoningEnv]


async def solved(env):
    """Play an episode as the oracle does, with verbs as people write them."""
    state, done, info = await env.reset(), False, {}
    while not done:
        _, _, done, info = await env.step(env.oracle().replace(": ", " ") if env.verbs else env.oracle())
    return state.task, info


@pytest.mark.parametrize("cls", ALL)
async def test_without_arguments_it_can_be_played_and_gets_harder_as_it_is_solved(cls):
    env = cls(seed=1)
    levels = []
    for _ in range(12):
        task, info = await solved(env)
        levels.append(task.level)
        assert info["success"] == 1
    assert max(levels[6:]) > max(levels[:3])


@pytest.mark.parametrize("cls", ALL)
async def test_without_a_curriculum_tasks_are_those_of_the_difficulty(cls):
    env = cls(use_curriculum=False, difficulty=0.4, seed=1)
    assert {(await env.reset()).task.level for _ in range(5)} == {5}


@pytest.mark.parametrize(
    ("cls", "settings"), [(DialogueEnv, {"max_turns": 2}), *[(cls, {"max_steps": 2}) for cls in ALL[1:]]]
)
async def test_the_limit_truncates(cls, settings):
    env = cls(**settings)
    await env.reset()
    await env.step("nothing")
    _, _, done, info = await env.step("nothing")
    assert (done, info["truncated"]) == (True, True)


async def test_a_larger_memory_has_room_for_more():
    env = MemoryBufferEnv(memory_size=100, seed=1)
    state = await env.reset(env.task("topic", 1, 1))
    assert "of 100 notes" in str(state)


async def test_a_memory_that_is_too_small_for_a_task_is_an_error():
    env = MemoryBufferEnv(memory_size=5, seed=1)
    with pytest.raises(ConfigError, match=r"memory_size=5: topic at level 9 needs room for 6 notes"):
        await env.reset(env.task("topic", 9, 1))
    state = await MemoryBufferEnv(memory_size=0).reset(env.task("topic", 9, 1))
    assert "of 6 notes" in str(state)


async def test_a_person_is_asked_where_asked_for(tmp_path):
    url = f"sqlite:///{tmp_path}/loom.db"
    env = MetaReasoningEnv(use_curriculum=False, use_human_feedback=True, store=url)
    await env.reset(env.task("bias", 1, 1))
    done = False
    while not done:
        playing = asyncio.create_task(env.step(env.oracle()))
        with open_store(url) as db:
            while not playing.done():
                for asked in waiting(db, now=time.time()):
                    answer(db, asked.id, "good", who="me", at=time.time())
                await asyncio.sleep(0.01)
        _, reward, done, info = await playing
    assert info["verdict"] == "good"
    assert math.isclose(info["reward_parts"]["reasoning"], 0.2 * 2 / 3)
    assert math.isclose(reward, 1 + 0.2 * 2 / 3)
