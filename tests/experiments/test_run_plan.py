"""What a training needs and can show, before it begins."""

from pathlib import Path

import numpy as np
import pytest

from loomrl.config import ControlExperiment, Experiment
from loomrl.errors import ConfigError
from loomrl.experiments.plan import plan_run, smallest_improvement
from tests.algorithms.language_support import experiment
from tests.command_line import typed


def sized(folder: Path) -> Experiment:
    build = {"hidden_size": 1024, "intermediate_size": 4096, "layers": 16, "heads": 16}
    return experiment(folder, **{f"algorithm.model.build.{name}": size for name, size in build.items()})


def test_a_plan_says_what_fits_and_what_would(tmp_path: Path) -> None:
    roomy = plan_run(sized(tmp_path), memory_gb=100)
    assert (roomy.refusal, roomy.micro_batch_tokens) == (None, 16_384)
    assert roomy.needed == pytest.approx(sum(roomy.memory.values()))
    tight = plan_run(sized(tmp_path), memory_gb=roomy.needed / 2)
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


def test_what_cannot_be_planned_is_said(tmp_path: Path) -> None:
    control = ControlExperiment.parse({"kind": "control", "name": "c", "environment": {"id": "CartPole-v1"}})
    with pytest.raises(ConfigError, match="--plan: c trains no language policy"):
        plan_run(control)
    with pytest.raises(ConfigError, match="--memory has no effect without --plan"):
        typed("show", "language/math_tiny", "--memory", "3")
