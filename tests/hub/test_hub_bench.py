"""The benchmark runs, and its figures are what `loomrl bench hub` promises."""

from dataclasses import replace

import pytest

from loomrl.experiments.bench.hub import QUICK, measure

pytestmark = pytest.mark.system


@pytest.mark.slow
def test_quick_benchmark_gives_every_figure() -> None:
    figures = measure(replace(QUICK, groups=2, json_groups=2, stored=(40, 100), leases=2))
    rates = ("in_process_tokens_per_s", "http_tokens_per_s", "json_http_tokens_per_s")
    assert all(figures[name] > 0 for name in (*rates, "http_vs_json_ratio", "lease_cost_growth"))
