"""Environments that come with LoomRL keep what the checker asks of environments, and can be played by hand."""

import asyncio
import math

import pytest

from loomrl.envs import DialogueEnv, LogicPuzzleEnv, MemoryBufferEnv, MetaReasoningEnv
from loomrl.errors import ConfigError
from loomrl.gym.catalogue import names
from loomrl.gym.check.run import CHECKS, check_all, check_environment
from tests.envs.play_support import answer_queue
from tests.gym.forked_checks import forked_checks  # noqa: F401
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
FEW = 0.1
"""Share of the episodes in the quick tests. An opponent that succeeds at all is played on, in batches of full size."""
DEAR = {"Code", "Game"}
"""Their oracles and opponents are left to `test_code_environment.py`, `test_code_hack.py` and `test_game_*.py`."""


@pytest.mark.system
@pytest.mark.usefixtures("forked_checks")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in names()]
)
def test_an_environment_keeps_what_it_promises(name):
    if name in DEAR:
        need(NEED_PROGRAMS[name])
        only = [check for check in CHECKS if check not in ("oracle", "opponents")]
        report = check_environment(name, only=only, share=FEW)
        assert report.passed, str(report)
    else:
        check(name, FEW)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in names() if name not in NEED_SETTINGS])
def test_it_keeps_it_in_all_the_episodes_that_the_ceilings_ask_for(name):
    check(name, 1.0)


def check(name, share):
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


async def test_a_person_is_asked_where_asked_for(sqlite_url):
    env = MetaReasoningEnv(use_curriculum=False, use_human_feedback=True, store=sqlite_url)
    await env.reset(env.task("bias", 1, 1))
    await env.step(env.oracle())
    (_, reward, _, info), _ = await asyncio.gather(env.step(env.oracle()), answer_queue(sqlite_url, "good"))
    assert info["verdict"] == "good"
    assert math.isclose(info["reward_parts"]["reasoning"], 0.2 * 2 / 3)
    assert math.isclose(reward, 1 + 0.2 * 2 / 3)
