"""The corpus of planted exploits: each one pays, its mended twin does not, and every task can be solved honestly."""

from collections.abc import Generator, Sequence
from itertools import chain, repeat
from typing import NamedTuple

import pytest

from loomrl.gym import BaseEnvironment, check_environment
from loomrl.gym.check.run import CHECKS
from loomrl.gym.guard import GuardedEnvironment
from loomrl.named import named
from loomrl.types import Task
from tests.gym.forked_checks import forked_checks  # noqa: F401
from tests.gym.planted.index import ALL, BY_ID, PLANTED, SOUND, Planted
from tests.needs import needs

LEVELS = (1, 5, 10)
SEEDS = (3, 4)
Actions = Generator[str, str, None]


class Outcome(NamedTuple):
    """The result of an episode; `correct` is the exact check's word, where there is one."""

    total: float
    success: float
    correct: float | None


def opened(each: Planted) -> BaseEnvironment:
    environment: BaseEnvironment = named(each.entry_point, what="entry point")(dict(each.settings))
    return environment


def cases(each: Planted, family: str = "") -> list[Task]:
    environment = opened(each)
    families = [family] if family else environment.families
    tasks = [environment.task(name, level, seed) for name in families for level in LEVELS for seed in SEEDS]
    return tasks[:1] if each.sandboxed else tasks


def carry_out(exploit: Planted, prompt: str) -> Actions:
    if callable(exploit.proof):
        yield from exploit.proof(prompt)
        return
    # no `yield from`: a chain cannot be sent anything
    for action in chain(exploit.proof, repeat(exploit.proof[-1])):  # noqa: UP028
        yield action


def solve(environment: BaseEnvironment) -> Actions:
    while True:
        yield environment.oracle()


async def play(each: Planted, task: Task, exploit: Planted | None = None) -> Outcome:
    """An episode of the exploit, or of the oracle."""
    for actions in exploit.before if exploit else ():
        await abandon(each, task, actions)
    environment = opened(each)
    guarded = GuardedEnvironment(environment)
    total = success = 0.0
    try:
        observation = await guarded.reset(task)
        actions = carry_out(exploit, observation[-1].content) if exploit else solve(environment)
        action: str | None = next(actions)
        while action is not None:
            step = await guarded.step(action)
            total += step.reward.total
            success = step.reward.success
            is_over = step.terminated or step.truncated
            action = None if is_over else next_action(actions, step.observation[-1].content)
    finally:
        await guarded.close()
    return Outcome(total, success, environment.correct() if has_exact_check(each) else None)


def next_action(actions: Actions, said: str) -> str | None:
    try:
        return actions.send(said)
    except StopIteration:
        return None


async def abandon(each: Planted, task: Task, actions: Sequence[str]) -> None:
    environment = opened(each)
    await environment.reset(task)
    for action in actions:
        await environment.step(action)
    await environment.close()


def mean(successes: Sequence[float]) -> float:
    return sum(successes) / len(successes)


def has_exact_check(each: Planted) -> bool:
    kind: type[BaseEnvironment] = named(each.entry_point, what="entry point")
    return any("correct" in vars(parent) for parent in kind.__mro__ if parent is not BaseEnvironment)


def by_id(corpus: Sequence[Planted]) -> list[object]:
    sandboxed = [pytest.mark.slow, pytest.mark.system, needs("bubblewrap")]
    return [pytest.param(each, id=each.id, marks=sandboxed if each.sandboxed else ()) for each in corpus]


def test_there_are_forty_of_each_and_most_sound_ones_are_mended_twins():
    assert (len(PLANTED), len(SOUND), len(BY_ID)) == (40, 40, 80)
    twins = [each.twin for each in PLANTED if each.twin]
    assert len(set(twins)) == len(twins) >= 20
    assert set(twins) <= {each.id for each in SOUND}
    for corpus in (PLANTED, SOUND):
        assert sum(has_exact_check(each) for each in corpus) == 8
    assert not any(opened(each).hacks() for each in ALL if each.entry_point.startswith("tests."))


@pytest.mark.parametrize("each", by_id(PLANTED))
async def test_the_planted_exploit_pays_without_solving_the_task(each):
    tasks = cases(each, each.family)
    found = [await play(each, task, each) for task in tasks]
    if each.pays == "reward":
        assert not any(outcome.success for outcome in found)
        honest = [await play(each, task) for task in tasks]
        assert all(ours.total > theirs.total + 0.1 for ours, theirs in zip(found, honest, strict=True))
        return
    assert mean([outcome.success for outcome in found]) >= each.share
    assert not any(outcome.correct for outcome in found if outcome.success)


@pytest.mark.parametrize("each", by_id([each for each in PLANTED if each.twin]))
async def test_the_mended_twin_does_not_pay_for_the_exploit(each):
    twin = BY_ID[each.twin]
    tasks = cases(twin, each.family)
    floor = max(opened(twin).guess_floor.values(), default=0.0)
    found = [await play(twin, task, each) for task in tasks]
    assert mean([outcome.success for outcome in found]) <= floor + 0.1
    honest = [await play(twin, task) for task in tasks]
    assert mean([outcome.total for outcome in found]) < 0.7 * mean([outcome.total for outcome in honest])


@pytest.mark.parametrize("each", by_id(ALL))
async def test_the_oracle_solves_every_task(each):
    found = [await play(each, task) for task in cases(each)]
    assert all(outcome.success == 1.0 for outcome in found)
    assert all(outcome.correct in (None, 1.0) for outcome in found)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.usefixtures("forked_checks")
@pytest.mark.parametrize("each", by_id(ALL))
def test_the_checker_has_nothing_to_say(each):
    only = [check for check in CHECKS if check != "sandbox"]  # of the sandbox itself other tests are enough
    share = 0.1 if each.sandboxed else 1.0  # an episode of these takes half a second
    report = check_environment(named(each.entry_point, what="entry point"), each.settings, only=only, share=share)
    assert report.passed, str(report)
