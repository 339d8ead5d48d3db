"""Training in bfloat16: parameters are float32, so that steps have their length; the computation is the engine's."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel

from loomrl.algorithms.language import layers
from loomrl.algorithms.language.precision import as_computed, hold_in_float32, release
from tests.inference.sample_models import tiny_model

STEPS = 4


def held(model: PreTrainedModel) -> PreTrainedModel:
    hold_in_float32(model)
    return model


def losses(model: PreTrainedModel) -> Iterator[Tensor]:
    draws = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        ids_BT = torch.randint(model.config.vocab_size, (8, 24), generator=draws)
        yield model(ids_BT, labels=ids_BT, use_cache=False).loss


def train(model: PreTrainedModel, rate: float) -> tuple[float, float]:
    """The share of weights that moved, and the length of their way."""
    before = [p.detach().float().clone() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    for loss in losses(model):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    way = torch.cat([(p.detach().float() - b).flatten() for p, b in zip(model.parameters(), before, strict=True)])
    return float((way != 0).float().mean()), float(way.norm())


@pytest.mark.parametrize("rate", [1e-7, 1e-6, 1e-5, 1e-4, 1e-3])
def test_as_many_weights_move_as_far_as_in_float32(rate: float) -> None:
    whole = tiny_model(scale=0.02)
    moved, length = train(held(copy.deepcopy(whole).bfloat16()), rate)
    wanted, far = train(copy.deepcopy(whole).bfloat16().float(), rate)
    assert moved == pytest.approx(wanted, rel=0.02)
    assert length == pytest.approx(far, rel=0.02)
    if rate < 1e-5:  # without float32
        assert train(copy.deepcopy(whole).bfloat16(), rate)[0] < 0.5 * wanted


def gradients(model: PreTrainedModel) -> list[Tensor]:
    for loss in losses(model):
        loss.backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


class Products(TorchDispatchMode):
    """Counts matrix products."""

    count = 0

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += operator is torch.ops.aten.mm.default
        return operator(*args, **(kwargs or {}))


@pytest.mark.parametrize(("extent", "repeats"), [("selective", False), ("full", True)])
def test_it_computes_as_the_engine_does_also_where_layers_are_computed_again(
    monkeypatch: pytest.MonkeyPatch, extent: Any, repeats: bool
) -> None:
    monkeypatch.setattr(layers, "CHEAP", 8)
    engine = tiny_model().bfloat16()
    learner = held(copy.deepcopy(engine))
    twice = held(copy.deepcopy(engine))
    layers.recompute_layers(twice, extent)
    ids_BT = torch.arange(48).view(2, 24)
    assert torch.equal(learner(ids_BT).logits, engine(ids_BT).logits)
    with Products() as whole:
        once = gradients(learner)
    assert {g.dtype for g in once} == {torch.float32}
    with Products() as again:
        assert all(map(torch.equal, once, gradients(twice)))
    assert (again.count > whole.count) == repeats


def test_what_is_published_and_what_is_frozen_is_bfloat16() -> None:
    engine = tiny_model().bfloat16()
    learner = copy.deepcopy(engine)
    computed = hold_in_float32(learner)
    published = as_computed(learner.state_dict(), computed)
    assert all(torch.equal(published[name], tensor) for name, tensor in engine.state_dict().items())
    frozen = copy.deepcopy(learner)
    release(frozen, computed)
    assert {p.dtype for p in frozen.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in learner.parameters()} == {torch.float32}


def test_a_pass_that_fails_leaves_the_parameters_as_they_were() -> None:
    learner = held(tiny_model().bfloat16())
    with pytest.raises(IndexError):
        learner(torch.tensor([[10**6]]))
    assert {p.dtype for p in learner.parameters()} == {torch.float32}
    assert all(p.is_leaf for p in learner.parameters())
