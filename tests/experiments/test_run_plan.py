"""What a training needs and can show, before it begins."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loomrl.config import Experiment
from loomrl.errors import ConfigError
from loomrl.experiments import plan
from loomrl.experiments.plan import plan_run, smallest_improvement
from loomrl.experiments.planned import find_plan
from loomrl.experiments.probe import Probed
from loomrl.experiments.shipped import resolve_any
from loomrl.run.record import begin_run
from loomrl.store import open_store
from loomrl.store.runs import RunStatus, finish_run
from tests.algorithms.language_support import experiment
from tests.command_line import typed


def sized(folder: Path) -> Experiment:
    build = {"hidden_size": 1024, "intermediate_size": 4096, "layers": 16, "heads": 16}
    return experiment(folder, **{f"algorithm.model.build.{name}": size for name, size in build.items()})


def test_a_plan_says_what_fits_and_what_would(tmp_path: Path) -> None:
    roomy = plan_run(sized(tmp_path), memory_gb=100)
    assert (roomy.refusal, roomy.micro_batch_tokens) == (None, 16_384)
    assert roomy.needed.value == pytest.approx(sum(roomy.memory.values()))
    tight = plan_run(sized(tmp_path), memory_gb=roomy.needed.value / 2)
    assert tight.refusal is None
    assert tight.micro_batch_tokens is not None
    assert tight.micro_batch_tokens < 16_384
    none = plan_run(sized(tmp_path), memory_gb=5)
    assert none.micro_batch_tokens is None
    assert none.refusal is not None
    assert "5.0 GB of memory are free" in none.refusal
    assert "algorithm.kl.watch=false" in none.refusal


def test_the_smallest_improvement_is_found_in_as_many_cases_as_it_says() -> None:
    rng = np.random.default_rng(0)
    tasks = 200
    gain = smallest_improvement(tasks, confidence=0.95)
    before, after = (rng.binomial(tasks, 0.5 + half, 4000) / tasks for half in (-gain / 2, gain / 2))
    error = np.sqrt((before * (1 - before) + after * (1 - after)) / tasks)
    assert np.mean(after - before > 1.96 * error) == pytest.approx(0.8, abs=0.03)


def test_what_cannot_be_planned_is_said() -> None:
    with pytest.raises(ConfigError, match=r"--plan: .* is of kind serving, which is not trained"):
        plan_run(resolve_any(["serving/language_tiny"]))
    with pytest.raises(ConfigError, match="--memory=3: the memory of control/ppo is measured by a probe"):
        plan_run(resolve_any(["control/cartpole"]), memory_gb=3)
    with pytest.raises(ConfigError, match="--memory has no effect without --plan"):
        typed("show", "language/math_tiny", "--memory", "3")


def probed(**changes: Any) -> Probed:
    """Of an update with half of the groups."""
    told: dict[str, Any] = {
        **{"start_s": 8.0, "begin_s": 1.0, "warm_step_s": 0.1, "checkpoint_s": 0.5, "rollout_s": 2.0, "update_s": 3.0},
        **{"judged": ((4, 1.0), (20, 2.0)), "loss_s": 0.0, "step": 1.0, "limit": 6, "deviation": None},
        **{"memory": 2e9, "tokens": 1e3, "checkpoint_disk": 1e8, "update_disk": 1e6},
    }
    return Probed(**told | changes)


def measured(monkeypatch: pytest.MonkeyPatch, found: Probed, *, share: float = 0.5) -> list[Experiment]:
    """The experiments of which the beginning is measured, as found, from here on."""
    asked: list[Experiment] = []
    monkeypatch.setattr(plan, "probe", lambda experiment: asked.append(experiment) or found)
    monkeypatch.setattr(plan, "FLOPS", plan.FLOPS * share)
    return asked


def test_an_evaluation_is_longer_by_what_each_further_attempt_took() -> None:
    assert [probed().judge_s(count) for count in (20, 100)] == [2.0, pytest.approx(2 + 80 / 16)]
    assert probed(judged=()).judge_s(100) == 0


def test_seconds_are_those_of_every_part_of_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = {"evaluation.every": 2, "algorithm.warm_start.steps": 100}
    measured(monkeypatch, probed())
    monkeypatch.setattr(plan, "_smaller", lambda experiment, algorithm, shape: (experiment, 0.5))
    found = plan_run(experiment(tmp_path, **given))
    assert found.updates == 6
    rollout_s = 2.0 * probed().judge_s(64) / probed().judge_s(32)
    once = probed().judge_s(32)
    assert found.seconds == {
        "start": 8.0,
        "beginning": pytest.approx(1 + 100 * 0.1),
        "updates": pytest.approx(6 * (rollout_s + 3.0 / 0.5)),
        "evaluations": pytest.approx((2 * 2 + 2) * once),
        "checkpoints": pytest.approx((2 + 2) * 0.5),
    }
    assert found.run is not None
    assert found.run.value == pytest.approx(sum(found.seconds.values()))
    assert found.run.low < found.run.value < found.run.high
    assert found.needed.value == pytest.approx(2.0, abs=0.1), "a pass of a whole update is larger"
    assert found.needed.value > 2


def test_a_probe_makes_a_part_of_an_update_for_which_it_has_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = measured(monkeypatch, probed(), share=1)
    plan_run(experiment(tmp_path))
    measured(monkeypatch, probed(), share=1e-9)
    monkeypatch.setattr(plan, "probe", lambda experiment: asked.append(experiment) or probed())
    plan_run(experiment(tmp_path))
    assert [each.rollout.groups_per_update for each in asked] == [8, 1]


def test_the_next_plan_is_corrected_by_how_far_the_latest_runs_of_its_kind_were_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measured(monkeypatch, probed(), share=1)
    wanted = experiment(tmp_path)
    first = plan_run(wanted)
    assert first.run is not None
    assert first.corrected_by == 0
    with open_store(wanted.store_url) as db:
        known = find_plan(db, wanted.override({"seed": 9}))
        assert known is not None
        assert find_plan(db, wanted.override({"train.updates": 7})) is None
        for number, factor in enumerate((1.5, 2.0, 1.0)):
            took = {"seconds": factor * known["seconds"], "memory_gb": 1.1 * known["memory_gb"]}
            begin_run(db, wanted, {}, id=f"r{number}", kind="train")
            result = {"planned": known | {"measured": took}}
            finish_run(db, f"r{number}", status=RunStatus.FINISHED, finished_at=number, result=result)
    second = plan_run(wanted)
    assert second.run is not None
    assert second.corrected_by == 3
    assert second.run.value == pytest.approx(1.5 * first.run.value)
    assert (second.run.low, second.run.high) == pytest.approx((first.run.value, 2 * first.run.value))
    assert second.needed.value == pytest.approx(1.1 * first.needed.value)
    other = plan_run(experiment(tmp_path, "rloo"))
    assert other.corrected_by == 0
    assert "(+0%) and 2.20 GB (+10%)" in typed("runs", "show", "r2", "--store", wanted.store_url)
