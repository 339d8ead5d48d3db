"""Held-out tasks, and tasks that are rows of a list: each judged once, trained on once an epoch, counted as one."""

import asyncio
import random
from collections import Counter
from itertools import pairwise

import pytest

from loomrl.config import (
    AdaptiveCurriculum,
    EnvironmentConfig,
    EvaluationConfig,
    Experiment,
    FixedCurriculum,
    RolloutConfig,
    ScriptedPolicy,
)
from loomrl.config.experiment import ProgressiveCurriculum
from loomrl.errors import ConfigError
from loomrl.evaluation.report import judge
from loomrl.gym.catalogue import find
from loomrl.gym.curriculum import HELD_OUT_SEEDS, TaskOutcome
from loomrl.gym.held_out import HeldOut, draw_held_out, list_left_out
from loomrl.gym.pool import LoomRLGym
from loomrl.gym.preference import preference_of
from loomrl.gym.task_mixture import gather, open_task_mixture, open_task_source
from loomrl.store import open_store
from loomrl.types import End, Reward, Source, Task, Trajectory


def mix(*environments):
    return gather(environments, None, lambda id: (find(id).id, ""))


@pytest.mark.parametrize("levels", [(1,), (1, 5, 10), tuple(range(1, 11))])
@pytest.mark.parametrize("families", [("algebra.*",), ("calculus.*",), ("arithmetic.s*",)])
def test_every_cell_is_tried_equally_often_and_a_part_of_them_touches_all_levels_and_families(families, levels):
    mixture = mix(EnvironmentConfig(id="Math", families=families))
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
    mixture = mix(*configs)
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
    mixture = mix(*configs)
    assert len(draw_held_out(mixture, EvaluationConfig(episodes=episodes))) == episodes


PERSISTENT = "MemoryBuffer/persistent.topic"


async def evaluate(*families, kind="oracle", episodes=24, **rollout):
    """Waves, and attempts, of an evaluation of MemoryBuffer."""
    config = EnvironmentConfig(id="MemoryBuffer", families=families or ("topic", "persistent.*"))
    mixture = mix(config)
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
    _, attempts = await evaluate()
    row = told(attempts, PERSISTENT)
    assert len(row) == 8
    assert "memory" not in row[0].task.parameters
    for before, after in pairwise(row):
        assert after.task.parameters["memory"] == before.extra["memory"]
    assert all(attempt.reward.success == 1.0 for attempt in attempts)
    assert not any("memory" in attempt.task.parameters for attempt in told(attempts, "MemoryBuffer/topic"))


async def test_an_evaluation_is_the_same_however_many_attempts_are_made_at_once():
    (_, one), (_, many) = await evaluate(concurrency=1), await evaluate(concurrency=64)
    assert [(t.id, t.task, t.turns, t.extra) for t in one] == [(t.id, t.task, t.turns, t.extra) for t in many]


async def test_only_families_that_remember_wait_for_each_other():
    waves, _ = await evaluate()
    assert [len(wave) for wave in waves] == [3, 9, *[2] * 6]


async def test_nothing_is_remembered_from_another_evaluation_and_of_failures_nothing():
    for kind in ("random", "oracle"):
        _, attempts = await evaluate("persistent.topic", kind=kind, episodes=4)
        assert "memory" not in attempts[0].task.parameters
        if kind == "random":
            assert all(t.end is not End.FAILED and t.reward.success == 0 for t in attempts)
            assert not any("memory" in t.task.parameters for t in attempts)


def test_every_preference_has_the_same_tasks():
    mixture = mix(EnvironmentConfig(id="Math"))
    settings, preferences = EvaluationConfig(episodes=5, levels=(1,)), [{"right": 1.0}, {"right": 0.5, "short": 0.5}]
    tasks = HeldOut(
        mixture, settings, run="r", name="n", policy=ScriptedPolicy(kind="oracle"), preferences=preferences
    ).plans
    assert len({plan.attempt.id for plan in tasks}) == len(tasks) == 10
    asked = [preference_of(plan.attempt.task) for plan in tasks]
    assert asked == [preferences[0]] * 5 + [preferences[1]] * 5
    assert [plan.attempt.task.seed for plan in tasks[:5]] == [plan.attempt.task.seed for plan in tasks[5:]]


def test_every_task_has_so_many_attempts_which_are_a_group():
    mixture = mix(EnvironmentConfig(id="Math"))
    settings = EvaluationConfig(episodes=3, levels=(1,), attempts=2)
    plans = HeldOut(mixture, settings, run="r", name="n", policy=ScriptedPolicy(kind="random")).plans
    assert [plan.attempt.task.seed for plan in plans][::2] == [plan.attempt.task.seed for plan in plans][1::2]
    assert [plan.attempt.group for plan in plans] == ["r/n/0", "r/n/0", "r/n/2", "r/n/2", "r/n/4", "r/n/4"]
    assert len({plan.attempt.id for plan in plans}) == len({plan.seed for plan in plans}) == 6


def test_attempts_that_remember_each_other_are_refused_where_several_are_asked_for():
    mixture = mix(EnvironmentConfig(id="MemoryBuffer"))
    settings = EvaluationConfig(episodes=3, levels=(1,), attempts=2)
    with pytest.raises(ConfigError, match=r"attempts=2.*MemoryBuffer"):
        HeldOut(mixture, settings, run="r", name="n", policy=ScriptedPolicy(kind="random"))


ROWS = [{"prompt": f"What is {n} + {n}?", "kind": ("odd", "even")[n % 2], "level": 1 + n // 40} for n in range(120)]
MATH = EnvironmentConfig(id="Math", families=("algebra.*",), weight=3.0)


def prompts(**settings):
    return EnvironmentConfig(
        id="Prompts", settings={"rows": ROWS, "reward": "tests.gym.prompt_rewards:is_right", **settings}
    )


def count_asked(mixture, draws):
    """Prompts, by how often they are asked."""

    async def said(draw):
        member = mixture.member(draw)
        return (await member.environment.reset(member.task(draw)))[0].content

    async def all_of():
        return Counter([await said(draw) for draw in draws])

    return asyncio.run(all_of())


def test_every_row_is_judged_once_and_only_once():
    whole = mix(prompts(held_out=1))
    draws = draw_held_out(whole, EvaluationConfig())
    assert count_asked(whole, draws) == dict.fromkeys((row["prompt"] for row in ROWS), 1)
    assert {draw.level for draw in draws} == {0}, "a file without a column of levels has none"
    assert all(draw.seed in HELD_OUT_SEEDS for draw in draws)
    assert count_asked(whole, draw_held_out(whole, EvaluationConfig(episodes=500))) == count_asked(whole, draws)
    part = draw_held_out(whole, EvaluationConfig(episodes=50))
    assert set(count_asked(whole, part).values()) == {1}
    assert part != draw_held_out(whole, EvaluationConfig(episodes=50, seed=1)), "a part is drawn by the seed"
    assert list_left_out(whole, [whole.member(draw).task(draw) for draw in part]) == [
        "70 of 120 rows of Prompts/prompts"
    ]
    assert list_left_out(whole, [whole.member(draw).task(draw) for draw in draws]) == []


def test_what_is_held_out_is_judged_whole_and_what_is_not_is_trained_on_whole():
    both = mix(prompts(held_out=0.3))
    judged = count_asked(both, draw_held_out(both, EvaluationConfig()))
    rng, draws = random.Random(0), open_task_source(both, FixedCurriculum(), seed=0)
    trained = count_asked(both, [draws.draw(rng) for _ in range(len(ROWS) - len(judged))])
    assert set(judged.values()) == set(trained.values()) == {1}
    assert judged | trained == dict.fromkeys((row["prompt"] for row in ROWS), 1)


def test_levels_of_a_file_are_its_own_and_can_be_chosen():
    graded = mix(prompts(level="level", held_out=1, family="kind"))
    assert Counter(draw.level for draw in draw_held_out(graded, EvaluationConfig())) == {1: 40, 2: 40, 3: 40}
    chosen = draw_held_out(graded, EvaluationConfig(levels=(2, 9)))
    assert Counter((draw.level, draw.family.name) for draw in chosen) == {(2, "even"): 20, (2, "odd"): 20}


def test_levels_that_no_row_has_are_refused():
    graded = mix(prompts(level="level", held_out=1))
    with pytest.raises(ConfigError, match=r"evaluation.levels=\[9\]: no held-out row"):
        draw_held_out(graded, EvaluationConfig(levels=(9,)))


def test_levels_of_an_evaluation_are_refused_where_nothing_has_levels(tmp_path):
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        given = Experiment(name="p", environments=(prompts(),), evaluation=EvaluationConfig(levels=(2,)))
        with pytest.raises(ConfigError, match=r"evaluation.levels=\[2\] has no effect"):
            open_task_mixture(given, db)
        both = given.override({"environments": [prompts().plain, MATH.plain]})
        assert len(open_task_mixture(both, db).members) == 2


@pytest.mark.parametrize("settings", [FixedCurriculum(level=3), AdaptiveCurriculum(), ProgressiveCurriculum()])
def test_training_goes_through_all_rows_before_any_comes_again(settings):
    both = mix(prompts(held_out=0), MATH)
    draws, rng = open_task_source(both, settings, seed=5), random.Random(1)
    drawn = []
    for _ in range(900):
        drawn.append(draws.draw(rng))
        draws.observe([TaskOutcome(drawn[-1].family.key, drawn[-1].level, 1.0)])
    rows = [draw for draw in drawn if draw.family.environment == "Prompts"]
    assert len(rows) > 120, "a quarter of the weight"
    first, second = rows[:120], rows[120:240]
    assert set(count_asked(both, first).values()) == {1}
    assert len({draw.seed for draw in second}) == len(second)
    assert [draw.seed for draw in second] != [draw.seed for draw in first][: len(second)], "shuffled anew"
    assert {draw.level for draw in rows} == {0}, "no curriculum invents levels for a file without"
    assert draws.progress()["Prompts/prompts"] == 0


def test_epochs_are_resumed_and_recorded_draws_are_skipped():
    both = mix(prompts(held_out=0.5), MATH)

    def open_source():
        return open_task_source(both, AdaptiveCurriculum(), seed=2)

    rng, whole = random.Random(3), open_source()
    told = [whole.draw(rng) for _ in range(200)]
    rng, first, second, third = random.Random(3), open_source(), open_source(), open_source()
    parts = [first.draw(rng) for _ in range(70)]
    second.load_state_dict(first.state_dict())
    at_seventy = rng.getstate()
    assert parts + [second.draw(rng) for _ in range(130)] == told
    for draw in parts:  # as after a crash, from what was noted
        third.skip(draw)
    rng.setstate(at_seventy)
    assert parts + [third.draw(rng) for _ in range(130)] == told


def test_a_file_for_judging_alone_is_not_trained_on():
    with pytest.raises(ConfigError, match="'prompts' has nothing to train on"):
        open_task_source(mix(prompts(held_out=1)), FixedCurriculum(), seed=0)


def attempt(task, success, number, group):
    return Trajectory(
        id=f"a{number}", group=group, task=task, source=Source.EVALUATION, end=End.TERMINATED, turns=(),
        reward=Reward(success, {}, success),
    )  # fmt: skip


def test_attempts_at_one_row_count_as_one_however_they_are_grouped():
    """Ten rows, each attempted ten times with the same outcome, say no more than ten attempts."""

    def report(rows, times):
        tasks = [Task("Prompts", "1", "prompts", 0, HELD_OUT_SEEDS.start + n) for n in range(rows)]
        made = [
            attempt(task, float(n % 2), number * rows + n, f"g{number}/{n}")
            for number in range(times)
            for n, task in enumerate(tasks)
        ]
        return judge("p", made)

    once, often = report(10, 1), report(10, 10)
    assert often.overall.success.high - often.overall.success.low == pytest.approx(
        once.overall.success.high - once.overall.success.low
    )
    assert once.by_level == {}, "no levels are invented"
