"""Learners that share rows: gloo between threads, each with a model of its own."""

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup, ProcessGroupGloo
from transformers import PreTrainedModel

from loomrl.algorithms.language.batch import TokenBatch, inputs
from loomrl.algorithms.language.flat import blocks_of, variable_of
from loomrl.algorithms.language.layers import recompute_layers
from loomrl.algorithms.language.loss import mean_by_sample
from loomrl.algorithms.language.packing import Packed, Reader, Sample
from loomrl.algorithms.language.score import Scores, score
from loomrl.algorithms.language.sequence import RowGroup, refuse_unshared
from loomrl.config.language import Learners
from loomrl.errors import ConfigError
from tests.algorithms.language_support import LOSSES, RAY, build, train, weights
from tests.algorithms.test_language_flat import attempts, model


def group(store: Any, rank: int, size: int) -> RowGroup:
    """A group whose other members are threads of this process."""
    made = ProcessGroup(store, rank, size)
    gloo = ProcessGroupGloo(store, rank, size, timedelta(seconds=30))
    made._set_default_backend(ProcessGroup.BackendType.GLOO)
    made._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, gloo)
    name = uuid.uuid4().hex
    made._set_group_name(name)
    torch._C._distributed_c10d._register_process_group(name, made)
    return RowGroup(made)


Computed = Callable[[PreTrainedModel, Packed], Scores]


def learnt(lm: PreTrainedModel, samples: list[Sample], read: Reader, computed: Computed) -> tuple[Tensor, Tensor]:
    """Log-probabilities of one row, and the gradient of a loss that compares tokens of a sample."""
    lm.zero_grad()
    batch = TokenBatch.of(samples, (tuple(range(len(samples))),), torch.device("cpu"), read=read)
    logp_K = computed(lm, batch.packed)["logp_K"]
    loss_K = mean_by_sample(logp_K, batch.packed.sample_K).exp() * batch.packed.columns["weight"]
    loss_K.sum().backward()
    gradients = [p.grad.flatten() for p in lm.parameters() if p.grad is not None]
    return logp_K.detach(), torch.cat(gradients)


def together(
    lm: PreTrainedModel,
    samples: list[Sample],
    read: Reader,
    size: int,
    *,
    again: Literal["selective", "full"] | None = None,
) -> list[tuple[Tensor, Tensor]]:
    """The same of every learner of a group."""
    store = dist.HashStore()

    def run(rank: int) -> tuple[Tensor, Tensor]:
        own = deepcopy(lm)
        if again is not None:
            recompute_layers(own, again)
        mine = group(store, rank, size)
        return learnt(own, samples, mine.reader(read), lambda lm, packed: mine.scores(partial(score, lm), packed))

    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(run, range(size)))


@pytest.mark.parametrize(
    ("name", "read", "size", "again"),
    [
        ("llama", blocks_of, 2, None),
        ("llama", variable_of, 2, "selective"),
        ("windows", variable_of, 2, None),
        ("gpt2", blocks_of, 4, "full"),
    ],
)
def test_learners_that_share_a_row_add_up_to_one_that_has_it_alone(
    name: str, read: Reader, size: int, again: Literal["selective", "full"] | None
) -> None:
    samples = attempts([(7, [3, 9, 1]), (0, [4]), (12, [2])])
    logp, gradient = learnt(model(name), samples, read, lambda lm, packed: score(lm, inputs(packed)))
    found = together(model(name), samples, read, size, again=again)
    for own, _ in found:
        torch.testing.assert_close(own, logp, atol=1e-5, rtol=1e-5)
    parts = [part for _, part in found]
    assert all((part - gradient).norm() > 0.1 * gradient.norm() for part in parts)
    assert (sum(parts) - gradient).norm() <= 1e-5 * gradient.norm()


def test_a_learner_without_a_target_of_its_own_takes_part() -> None:
    samples = attempts([(20, [1])])
    logp, gradient = learnt(model("llama"), samples, blocks_of, lambda lm, packed: score(lm, inputs(packed)))
    (first, begun), (second, ended) = together(model("llama"), samples, blocks_of, 2)
    torch.testing.assert_close(first, logp)
    torch.testing.assert_close(second, logp)
    assert begun.norm() > 0
    assert (begun + ended - gradient).norm() <= 1e-5 * gradient.norm()


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"count": 3}, "sequence_parallel=2 needs a multiple of it as count, got 3"),
        ({}, "got 0"),
        ({"count": 2, "attention": "dense"}, "sequence_parallel=2 needs attention=flat"),
        ({"count": 2, "gpus": 1.0}, "sequence_parallel=2 needs attention=flat"),
    ],
)
def test_rows_that_cannot_be_shared_are_refused_with_what_they_need(changes: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ConfigError, match=remedy):
        Learners.parse({"sequence_parallel": 2, **changes})


def test_a_model_whose_rows_cannot_be_shared_is_refused() -> None:
    refuse_unshared(model("llama").config, 2)
    with pytest.raises(ConfigError, match=r"has 2 key-value heads.* Choose from 1, 2\."):
        refuse_unshared(model("llama").config, 4)
    rotated = deepcopy(model("llama").config)
    rotated.rope_parameters = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    with pytest.raises(ConfigError, match="longest position"):
        refuse_unshared(rotated, 2)


class TestRun:
    """With Ray's learners, over gloo."""

    pytestmark = RAY

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("count", "changes"),
        [
            (2, {}),
            (2, {"algorithm.learners.sharding": "fsdp", "algorithm.optimizer.micro_batch_tokens": 256}),
            (4, {"algorithm.learners.sharding": "fsdp", "algorithm.model.lora": {"rank": 4, "alpha": 8}}),
            (4, {"algorithm.model.recompute": "selective", "algorithm.optimizer.minibatches": 2}),
        ],
    )
    def test_a_run_with_shared_rows_learns_what_one_learner_does(
        self, tmp_path: Path, count: int, changes: dict[str, Any]
    ) -> None:
        alike = {"algorithm.kl.coefficient": 0.1, "train.updates": 3, **changes}
        shared = {"algorithm.learners.count": count, "algorithm.learners.sequence_parallel": 2}
        one = build(tmp_path / "one", "ppo", **{**alike, "algorithm.learners.sharding": "replicate"})
        several = build(tmp_path / "several", "ppo", **alike, **shared)
        for first, same in zip(train(one), train(several), strict=True):
            for name in (name for name in LOSSES if name in first):
                assert same[name] == pytest.approx(first[name], abs=1e-4), name
        alone = weights(one)
        found = weights(several)
        assert all(np.allclose(found[name], alone[name], atol=2e-3) for name in alone)
        one.stop()
        several.stop()
