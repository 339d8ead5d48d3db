"""Several learners are one: the same losses, and the same parameters on every rank."""

from pathlib import Path
from typing import Any

import pytest
import torch

from algorithms.language.algorithm import METRICS
from loomrl.telemetry.metric import Metric
from tests.algorithms.language_support import build

pytestmark = [
    pytest.mark.system,
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]

LOSSES = (Metric.POLICY_LOSS, Metric.VALUE_LOSS, Metric.POLICY_ENTROPY, Metric.GRADIENT_NORM, Metric.POLICY_DRIFT)


def parameters(algo: Any) -> list[dict[str, torch.Tensor]]:
    """Of every learner."""
    results = algo.learner_group.foreach_learner(
        lambda learner: {name: p.detach().cpu().clone() for name, p in learner._own.named_parameters()}
    )
    return [result.get() for result in results]


def test_two_learners_have_the_loss_of_one_and_identical_parameters(tmp_path: Path) -> None:
    changes = {"algorithm.optimizer.learning_rate": 1e-3}
    one = build(tmp_path / "one", "ppo", **changes)
    two = build(tmp_path / "two", "ppo", **changes, **{"algorithm.learners.count": 2})
    first, same = one.train()[METRICS], two.train()[METRICS]
    for name in LOSSES:
        assert same[name] == pytest.approx(first[name], abs=1e-5), name
    two.train()
    left, right = parameters(two)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert any(not torch.equal(left[name], tensor) for name, tensor in parameters(one)[0].items())
    for algo in (one, two):
        algo.stop()
