"""The control benchmark runs, whole, on little work."""

import json

import pytest
from typer.testing import CliRunner

from loomrl.experiments.bench.control.measure import Size, measure
from loomrl.experiments.cli import app


@pytest.mark.system
@pytest.mark.slow
def test_equal_work_is_told_as_ratios_with_their_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomrl.experiments.bench.control.measure.MATCHES", measure.__globals__["MATCHES"][1:2])
    figures = measure(Size(rounds=2, steps={"ppo": 2048}))
    low, high = figures["ppo_vs_rllib_range"]
    assert 1 < low <= figures["ppo_vs_rllib"] <= high
    assert figures["ours_ppo_8"]["steps_per_cpu_s"] > figures["rllib_ppo_8"]["steps_per_cpu_s"]
    assert figures["ours_ppo_8"]["peak_mb"] > 100


@pytest.mark.slow
def test_the_command_prints_the_figures_as_json() -> None:
    done = CliRunner().invoke(app, ["bench", "control", "--quick", "--json"])
    assert done.exit_code == 0, done.output
    assert {"ppo_vs_rllib", "ppo32_vs_rllib", "sac_vs_rllib"} <= set(json.loads(done.stdout.splitlines()[-1]))
