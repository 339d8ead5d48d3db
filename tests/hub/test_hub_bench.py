"""The benchmark runs, and its figures are what `loomrl bench hub` promises."""

import pytest

from loomrl.experiments.bench.hub import QUICK, measure

pytestmark = pytest.mark.system


def test_quick_benchmark_gives_every_figure() -> None:
    figures = measure(QUICK)
    for name in (
        "in_process_tokens_per_s",
        "http_tokens_per_s",
        "json_http_tokens_per_s",
        "http_vs_json_ratio",
        "lease_cost_growth",
    ):
        assert figures[name] > 0
