"""One model on several learners: replicated (DDP) or sharded (FSDP2), with state that fits either.

Everything here that gathers a shard is collective: all learners must call it.
"""

import copy
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from loomrl.algorithms.language.precision import release

if TYPE_CHECKING:
    from loomrl.algorithms.language.module import LanguageModule

M = TypeVar("M", bound=nn.Module)


def shard(module: "LanguageModule") -> None:
    """Shard every block of the model, the heads, which stay float32, and the rest as one.

    Blocks are gathered in the format in which they compute: the hooks of `precision` would keep a copy of each until
    the backward pass.
    """
    low = next(iter(module.computed.values()), None)
    policy = MixedPrecisionPolicy(param_dtype=low, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for child in module.lm.modules():
        if isinstance(child, nn.ModuleList):
            for block in child:
                fully_shard(block, mp_policy=policy)
    for head in (module.value, module.doubt):
        if head is not None:
            fully_shard(head)
    fully_shard(module, mp_policy=policy)


def accumulating(module: Any, more: bool) -> Any:
    """A context in which gradients are not exchanged if `more` will be accumulated."""
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(not more)
        return nullcontext()
    return module.no_sync() if more else nullcontext()


def full(tensor: Tensor) -> Tensor:
    """The whole tensor, gathered if only a shard is here."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def whole(state: Any) -> Any:
    """A copy of a state with every tensor whole and on the CPU."""
    if isinstance(state, Tensor):
        return full(state).detach().cpu().clone()
    if isinstance(state, Mapping):
        return {key: whole(value) for key, value in state.items()}
    if isinstance(state, list):
        return [whole(value) for value in state]
    return state


def copy_of(module: "LanguageModule") -> "LanguageModule":
    """A frozen copy, sharded alike."""
    if not isinstance(module, FSDPModule):
        twin = copy.deepcopy(module)
        twin.requires_grad_(False)
        release(twin.lm, twin.computed)
        return twin
    twin = type(module)(
        observation_space=module.observation_space,
        action_space=module.action_space,
        model_config=module.model_config,
    )
    shard(twin)
    with torch.no_grad():
        for theirs, ours in zip(twin.parameters(), module.parameters(), strict=True):
            theirs.copy_(ours)
    twin.requires_grad_(False)
    return twin


def load_module(module: nn.Module, state: Mapping[str, Tensor], *, beside: Collection[str] = ()) -> None:
    """Give the module the tensors of a whole state, which has all but those named as `beside`."""
    own = module.state_dict()
    kept = {name: own[name] for name in beside}
    module.load_state_dict({**kept, **{name: _like(own[name], tensor) for name, tensor in state.items()}})


def load_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Give the optimizer a whole state; its parameters are in the saved order."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    per_parameter = {
        index: {
            name: _like(parameters[index], value) if isinstance(value, Tensor) and value.ndim else value
            for name, value in entry.items()
        }
        for index, entry in state["state"].items()
    }
    optimizer.load_state_dict({"state": per_parameter, "param_groups": state["param_groups"]})


def _like(own: Tensor, tensor: Tensor) -> Tensor:
    if isinstance(own, DTensor):
        return distribute_tensor(tensor.to(own.device), own.device_mesh, own.placements)
    return tensor.to(own.device)
