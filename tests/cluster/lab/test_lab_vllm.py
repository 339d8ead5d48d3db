"""Learner, vLLM's engine and rollouts, each on a host of its own: weights go to the engine's host by Nexus."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import metrics_file, read_metrics
from tests.cluster.lab.faults import assert_finished
from tests.cluster.lab.hosts import Hosts, hosts
from tests.cluster.slow_run import small
from tests.needs import needs

pytestmark = [
    pytest.mark.lab,
    needs("a lab"),
    needs("PostgreSQL"),
    needs("vLLM"),
    pytest.mark.timeout(900),
]
VLLM: dict[str, Any] = {
    "engine.kind": "vllm",
    "algorithm.model.build": {"hidden_size": 64, "intermediate_size": 64, "layers": 1, "heads": 2, "vocabulary": 270},
    "rollout.runners": 1,
    "rollout.turn_timeout_s": 300,
    "algorithm.learners.count": 1,
    "placement.learner.resources": {"learner": 1},
    "placement.engine.resources": {"engine": 1},
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("site"), "head", "one", "two", "three") as found:
        found.start_ray("head", head=True, cpus=1)
        found.start_ray("one", learner=1)
        found.start_ray("two", engine=1, env={"VLLM_CPU_KVCACHE_SPACE": "1"})
        found.start_ray("three", rollout=1)
        yield found


def test_an_engine_of_vllm_on_a_host_of_its_own_samples_with_what_was_learnt_elsewhere(site: Hosts) -> None:
    wanted = site.settled(small(Path("/tmp/shared"), 3, **VLLM))
    process = site.train("head", wanted, "vllm")
    assert site.ended(process, "vllm") == 0, site.log("vllm")[-5000:]
    assert_finished(site, wanted, "vllm")
    records = wanted.train.model_copy(update={"folder": str(site.runs)})
    seen = read_metrics(metrics_file(records, "vllm"))
    assert len(seen) == 3
    assert max(line[Metric.POLICY_DRIFT] for line in seen) < 1e-4
