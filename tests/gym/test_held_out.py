"""Held-out tasks: apart from those of training, spread evenly however many there are, and remembered one by one."""

from collections import Counter
from itertools import pairwise

import pytest

from loomrl.config import EnvironmentConfig, EvaluationConfig, RolloutConfig, ScriptedPolicy
from loomrl.errors import ConfigError
from loomrl.gym.catalogue import find
from loomrl.gym.curriculum import HELD_OUT_SEEDS
from loomrl.gym.held_out import HeldOut, draw_held_out, list_left_out
from loomrl.gym.pool import LoomRLGym
from loomrl.gym.preference import preference_of
from loomrl.gym.task_mixture import gather
from loomrl.types import End


@pytest.mark.parametrize("levels", [(1,), (1, 5, 10), tuple(range(1, 11))])
@pytest.mark.parametrize("families", [("algebra.*",), ("calculus.*",), ("arithmetic.s*",)])
def test_every_cell_is_tried_equally_often_and_a_part_of_them_touches_all_levels_and_families(families, levels):
    mixture = gather([EnvironmentConfig(id="Math", families=families)], None, lambda id: (find(id).id, ""))
    cells = len(mixture.families) * len(levels)
    draws = draw_held_out(mixture, EvaluationConfig(episodes=2 * cells, levels=levels))
    assert set(Counter((draw.family.key, draw.level) for draw in draws).values()) == {2}
    few = draws[: max(len(mixture.families), len(levels))]
    assert {draw.level for draw in few} == set(levels)
    assert {draw.family.key for draw in few} == {family.key for family in mixture.families}
    assert all(draw.seed in HELD_OUT_SEEDS for draw in draws)
    assert len({draw.seed for draw in draws}) == len(draws)


def test_episodes_are_divided_among_environments_by_weight_and_spread_over_their_families():
    weights = {"Math": 2.0, "LogicPuzzle": 1.0, "MemoryBuffer": 1.0}
    configs = [EnvironmentConfig(id=id, weight=weight) for id, weight in weights.items()]
    mixture = gather(configs, None, lambda id: (find(id).id, ""))
    draws = draw_held_out(mixture, EvaluationConfig(episodes=12))
    assert Counter(draw.family.environment for draw in draws) == {"Math": 6, "LogicPuzzle": 3, "MemoryBuffer": 3}
    parts = {draw.family.name.partition(".")[0] for draw in draws if draw.family.environment == "Math"}
    assert len(parts) > 2, "not the first families of the alphabet"
    missing = list_left_out(mixture, [mixture.member(draw).task(draw) for draw in draws])
    assert len(missing) == len(mixture.families) - 12
    assert not {draw.family.key for draw in draws} & set(missing)
    whole = draw_held_out(mixture, EvaluationConfig(episodes=4 * len(mixture.families)))
    assert list_left_out(mixture, [mixture.member(draw).task(draw) for draw in whole]) == []


@pytest.mark.parametrize("episodes", [1, 2, 3, 7, 200])
def test_no_episode_is_lost_when_they_are_divided(episodes):
    weights = {"Math": 0.7, "LogicPuzzle": 0.2, "MemoryBuffer": 0.1}
    configs = [EnvironmentConfig(id=id, weight=weight) for id, weight in weights.items()]
    mixture = gather(configs, None, lambda id: (find(id).id, ""))
    assert len(draw_held_out(mixture, EvaluationConfig(episodes=episodes))) == episodes


PERSISTENT = "MemoryBuffer/persistent.topic"


async def evaluated(*families, kind="oracle", episodes=24, **rollout):
    """Waves, and attempts, of an evaluation of MemoryBuffer."""
    config = EnvironmentConfig(id="MemoryBuffer", families=families or ("topic", "persistent.*"))
    mixture = gather([config], None, lambda id: (find(id).id, ""))
    settings = EvaluationConfig(episodes=episodes, levels=(1, 4))
    tasks = HeldOut(mixture, settings, run="r", name=kind, policy=ScriptedPolicy(kind=kind))
    waves = []
    async with LoomRLGym(RolloutConfig(**rollout)) as gym:
        for wave in tasks.waves():
            waves.append(wave)
            async for trajectory in gym.run(wave):
                tasks.take(trajectory)
    assert len(tasks) == tasks.done == episodes
    return waves, list(tasks.trajectories)


def told(attempts, family):
    return [t for t in attempts if t.task.family == family.partition("/")[2]]


async def test_an_evaluation_goes_on_with_what_the_attempt_before_has_left():
    _, attempts = await evaluated()
    row = told(attempts, PERSISTENT)
    assert len(row) == 8
    assert "memory" not in row[0].task.parameters
    for before, after in pairwise(row):
        assert after.task.parameters["memory"] == before.extra["memory"]
    assert all(attempt.reward.success == 1.0 for attempt in attempts)
    assert not any("memory" in attempt.task.parameters for attempt in told(attempts, "MemoryBuffer/topic"))


async def test_an_evaluation_is_the_same_however_many_attempts_are_made_at_once():
    (_, one), (_, many) = await evaluated(concurrency=1), await evaluated(concurrency=64)
    assert [(t.id, t.task, t.turns, t.extra) for t in one] == [(t.id, t.task, t.turns, t.extra) for t in many]


async def test_only_families_that_remember_wait_for_each_other():
    waves, _ = await evaluated()
    assert [len(wave) for wave in waves] == [3, 9, *[2] * 6]


async def test_nothing_is_remembered_from_another_evaluation_and_of_failures_nothing():
    for kind in ("random", "oracle"):
        _, attempts = await evaluated("persistent.topic", kind=kind, episodes=4)
        assert "memory" not in attempts[0].task.parameters
        if kind == "random":
            assert all(t.end is not End.FAILED and t.reward.success == 0 for t in attempts)
            assert not any("memory" in t.task.parameters for t in attempts)


def test_every_preference_has_the_same_tasks():
    mixture = gather([EnvironmentConfig(id="Math")], None, lambda id: (find(id).id, ""))
    settings, preferences = EvaluationConfig(episodes=5, levels=(1,)), [{"right": 1.0}, {"right": 0.5, "short": 0.5}]
    tasks = HeldOut(
        mixture, settings, run="r", name="n", policy=ScriptedPolicy(kind="oracle"), preferences=preferences
    ).plans
    assert len({plan.attempt.id for plan in tasks}) == len(tasks) == 10
    asked = [preference_of(plan.attempt.task) for plan in tasks]
    assert asked == [preferences[0]] * 5 + [preferences[1]] * 5
    assert [plan.attempt.task.seed for plan in tasks[:5]] == [plan.attempt.task.seed for plan in tasks[5:]]


def test_every_task_has_so_many_attempts_which_are_a_group():
    mixture = gather([EnvironmentConfig(id="Math")], None, lambda id: (find(id).id, ""))
    settings = EvaluationConfig(episodes=3, levels=(1,), attempts=2)
    plans = HeldOut(mixture, settings, run="r", name="n", policy=ScriptedPolicy(kind="random")).plans
    assert [plan.attempt.task.seed for plan in plans][::2] == [plan.attempt.task.seed for plan in plans][1::2]
    assert [plan.attempt.group for plan in plans] == ["r/n/0", "r/n/0", "r/n/2", "r/n/2", "r/n/4", "r/n/4"]
    assert len({plan.attempt.id for plan in plans}) == len({plan.seed for plan in plans}) == 6


def test_attempts_that_remember_each_other_are_refused_where_several_are_asked_for():
    mixture = gather([EnvironmentConfig(id="MemoryBuffer")], None, lambda id: (find(id).id, ""))
    settings = EvaluationConfig(episodes=3, levels=(1,), attempts=2)
    with pytest.raises(ConfigError, match=r"attempts=2.*MemoryBuffer"):
        HeldOut(mixture, settings, run="r", name="n", policy=ScriptedPolicy(kind="random"))
