"""Rollouts that go on while the policy is trained: they overlap, keep their promise, and survive dead runners."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from loomrl.errors import ConfigError
from loomrl.hub import Selection
from loomrl.telemetry.metric import PHASES, Metric
from tests.algorithms.language_support import ENVIRONMENTS, QUIET, build, experiment, stored, train

pytestmark = QUIET
with_ray = [pytest.mark.system, pytest.mark.usefixtures("ray_cluster")]

UNEVEN = f"{ENVIRONMENTS}UnevenEnvironment"
ONCE = f"{ENVIRONMENTS}OnceEnvironment"


@pytest.fixture
def begin(tmp_path: Path) -> Callable[..., Any]:
    """Builds algorithms whose rollouts overlap with learning."""

    def one(*, n: int = 1, **changes: Any) -> Any:
        return build(tmp_path, "ppo", **{"hub.max_staleness": n, "rollout.runners": 1, **changes})

    return one


def trained(folder: Path) -> list[str]:
    return [trajectory.id for trajectory in stored(folder, Selection(acked=True))]


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"hub.max_staleness": 1}, "set rollout.runners=1 or more, or hub.max_staleness=0"),
        ({"hub.max_staleness": 2, "rollout.publish_every": 2}, "or hub.max_staleness=1 to take turns"),
        ({"hub.max_staleness": 1, "rollout.runners": 1, "algorithm.importance_cap": None}, "set it to 2.0"),
    ],
)
def test_what_cannot_overlap_is_refused_with_the_remedy(tmp_path: Path, changes: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ConfigError, match=remedy):
        experiment(tmp_path, **changes)
    assert not experiment(tmp_path, **{"hub.max_staleness": 1, "rollout.publish_every": 2}).asynchronous


@pytest.mark.slow
class TestRollouts:
    pytestmark = with_ray

    def test_policy_learns_from_tokens_of_older_ones(self, tmp_path: Path, begin: Callable[..., Any]) -> None:
        algo = begin(n=2, **{"train.updates": 14})
        history = train(algo)
        assert max(line[Metric.STALENESS_MAX] for line in history) == 2
        success = [line[Metric.SUCCESS] for line in history]
        assert np.mean(success[-2:]) > np.mean(success[:2]) + 0.12
        assert all(sum(line[phase] for phase in PHASES) > 0 for line in history)

    def test_slow_learner_does_not_hold_up_rollouts_and_attempts_go_on_across_an_update(
        self, tmp_path: Path, begin: Callable[..., Any]
    ) -> None:
        changes = {"environments": [{"id": UNEVEN, "families": ["slow"]}], "rollout.concurrency": 24}
        algo = begin(n=2, **changes, **{"train.updates": 4})
        learn = algo._learn
        spans = []

        def slowly(groups: Any) -> Any:
            begun = time.time()
            time.sleep(1.8)  # longer than any attempt, shorter than a batch of them
            metrics = learn(groups)
            spans.append((begun, time.time()))
            return metrics

        algo._learn = slowly
        algo.begin()
        history = train(algo)
        attempts = stored(tmp_path)
        assert all(any(begun < t.finished_at < ended for t in attempts) for begun, ended in spans[:3])
        assert any(line[Metric.OVERLAP] > 0 for line in history)
        both = [t for t in attempts if t.first_version < t.last_version]
        assert {t.id for t in both} & set(trained(tmp_path))
        tokens = both[0].tokens
        assert tokens is not None
        versions = tokens.versions_T[tokens.mask_T]
        assert (np.diff(versions) >= 0).all()
        assert set(versions) == {both[0].first_version, both[0].last_version}
        mixed = [line for line in history if 0 < line[Metric.STALENESS_MEAN] < line[Metric.STALENESS_MAX]]
        assert mixed

    def test_engines_pause_while_a_learner_of_the_same_memory_steps_and_attempts_go_on_across_it(
        self, tmp_path: Path, begin: Callable[..., Any]
    ) -> None:
        changes = {"environments": [{"id": UNEVEN, "families": ["slow"]}], "rollout.concurrency": 24}
        algo = begin(n=2, **changes, **{"train.updates": 4, "placement.colocated": True})
        step = algo._update
        sampled: list[tuple[int, int]] = []

        def watched(*args: Any) -> Any:
            before = algo._runners.request_work()()[0]
            metrics = step(*args)
            time.sleep(0.3)
            sampled.append((before, algo._runners.request_work()()[0]))
            return metrics

        algo._update = watched
        history = train(algo)
        assert sampled[0][0] < sampled[-1][0]
        assert all(before == after for before, after in sampled)
        assert all(line[Metric.OVERLAP] < 0.1 and 0 <= line[Metric.IDLE] < 1 for line in history)
        assert max(line[Metric.STALENESS_MAX] for line in history) > 0
        assert any(t.first_version < t.last_version for t in stored(tmp_path))
        assert not any(line[Metric.FAILURES] for line in history)

    def test_runner_that_dies_in_flight_costs_no_attempt(self, tmp_path: Path, begin: Callable[..., Any]) -> None:
        changes = {"environments": [{"id": UNEVEN, "families": ["slow"]}], "rollout.runners": 2, "train.updates": 4}
        algo = begin(n=3, **changes, **{"rollout.concurrency": 32})
        learn = algo._learn

        def slowly(groups: Any) -> Any:
            time.sleep(0.5)
            return learn(groups)

        algo._learn = slowly
        train(algo, 1)
        taken = set(algo.source.players._desks[1].plans)
        ray.kill(algo.env_runner_group._worker_manager.actors()[1], no_restart=False)
        history = train(algo)
        assert len(history) == 3
        ids = trained(tmp_path)
        assert len(ids) == len(set(ids)) == 4 * 64
        assert taken & set(ids)
        assert {t.failure.kind for t in stored(tmp_path) if t.failure} <= {"Late"}

    def test_attempt_that_freezes_its_runner_fails_alone(self, tmp_path: Path, begin: Callable[..., Any]) -> None:
        changes = {
            "environments": [{"id": ONCE, "settings": {"marker": str(tmp_path / "marker")}}],
            "rollout.turn_timeout_s": 2.0,
            "train.updates": 3,
        }
        history = train(begin(n=3, **changes))
        assert sum(line[Metric.FAILURES] for line in history) == 1
        (failed,) = [t for t in stored(tmp_path) if t.failure is not None]
        assert failed.failure is not None
        assert (failed.failure.boundary, failed.failure.kind) == ("environment", "Hang")
        assert "language_envs.py" in failed.failure.message
        assert len(set(trained(tmp_path))) == 3 * 64

    def test_evaluation_plays_beside_the_attempts_that_are_under_way(
        self, tmp_path: Path, begin: Callable[..., Any]
    ) -> None:
        algo = begin(n=2, **{"train.updates": 4})
        train(algo, 2)
        assert 0 < algo.evaluate()["env_runners"]["success"] < 1
        train(algo)
        assert len(set(trained(tmp_path))) == 4 * 64

    def test_killed_run_makes_its_updates_again_and_loses_no_prompt(
        self, tmp_path: Path, begin: Callable[..., Any]
    ) -> None:
        changes = {
            "environments": [{"id": UNEVEN, "families": ["quick"]}],
            "hub.max_staleness": 2,
            "rollout.runners": 1,
            "train.checkpoint_every": 3,
            "train.updates": 8,
        }
        settings = experiment(tmp_path, "ppo", **changes)
        (tmp_path / "e.yaml").write_text(json.dumps(settings.model_dump(mode="json")))
        metrics = tmp_path / "runs" / "r" / "metrics.jsonl"
        told = killed_after(5, ["train", str(tmp_path / "e.yaml"), "--run", "r"], metrics)
        algo = begin(n=2, **changes)
        assert algo.done == 3
        history = train(algo)
        assert [line[Metric.SUCCESS] for line in history[:2]] == [line[Metric.SUCCESS] for line in told[3:5]]
        assert [line[Metric.POLICY_LOSS] for line in history[:2]] == [line[Metric.POLICY_LOSS] for line in told[3:5]]
        ids = trained(tmp_path)
        assert len(ids) == len(set(ids)) == 8 * 64
        everything = [t.id for t in stored(tmp_path)]
        assert len(everything) == len(set(everything)) == 8 * 64
        assert {id.split("/")[1] for id in ids} == {str(number) for number in range(64)}


def killed_after(updates: int, words: list[str], metrics: Path) -> list[dict[str, float]]:
    """SIGKILL a training process a moment after so many updates; the metrics that it left."""
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([sys.executable, "-m", "loomrl", *words], stderr=quiet, stdout=quiet, env=environment)
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < updates:
        assert process.poll() is None
        time.sleep(0.002)
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return [json.loads(line) for line in metrics.read_text().splitlines()]
