"""The benchmarks of learning from logs run, whole, on little work."""

import json

import pytest
from typer.testing import CliRunner

from loomrl.experiments.bench.logs.bandit import QUICK, measure
from loomrl.experiments.cli import app


def test_estimates_are_measured_against_the_known_value() -> None:
    found = measure(QUICK)
    for way in ("sampled_100", "greedy_100"):
        assert 0 < found[way]["value"] < 1
        assert found[way]["effective"] < 100
        for name in ("ips", "snips", "dr"):
            assert 0.5 <= found[way][name]["coverage"] <= 1
            assert 0 < found[way][name]["error"] < found[way][name]["width"]


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_benchmark_of_offline_control_runs() -> None:
    done = CliRunner().invoke(app, ["bench", "offline", "--quick", "--json"])
    assert done.exit_code == 0, done.output
    (seed,) = json.loads(done.stdout)["seeds"]
    assert {"bc", "iql", "iql_shuffled", "online_worst_share", "naive_worst_share"} <= seed.keys()
