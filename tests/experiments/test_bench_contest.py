"""Benchmarks of experience replay and of losses, whole on little work; their arithmetic; and a control."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loomrl.algorithms.language import lesson as language
from loomrl.experiments.bench.contest import EXPERIMENT, QUICK, figures, losses, replay
from loomrl.experiments.cli import app
from loomrl.experiments.shipped import resolve
from loomrl.experiments.train import train
from tests.algorithms.language_support import shuffled


def run(success: list[float], step: int, held_out: float, share: float = 0.0) -> dict[str, Any]:
    tokens = [step * (at + 1) for at in range(len(success))]
    return {"held_out": held_out, "success": success, "tokens": tokens, "learn_s": 1.0, "share": share, "oldest": 4.0}


def test_contenders_are_compared_at_the_tokens_that_fresh_attempts_had() -> None:
    fresh = run([0.0, 0.2, 0.4, 0.6], 100, 0.6)
    double = run([0.0, 0.9, 1.0, 1.0], 200, 1.0)
    told = figures({"fresh": [fresh], "replay": [run([0.0, 0.7, 0.7, 0.7], 100, 0.7, share=0.4)], "double": [double]})
    assert told["fresh"]["success_at_budget"] == pytest.approx(0.4)
    assert told["double"]["success_at_budget"] == pytest.approx(0.45)
    assert told["replay"]["mean_success"] == pytest.approx(2.1 / 4)
    assert told["double"]["mean_success"] == pytest.approx(0.45)
    assert (told["fresh"]["tokens_to_level"], told["double"]["tokens_to_level"]) == (None, 800)
    assert told["replay"]["tokens_to_level"] == 400
    assert told["replay"]["replayed_share"] == 0.4
    assert "replayed_share" not in told["fresh"]


@pytest.mark.parametrize("contest", [replay, losses])
def test_every_contender_is_an_experiment(contest: Any) -> None:
    for changes in contest(QUICK).values():
        resolve([EXPERIMENT]).override(changes)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.parametrize("contest", [replay, losses])
def test_quick_benchmark_prints_every_figure(contest: Any) -> None:
    done = CliRunner().invoke(app, ["bench", contest.__name__, "--quick", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout.splitlines()[-1])
    assert {*told} == {*contest(QUICK), "level", "all_runs"}
    runs = told["all_runs"]
    assert all(len(one["success"]) == QUICK.updates for each in runs.values() for one in each)
    assert all(told[name]["tokens"] > 0 for name in runs)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
def test_shuffled_rewards_do_not_improve_the_demo_with_replay(
    tmp_path: Path, warm: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language, "samples_of", shuffled(language.samples_of))
    places = {
        "store_url": f"sqlite:///{tmp_path}/loom.db",
        "artifact_url": str(tmp_path / "artifacts"),
        "train.folder": str(tmp_path / "runs"),
        "rollout.groups_per_update": 8,
        "rollout.replay": {"groups": 8},
        "train.updates": 30,
        "train.checkpoint_every": 30,
    }
    result = train(resolve(["language/math_tiny_grpo"]).override({**places, **warm}), run="r")
    print(result.before, result.after)
    assert result.after["sampled"] <= result.before["sampled"] + 0.05
    assert result.after["greedy"] <= result.before["greedy"] + 0.05
