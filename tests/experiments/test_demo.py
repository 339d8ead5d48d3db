"""The demo keeps its word: held-out success before and after, in minutes, and only because of the rewards.

One of them is the whole demo. The others begin where its warm start ends.
"""

import json
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from loomrl.algorithms.language import lesson as language
from loomrl.experiments.shipped import resolve
from loomrl.experiments.train import TrainResult, train
from loomrl.telemetry.metric import Metric
from tests.algorithms.language_support import QUIET, shuffled
from tests.experiments.runs import places
from tests.inference.sample_models import core_below

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    QUIET,
]


Warm = dict[str, object]


def run(folder: Path, name: str, **changes: Any) -> TrainResult:
    return train(resolve([f"language/{name}"]).override(places(folder) | changes), run="r")


@pytest.mark.parametrize("name", ["math_tiny", "math_tiny_grpo", "math_tiny_rloo"])
def test_reinforcement_alone_takes_a_tiny_model_to_mastery(tmp_path: Path, name: str, request: Any) -> None:
    begin = {"seed": 2} if name == "math_tiny" else request.getfixturevalue("warm")
    result = run(tmp_path, name, **begin)
    assert result.before["greedy"] <= 0.45
    assert result.before["sampled"] <= 0.30
    assert result.after["greedy"] >= 0.90
    assert result.after["sampled"] >= 0.85
    print(f"{name}: {result.seconds} s")  # the whole demo, of a quiet machine: at most 240


def test_vllm_gets_there_as_well_and_an_engine_that_is_killed_on_the_way_is_replaced(
    tmp_path: Path, warm: Warm
) -> None:
    killed: list[psutil.Process] = []
    threading.Thread(target=kill_an_engine, args=(tmp_path / "runs/r/metrics.jsonl", killed), daemon=True).start()
    result = run(tmp_path, "math_tiny", **warm, **{"engine.kind": "vllm", "engine.count": 2})
    print(f"2 engines, {len(killed)} killed: {result.seconds} s, {dict(result.before)}, {dict(result.after)}")
    assert len(killed) == 1
    assert result.before["greedy"] <= 0.45
    assert result.after["greedy"] >= 0.90
    assert result.after["sampled"] >= 0.85
    lines = (tmp_path / "runs/r/metrics.jsonl").read_text().splitlines()
    assert all(json.loads(line).get(Metric.FAILURES, 0) == 0 for line in lines)


def kill_an_engine(metrics: Path, killed: list[psutil.Process]) -> None:
    """After ten updates."""
    while not metrics.is_file() or metrics.read_text().count("\n") < 10:
        time.sleep(0.2)
    below = psutil.Process().children(recursive=True)
    core = core_below(next(process for process in below if "VllmActor" in " ".join(process.cmdline())))
    core.kill()
    killed.append(core)


def test_one_policy_improves_on_both_of_its_environments(tmp_path: Path) -> None:
    for comparison in run(tmp_path, "math_tiny_multitask").comparisons:
        for family in (
            "Math/calculus.derivative",
            "Math/calculus.integral",
            "ReasoningGym/reasoning_gym.family_relationships",
        ):
            low = comparison.after["by_family"][family]["success"]["low"]
            assert low > comparison.before["by_family"][family]["success"]["high"], (comparison.name, family)


def test_one_small_policy_improves_on_each_of_five_environments_within_a_quarter_of_an_hour(tmp_path: Path) -> None:
    result = run(tmp_path, "pool_tiny")
    (sampled,) = (comparison for comparison in result.comparisons if comparison.name == "sampled")
    assert len(sampled.after["by_environment"]) == 5
    for environment, after in sampled.after["by_environment"].items():
        before = sampled.before["by_environment"][environment]["success"]["mean"]
        print(f"{environment}: {before:.2f} → {after['success']['mean']:.2f}")
        assert after["success"]["low"] > before, environment
    assert result.seconds < 900


WITH_REPLAY = {
    "rollout.groups_per_update": 8,
    "rollout.replay": {"groups": 8},
    "train.updates": 30,
    "train.checkpoint_every": 30,
}


@pytest.mark.parametrize(
    ("name", "changes"),
    [("math_tiny", {}), pytest.param("math_tiny_grpo", WITH_REPLAY, id="replay")],
)
def test_shuffled_rewards_do_not_improve_the_demo(
    tmp_path: Path, warm: Warm, monkeypatch: pytest.MonkeyPatch, name: str, changes: dict[str, Any]
) -> None:
    monkeypatch.setattr(language, "samples_of", shuffled(language.samples_of))
    result = run(tmp_path, name, **changes, **warm)
    print(result.before, result.after)
    assert result.after["sampled"] <= result.before["sampled"] + 0.05
    assert result.after["greedy"] <= result.before["greedy"] + 0.05
