"""Remote learners are one in this process: the same losses, the same parameters on every rank, any number resumes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loomrl.algorithms.language.algorithm import METRICS
from loomrl.telemetry.metric import Metric
from tests.algorithms.language_support import RAY, build, weights

pytestmark = RAY

LOSSES = (Metric.POLICY_LOSS, Metric.VALUE_LOSS, Metric.POLICY_ENTROPY, Metric.GRADIENT_NORM, Metric.POLICY_DRIFT)


def parameters(algo: Any) -> list[dict[str, torch.Tensor]]:
    """The parameters of every learner."""
    results = algo.learner_group.foreach_learner(
        lambda learner: {name: p.detach().cpu().clone() for name, p in learner._own.named_parameters()}
    )
    return [result.get() for result in results]


@pytest.mark.parametrize(
    ("runners", "learners"), [pytest.param(n, m, marks=pytest.mark.slow) for n, m in ((1, 1), (1, 2))] + [(0, 2)]
)
def test_remote_runner_and_learners_have_the_loss_of_one_process_and_identical_parameters(
    tmp_path: Path, runners: int, learners: int
) -> None:
    changes = {"algorithm.optimizer.learning_rate": 1e-3}
    one = build(tmp_path / "one", "ppo", **changes)
    remote = {"rollout.runners": runners, "algorithm.learners.count": learners}
    apart = build(tmp_path / "apart", "ppo", **changes, **remote)
    first = one.train()[METRICS]
    same = apart.train()[METRICS]
    for name in LOSSES:
        assert same[name] == pytest.approx(first[name], abs=1e-5), name
    apart.train()
    left, *others = parameters(apart)
    assert len(others) == learners - 1
    for right in others:
        assert left.keys() == right.keys()
        assert all(torch.equal(left[name], right[name]) for name in left)
    assert any(not torch.equal(left[name], tensor) for name, tensor in parameters(one)[0].items())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["grpo", "dpo"])
def test_one_remote_learner_resumes_as_if_it_never_stopped(tmp_path: Path, kind: str) -> None:
    changes = {"algorithm.learners.count": 1, "train.updates": 4}
    whole, parts = (build(tmp_path / name, kind, **changes) for name in ("whole", "parts"))
    for _ in range(4):
        whole.train()
    for _ in range(2):
        parts.train()
    parts.stop()
    again = build(tmp_path / "parts", kind, **changes)
    while again.stopped is None:
        again.train()
    theirs = weights(whole)
    ours = weights(again)
    assert all(np.array_equal(theirs[name], ours[name]) for name in theirs)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "then"), [(0, 1), (1, 0), (1, 2), (2, 1)])
def test_any_number_of_learners_goes_on_where_another_stopped(tmp_path: Path, first: int, then: int) -> None:
    algo = build(tmp_path, **{"algorithm.learners.count": first, "algorithm.kl.coefficient": 0.1})
    for _ in range(2):
        algo.train()
    learnt = parameters(algo)[0]
    algo.save_to_path(str(tmp_path / "checkpoint"))
    algo.stop()
    again = build(tmp_path, run="s", **{"algorithm.learners.count": then, "algorithm.kl.coefficient": 0.1})
    again.take_over(str(tmp_path / "checkpoint"))
    for each in parameters(again):
        assert all(torch.equal(learnt[name], each[name]) for name in learnt)
    again.train()
    assert any(not torch.equal(learnt[name], tensor) for name, tensor in parameters(again)[0].items())
