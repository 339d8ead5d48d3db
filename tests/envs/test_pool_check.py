"""Environments that come with LoomRL keep what the checker asks of environments, and can be played by hand."""

import asyncio
import math
import time

import pytest

from loomrl.envs import DialogueEnv, LogicPuzzleEnv, MemoryBufferEnv, MetaReasoningEnv
from loomrl.errors import ConfigError
from loomrl.gym.catalogue import make, names
from loomrl.gym.check.run import check_all
from loomrl.store import open_store
from loomrl.store.judgements import answer, waiting
from tests.needs import need

NEED_SETTINGS = {
    "Harness": "no agent",
    "McpTools": "set command",
    "OpenEnv": "Set servers",
    "Prompts": "set file",
    "TaskFolders": "set folder",
    "Verifiers": "Set modules",
}
"""Adapters of things that lie elsewhere: their own tests check them, with servers and modules."""
NEED_PROGRAMS = {"Code": "a sandbox", "Game": "Stockfish"}
LONG = {"ReasoningGym"}
FEW = 0.3
FEWEST = 0.1
"""Shares of the episodes in the quick tests. An opponent that succeeds at all is played on, in batches of full size."""
DEAR = {"Code", "Game", "PettingZoo"}
"""Those of which the fewest are played."""
FEW_WORDS = {
    "Code": 70, "Game": 85, "Language": 60, "LogicPuzzle": 80, "MemoryBuffer": 60, "MetaReasoning": 95,
    "Multimodal": 65, "ToolCall": 70,
}  # fmt: skip
"""Words of a prompt at level 1."""
WORDY = {"board.othello", "chess", "grid", "optimise", "review"}
"""Families whose rules or code need more."""


@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in names()]
)
def test_an_environment_keeps_what_it_promises(name: str) -> None:
    check(name, FEWEST if name in DEAR else FEW)


@pytest.mark.parametrize(("name", "most"), FEW_WORDS.items())
async def test_the_first_level_is_told_in_few_words(name: str, most: int) -> None:
    environment = make(name, {})
    for family in environment.families:
        if family in WORDY:
            continue
        for seed in range(10):
            messages = await environment.reset(environment.task(family, 1, seed))
            assert sum(len(message.content.split()) for message in messages) <= most, (family, seed)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in names() if name not in NEED_SETTINGS])
def test_it_keeps_it_in_all_the_episodes_that_the_ceilings_ask_for(name: str) -> None:
    check(name, 1.0)


def check(name: str, share: float) -> None:
    if name in NEED_PROGRAMS:
        need(NEED_PROGRAMS[name])
    checked = check_all([name], may_lack=True, share=share)
    if name in NEED_SETTINGS:
        assert NEED_SETTINGS[name] in checked.left_out[name]
    else:
        assert [report.environment for report in checked.reports] == [name], checked.left_out
        faults = [check for report in checked.reports for check in report.checks if not check.passed]
        assert checked.passed, "\n".join(f"{fault.name}: {fault.detail}" for fault in faults)


ALL = [DialogueEnv, LogicPuzzleEnv, MemoryBufferEnv, MetaReasoningEnv]


async def solve(env):
    """Play an episode as the oracle does, with verbs as people write them."""
    state = await env.reset()
    done = False
    info = {}
    while not done:
        _, _, done, info = await env.step(env.oracle().replace(": ", " ") if env.verbs else env.oracle())
    return state.task, info


@pytest.mark.parametrize("cls", ALL)
async def test_without_arguments_it_can_be_played_and_gets_harder_as_it_is_solved(cls):
    env = cls(seed=1)
    levels = []
    for _ in range(12):
        task, info = await solve(env)
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
