"""Tasks that are rows of a list: each is judged once, trained on once an epoch, and counted as one."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from loomrl.config import AdaptiveCurriculum, EnvironmentConfig, EvaluationConfig, Experiment, FixedCurriculum
from loomrl.config.experiment import ProgressiveCurriculum
from loomrl.errors import ConfigError
from loomrl.evaluation.report import judge
from loomrl.gym.catalogue import find
from loomrl.gym.curriculum import HELD_OUT_SEEDS, TaskDraw, TaskOutcome
from loomrl.gym.held_out import draw_held_out, list_left_out
from loomrl.gym.task_mixture import TaskMixture, gather, open_task_mixture, open_task_source
from loomrl.store import open_store
from loomrl.types import End, Reward, Source, Task, Trajectory

ROWS = [{"prompt": f"What is {n} + {n}?", "kind": ("odd", "even")[n % 2], "level": 1 + n // 40} for n in range(120)]
MATH = EnvironmentConfig(id="Math", families=("algebra.*",), weight=3.0)


def prompts(**settings: Any) -> EnvironmentConfig:
    return EnvironmentConfig(
        id="Prompts", settings={"rows": ROWS, "reward": "tests.gym.prompt_rewards:is_right", **settings}
    )


def mixture(*environments: EnvironmentConfig) -> TaskMixture:
    return gather(environments, None, lambda id: (find(id).id, ""))


def asked(mixture: TaskMixture, draws: list[TaskDraw]) -> Counter[str]:
    """Prompts, by how often they are asked."""
    import asyncio

    async def said(draw: TaskDraw) -> str:
        member = mixture.member(draw)
        return (await member.environment.reset(member.task(draw)))[0].content

    async def all_of() -> Counter[str]:
        return Counter([await said(draw) for draw in draws])

    return asyncio.run(all_of())


def test_every_row_is_judged_once_and_only_once() -> None:
    whole = mixture(prompts(held_out=1))
    draws = draw_held_out(whole, EvaluationConfig())
    assert asked(whole, draws) == dict.fromkeys((row["prompt"] for row in ROWS), 1)
    assert {draw.level for draw in draws} == {0}, "a file without a column of levels has none"
    assert all(draw.seed in HELD_OUT_SEEDS for draw in draws)
    assert asked(whole, draw_held_out(whole, EvaluationConfig(episodes=500))) == asked(whole, draws)
    part = draw_held_out(whole, EvaluationConfig(episodes=50))
    assert set(asked(whole, part).values()) == {1}
    assert part != draw_held_out(whole, EvaluationConfig(episodes=50, seed=1)), "a part is drawn by the seed"
    assert list_left_out(whole, [whole.member(draw).task(draw) for draw in part]) == [
        "70 of 120 rows of Prompts/prompts"
    ]
    assert list_left_out(whole, [whole.member(draw).task(draw) for draw in draws]) == []


def test_what_is_held_out_is_judged_whole_and_what_is_not_is_trained_on_whole() -> None:
    both = mixture(prompts(held_out=0.3))
    judged = asked(both, draw_held_out(both, EvaluationConfig()))
    rng, draws = random.Random(0), open_task_source(both, FixedCurriculum(), seed=0)
    trained = asked(both, [draws.draw(rng) for _ in range(len(ROWS) - len(judged))])
    assert set(judged.values()) == set(trained.values()) == {1}
    assert judged | trained == dict.fromkeys((row["prompt"] for row in ROWS), 1)


def test_levels_of_a_file_are_its_own_and_can_be_chosen() -> None:
    graded = mixture(prompts(level="level", held_out=1, family="kind"))
    assert Counter(draw.level for draw in draw_held_out(graded, EvaluationConfig())) == {1: 40, 2: 40, 3: 40}
    chosen = draw_held_out(graded, EvaluationConfig(levels=(2, 9)))
    assert Counter((draw.level, draw.family.name) for draw in chosen) == {(2, "even"): 20, (2, "odd"): 20}


def test_levels_that_no_row_has_are_refused() -> None:
    graded = mixture(prompts(level="level", held_out=1))
    with pytest.raises(ConfigError, match=r"evaluation.levels=\[9\]: no held-out row"):
        draw_held_out(graded, EvaluationConfig(levels=(9,)))


def test_levels_of_an_evaluation_are_refused_where_nothing_has_levels(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        given = Experiment(name="p", environments=(prompts(),), evaluation=EvaluationConfig(levels=(2,)))
        with pytest.raises(ConfigError, match=r"evaluation.levels=\[2\] has no effect"):
            open_task_mixture(given, db)
        both = given.override({"environments": [prompts().plain, MATH.plain]})
        assert len(open_task_mixture(both, db).members) == 2


@pytest.mark.parametrize("settings", [FixedCurriculum(level=3), AdaptiveCurriculum(), ProgressiveCurriculum()])
def test_training_goes_through_all_rows_before_any_comes_again(settings: Any) -> None:
    both = mixture(prompts(held_out=0), MATH)
    draws, rng = open_task_source(both, settings, seed=5), random.Random(1)
    drawn = []
    for _ in range(900):
        drawn.append(draws.draw(rng))
        draws.observe([TaskOutcome(drawn[-1].family.key, drawn[-1].level, 1.0)])
    rows = [draw for draw in drawn if draw.family.environment == "Prompts"]
    assert len(rows) > 120, "a quarter of the weight"
    first, second = rows[:120], rows[120:240]
    assert set(asked(both, first).values()) == {1}
    assert len({draw.seed for draw in second}) == len(second)
    assert [draw.seed for draw in second] != [draw.seed for draw in first][: len(second)], "shuffled anew"
    assert {draw.level for draw in rows} == {0}, "no curriculum invents levels for a file without"
    assert draws.progress()["Prompts/prompts"] == 0


def test_epochs_are_resumed_and_recorded_draws_are_skipped() -> None:
    both = mixture(prompts(held_out=0.5), MATH)

    def opened() -> Any:
        return open_task_source(both, AdaptiveCurriculum(), seed=2)

    rng, whole = random.Random(3), opened()
    told = [whole.draw(rng) for _ in range(200)]
    rng, first, second, third = random.Random(3), opened(), opened(), opened()
    parts = [first.draw(rng) for _ in range(70)]
    second.load_state_dict(first.state_dict())
    at_seventy = rng.getstate()
    assert parts + [second.draw(rng) for _ in range(130)] == told
    for draw in parts:  # as after a crash, from what was noted
        third.skip(draw)
    rng.setstate(at_seventy)
    assert parts + [third.draw(rng) for _ in range(130)] == told


def test_a_file_for_judging_alone_is_not_trained_on() -> None:
    with pytest.raises(ConfigError, match="'prompts' has nothing to train on"):
        open_task_source(mixture(prompts(held_out=1)), FixedCurriculum(), seed=0)


def attempt(task: Task, success: float, number: int, group: str) -> Trajectory:
    return Trajectory(
        id=f"a{number}", group=group, task=task, source=Source.EVALUATION, end=End.TERMINATED, turns=(),
        reward=Reward(success, {}, success),
    )  # fmt: skip


def test_attempts_at_one_row_count_as_one_however_they_are_grouped() -> None:
    """Ten rows, each attempted ten times with the same outcome, say no more than ten attempts."""

    def report(rows: int, times: int) -> Any:
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
