"""Right answers are paid in any dress of a chat model's, wrong ones in none: every environment, every family."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest
from dress_support import (
    add_tags,
    nearby,
    wrap_answer,
    wrap_call,
    wrap_code,
    wrap_commands,
    wrap_math,
)

from loomrl.envs.code import CodeEnvironment
from loomrl.envs.dialogue import DialogueEnvironment
from loomrl.envs.game import GameEnvironment
from loomrl.envs.language import LanguageEnvironment
from loomrl.envs.logic import LogicPuzzleEnvironment
from loomrl.envs.math import MathEnvironment
from loomrl.envs.math.hack import restate_answer
from loomrl.envs.memory import MemoryBufferEnvironment
from loomrl.envs.meta import MetaReasoningEnvironment
from loomrl.envs.multimodal import MultimodalEnvironment
from loomrl.envs.tool import ToolCallEnvironment
from loomrl.gym.base import BaseEnvironment
from loomrl.types import Task
from tests.needs import needs

MOST_TURNS = 90
PAID = 0.99


class Wardrobe(NamedTuple):
    """How actions of an environment are dressed, and how it is played wrongly."""

    environment: type[BaseEnvironment]
    dress: Callable[[BaseEnvironment, Task, str], str]
    """(environment, task, action) → the action in the dress of the task's seed."""
    err: Callable[[BaseEnvironment, Task, Random], str]
    """A wrong action; one by one they fail the task, or it is not counted."""
    per_family: int
    """Tasks of the full test."""


def bare(action):
    return action.partition("<answer>")[2].partition("</answer>")[0]


def commands(*verbs):
    return lambda environment, task, action: wrap_commands(action, task.seed, verbs)


def dress_answer(_, task, action):
    return add_tags(wrap_answer(bare(action), task.seed), task.seed)


def dress_math(environment, task, action):
    return add_tags(wrap_math(bare(action), environment._problem.answer, task.family, task.seed), task.seed)


def dress_tool(environment, task, action):
    if action.startswith("<tool_call>"):
        return wrap_call(action, task.seed)
    return dress_answer(environment, task, action)


def dress_code(environment, task, action):
    if environment._challenge is None:
        return dress_answer(environment, task, action)
    challenge = environment._challenge
    return wrap_code(action, challenge.problem.name, task.seed, classes=not challenge.bounded)


def guess(environment, task, rng):
    return environment.random_action(rng)


def err_math(environment, task, rng):
    problem = environment._problem
    other = MathEnvironment()
    other.ask(other.task(task.family, task.level, task.seed + 1))
    attempts = (nearby(problem.answer.text, rng), restate_answer(problem, rng), other._problem.answer.text)
    return f"<answer>{rng.choice(attempts)}</answer>"


def err_tool(environment, task, rng):
    """All is done but for one thing: the answer is another, or nothing was called at all."""
    action = environment.oracle()
    if environment._problem.answer is None:
        return "<answer>done</answer>"
    return action if action.startswith("<tool_call>") else f"<answer>{nearby(bare(action), rng)}</answer>"


def err_memory(environment, task, rng):
    action = environment.oracle()
    return environment.random_action(rng) if action.startswith("ANSWER") else action


def err_code(environment, task, rng):
    return environment.random_action(rng)


WARDROBES = (
    Wardrobe(MathEnvironment, dress_math, err_math, 140),
    Wardrobe(LanguageEnvironment, dress_answer, guess, 125),
    Wardrobe(MultimodalEnvironment, dress_answer, guess, 125),
    Wardrobe(CodeEnvironment, dress_code, err_code, 40),
    Wardrobe(ToolCallEnvironment, dress_tool, err_tool, 125),
    Wardrobe(LogicPuzzleEnvironment, commands("SOLVE", "QUERY"), guess, 125),
    Wardrobe(MemoryBufferEnvironment, commands("STORE", "FORGET", "RETRIEVE", "ANSWER", "NEXT"), err_memory, 125),
    Wardrobe(MetaReasoningEnvironment, commands("THINK", "ANSWER"), guess, 125),
    Wardrobe(DialogueEnvironment, commands("SAY", "ASK", "ANSWER", "OFFER", "ACCEPT", "ARGUE", "RESOLVE"), guess, 125),
    Wardrobe(GameEnvironment, commands("MOVE"), guess, 60),
)
FULL = [pytest.mark.slow, pytest.mark.timeout(1200)]


def sizes():
    """Every environment with a few tasks of each family, and with all that the full test has."""
    found = []
    for wardrobe in WARDROBES:
        name = wardrobe.environment.__name__.removesuffix("Environment")
        marks = []
        if wardrobe.environment is CodeEnvironment:
            marks = [pytest.mark.system, needs("a sandbox")]
        quick = 1 if wardrobe.environment is CodeEnvironment else 4
        found.append(pytest.param(wardrobe, quick, id=f"{name}-quick", marks=marks))
        found.append(pytest.param(wardrobe, wardrobe.per_family, id=f"{name}-full", marks=[*FULL, *marks]))
    return found


SIZES = sizes()
Act = Callable[[BaseEnvironment, Task], str]


async def play(environment, task, act):
    """The success of an episode, and its last action."""
    await environment.reset(task)
    said = ""
    for _ in range(MOST_TURNS):
        said = act(environment, task)
        step = await environment.step(said)
        if step.terminated or step.truncated:
            return step.reward.success, said
    return 0.0, said


def tasks(wardrobe, environment, per_family):
    families = [family for family in environment.families if family != "chess"]  # needs Stockfish
    return [
        environment.task(family, 1 + place % 10, 7_000 + 31 * place + 1009 * number)
        for number, family in enumerate(families)
        for place in range(per_family)
    ]


def right(wardrobe):
    return lambda environment, task: wardrobe.dress(environment, task, environment.oracle())


def wrong(wardrobe, draw, *, dressed):
    """The same wrong actions for the same draw, undressed or dressed."""
    rng = Random(draw)

    def act(environment, task):
        action = wardrobe.err(environment, task, rng)
        return wardrobe.dress(environment, task, action) if dressed else action

    return act


async def failing_draw(wardrobe, environment, task):
    """A draw whose undressed actions earn nothing; None where twenty guesses were right."""
    for draw in range(20):
        success, _ = await play(environment, task, wrong(wardrobe, draw, dressed=False))
        if success == 0:
            return draw
    return None


@pytest.mark.parametrize(("wardrobe", "per_family"), SIZES)
async def test_right_answers_are_paid_in_any_dress(wardrobe, per_family):
    environment = wardrobe.environment()
    refused = []
    given = tasks(wardrobe, environment, per_family)
    for task in given:
        success, said = await play(environment, task, right(wardrobe))
        if success < 1:
            refused.append((task.family, task.level, task.seed, said))
    assert len(refused) <= (1 - PAID) * len(given), refused[:40]


@pytest.mark.parametrize(("wardrobe", "per_family"), SIZES)
async def test_wrong_answers_are_not_paid_in_the_same_dress(wardrobe, per_family):
    environment = wardrobe.environment()
    paid = []
    tried = 0
    given = tasks(wardrobe, environment, per_family)
    for task in given:
        draw = await failing_draw(wardrobe, environment, task)
        if draw is None:
            continue
        success, said = await play(environment, task, wrong(wardrobe, draw, dressed=True))
        tried += 1
        if success > 0:
            paid.append((task.family, task.level, task.seed, said))
    assert not paid
    assert tried > 0.95 * len(given)
