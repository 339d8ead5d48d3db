"""Training with vLLM's engines: the same line, and an engine that is killed on the way costs nothing but time."""

import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from loomrl.telemetry.metric import Metric
from tests.algorithms.language_support import build
from tests.inference.sample_models import processes
from tests.needs import need

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]
VLLM = {
    "engine.kind": "vllm",
    "algorithm.model.build": {"hidden_size": 64, "intermediate_size": 64, "layers": 1, "heads": 2, "vocabulary": 270},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="takes turns"),
        pytest.param({"rollout.runners": 2}, id="remote runners"),
        pytest.param({"rollout.runners": 1, "hub.max_staleness": 2}, id="overlaps"),
    ],
)
def test_it_learns_and_an_engine_that_is_killed_on_the_way_is_replaced(tmp_path: Path, changes: dict[str, Any]) -> None:
    need("vLLM")
    algo = build(tmp_path, **VLLM, **{"train.updates": 8, "rollout.turn_timeout_s": 300}, **changes)
    seen: list[dict[str, float]] = []
    algo.listen = lambda done, metrics: seen.append(dict(metrics))
    try:
        for _ in range(3):
            algo.train()
        _, before = processes(algo._runners._fleet)[0]
        threading.Timer(0.05, before.send_signal, [signal.SIGKILL]).start()
        while algo.stopped is None:
            algo.train()
        _, after = processes(algo._runners._fleet)[0]
    finally:
        algo.stop()
    assert after.pid != before.pid
    assert len(seen) == 8
    assert all(metrics[Metric.FAILURES] == 0 for metrics in seen)
    assert max(metrics[Metric.STALENESS_MAX] for metrics in seen) <= changes.get("hub.max_staleness", 0)
    fresh = [metrics[Metric.POLICY_DRIFT] for metrics in seen if metrics[Metric.STALENESS_MEAN] == 0]
    assert fresh
    assert max(fresh) < 1e-4
    assert min(metrics[Metric.ENGINE_TOKENS_PER_S] for metrics in seen) > 0
    assert seen[-1][Metric.REWARD_TOTAL] > seen[0][Metric.REWARD_TOTAL] + 0.1
