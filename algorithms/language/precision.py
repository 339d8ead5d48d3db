"""Parameters in float32 that compute in bfloat16.

A step of AdamW is about as long as the learning rate. A bfloat16 number of the same size as a weight, 0.02, has
neighbours 0.0001 away, so that a step of 1e-6 would be rounded away for almost all weights.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

Dtypes = dict[str, torch.dtype]
"""By a parameter's name, the number format in which it computes."""


def hold_in_float32(model: nn.Module) -> Dtypes:
    """Make a model's parameters float32, still computing in the format they had; returns what was changed.

    Not by autocast: it computes norms and residual sums in float32, and the engine in bfloat16. So the
    log-probabilities of learner and engine would differ by more than the order of their sums.
    """
    held = {name: p.dtype for name, p in model.named_parameters(remove_duplicate=False) if p.dtype != torch.float32}
    for module in model.modules():
        own = {name: p.dtype for name, p in module.named_parameters(recurse=False) if p.dtype != torch.float32}
        if own:
            module.computed_in = own  # type: ignore[assignment]
            kind: Any = type(module)
            module.__class__ = _lowered(kind)
    for parameter in model.parameters():  # last: tied weights have two modules
        parameter.data = parameter.data.float()
    return held


def release(model: nn.Module, held: Mapping[str, torch.dtype]) -> None:
    """Give a model that is not trained its former formats, in half the memory."""
    for name, parameter in model.named_parameters():
        parameter.data = parameter.data.to(held.get(name, parameter.dtype))


def as_computed(weights: Mapping[str, Tensor], held: Mapping[str, torch.dtype]) -> dict[str, Tensor]:
    """Weights as the model computes with them."""
    return {name: tensor.to(held.get(name, tensor.dtype)) for name, tensor in weights.items()}


@cache
def _lowered(kind: Any) -> type[nn.Module]:
    """The class with its own parameters in another format while it runs, also where it is run again for a backward
    pass. Gradients reach the float32 parameters through the cast.

    Not by hooks: `torch.compile` takes each hook for a thing of its own, and would compile every layer.
    """

    class Lowered(kind):  # type: ignore[misc]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            own = self._parameters
            held = {name: own[name] for name in self.computed_in}
            own.update({name: own[name].to(dtype) for name, dtype in self.computed_in.items()})
            try:
                return super().forward(*args, **kwargs)
            finally:
                own.update(held)

    Lowered.__name__ = kind.__name__
    return Lowered
