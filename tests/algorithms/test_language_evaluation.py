"""Evaluations on the way of a language run: on held-out tasks, for the choice of the best and the end, and harmless."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loomrl.algorithms.language.evaluations import Evaluations
from loomrl.errors import ConfigError
from loomrl.telemetry.metric import Metric
from loomrl.types import Trajectory
from tests.algorithms.language_support import RAY, build, experiment, weights

pytestmark = RAY
EVERY_TWO = {"evaluation.every": 2, "train.updates": 5, "train.checkpoint_every": 5}


def learn(algo: Any, updates: int | None = None) -> list[dict[str, float]]:
    """The metrics of these updates, or of all that are left, without times."""
    told: list[dict[str, float]] = []
    algo.listen = lambda done, metrics: told.append(
        {str(name): value for name, value in metrics.items() if not name.startswith(("time", "throughput"))}
    )
    while algo.stopped is None and (updates is None or len(told) < updates):
        algo.train()
    return told


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return all(np.array_equal(left[name], right[name]) for name in left)


def test_evaluations_on_the_way_change_nothing_and_resume_bit_for_bit(tmp_path: Path) -> None:
    plain, whole = (
        build(tmp_path / name, "ppo", **changes) for name, changes in (("a", {"train.updates": 5}), ("b", EVERY_TWO))
    )
    undisturbed = learn(plain)
    judged = learn(whole)
    assert [Metric.EVALUATED in row for row in judged] == [False, True, False, True, True], "every other, and the last"
    assert 0 < judged[1][Metric.EVALUATED.of("Ascii/polite")] < 1
    told = [{name: value for name, value in row.items() if not name.startswith("evaluation/")} for row in judged]
    assert told == undisturbed
    assert same(weights(plain), weights(whole))
    plain.stop()

    parts = build(tmp_path / "c", "ppo", **EVERY_TWO)
    first = learn(parts, 3)
    parts.stop()
    again = build(tmp_path / "c", "ppo", **EVERY_TWO)
    rest = learn(again)
    assert [*first[: 5 - len(rest)], *rest] == judged
    assert same(weights(again), weights(whole))
    assert again.kept == whole.kept


@pytest.fixture
def judged_as(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes evaluations say these successes, one after the other."""
    judge = Evaluations.judge

    def given(*successes: float) -> None:
        left = iter(successes)

        def told(self: Evaluations, version: int, stopper: Any) -> dict[str, float]:
            judge(self, version, type(stopper)(stopper.rules))
            self._success = (version, success := next(left))
            stopper.judge(success)
            return {Metric.EVALUATED: success}

        monkeypatch.setattr(Evaluations, "judge", told)

    return given


def test_the_best_is_the_best_on_held_out_tasks_and_has_a_checkpoint(tmp_path: Path, judged_as: Any) -> None:
    judged_as(0.1, 0.6, 0.3, 0.5)
    algo = build(tmp_path, **EVERY_TWO)
    learn(algo)
    assert algo.kept == {"best": 2, "last": 5}
    assert {number for number, _ in algo._ledger.checkpoints.stored()} == {0, 2, 5}


def test_without_any_success_no_version_is_the_best(tmp_path: Path, judged_as: Any) -> None:
    judged_as(0.0, 0.0, 0.0, 0.0)
    algo = build(tmp_path, **EVERY_TWO)
    learn(algo)
    assert algo.kept == {"last": 5}
    assert {number for number, _ in algo._ledger.checkpoints.stored()} == {0, 5}


def test_a_run_stops_by_its_success_on_held_out_tasks(tmp_path: Path, judged_as: Any) -> None:
    judged_as(0.1, 0.7)
    algo = build(tmp_path, **EVERY_TWO, **{"train.stop": {"by": "evaluation", "target": 0.7}})
    assert len(learn(algo)) == 2
    assert algo.stopped == "target reached: success 0.700 on held-out tasks, asked for 0.7"


def test_a_version_is_evaluated_once_in_each_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[str] = []
    algo = build(tmp_path, **EVERY_TWO)
    trial = algo.trial

    def counted(name: str, *settings: Any) -> list[Trajectory]:
        played.append(name)
        return trial(name, *settings)

    monkeypatch.setattr(algo, "trial", counted)
    learn(algo, 2)
    for _ in range(2):
        assert len(algo.evaluations.attempts(2, "greedy")) == len(algo.evaluations.attempts(2, "sampled")) == 32
    assert played == ["greedy-0", "greedy-2", "sampled-2"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"train.stop": {"by": "evaluation", "target": 0.5}}, "set evaluation.every"),
        ({"evaluation.every": 2, "train.stop.by": "evaluation"}, "set one of train.stop.target"),
        (
            {"evaluation.every": 2, "train.stop": {"by": "evaluation", "target": 0.5, "window": 3}},
            "window=3 has no effect",
        ),
        ({"evaluation.way": "sampled"}, "without evaluation.every"),
        (
            {"evaluation.every": 3, "rollout.publish_every": 2, "hub.max_staleness": 1},
            "evaluation.every=3 is not a multiple of rollout.publish_every=2",
        ),
    ],
)
def test_settings_that_would_change_nothing_or_too_much_are_refused(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        experiment(tmp_path, **changes)
