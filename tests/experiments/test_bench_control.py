"""The control benchmark runs, whole, on little work."""

import pytest

from loomrl.experiments.bench.control.measure import ControlSize, measure


@pytest.mark.system
@pytest.mark.slow
def test_equal_work_is_told_as_ratios_with_their_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomrl.experiments.bench.control.measure.MATCHES", measure.__globals__["MATCHES"][1:2])
    figures = measure(ControlSize(rounds=2, steps={"ppo": 2048}))
    low, high = figures["ppo_vs_rllib_range"]
    assert 1 < low <= figures["ppo_vs_rllib"] <= high
    assert figures["ours_ppo_8"]["steps_per_cpu_s"] > figures["rllib_ppo_8"]["steps_per_cpu_s"]
    assert figures["ours_ppo_8"]["peak_mb"] > 100
