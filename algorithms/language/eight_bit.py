"""AdamW with averages of one byte a number: a code, and a scale for every block of a row.

A code is a share of the block's largest number, one of 256 that are denser towards zero (Dettmers et al., 2110.02861).
Blocks end with their row, so that a shard of rows, or a token's embedding, has scales of its own.

Axes: `_R` rows, `_W` numbers of a row, `_C` blocks of a row, `_B` numbers of a block.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from typing_extensions import override

BLOCK = 256
SMALL = 4096
"""Numbers below which a parameter's averages stay float32, as do those of vectors: norms and biases are few."""
AT_ONCE = {"cpu": 1 << 17, "cuda": 1 << 22}
"""Numbers that are float32 at a time: on a CPU they stay in its cache."""
EPSILON = 1e-8
AVERAGES = {"exp_avg": True, "exp_avg_sq": False}
"""The averages by name; true if they have signs."""


class EightBitAdamW(Optimizer):
    """AdamW as torch's, but for the averages of its matrices. Equal on any number of shards, and resumed to the bit."""

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, betas: tuple[float, float], weight_decay: float):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @override
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter] or _begin(parameter)
                    self.state[parameter] = state
                    state["step"] += 1
                    _step(_local(parameter), _local(parameter.grad), state, group)

    @override
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from these tensors. torch's own would make float32 of the codes."""
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        self.state = defaultdict(dict, {parameters[i]: dict(entry) for i, entry in state_dict["state"].items()})
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            group.update({name: value for name, value in saved.items() if name != "params"})


def _begin(parameter: Tensor) -> dict[str, Any]:
    state: dict[str, Any] = {"step": 0}
    for name in AVERAGES:
        if parameter.ndim < 2 or parameter.numel() < SMALL:
            state[name] = torch.zeros_like(parameter)
            continue
        state[name] = torch.zeros_like(parameter, dtype=torch.uint8)
        rows = _local(parameter).shape[0]
        width = parameter.numel() // parameter.shape[0]
        scale_RC = torch.zeros(rows, -(-width // BLOCK), device=_local(parameter).device)
        state[_scale(name)] = _shard_like(parameter, scale_RC)
    return state


def _step(parameter: Tensor, gradient: Tensor, state: Mapping[str, Any], group: Mapping[str, Any]) -> None:
    """One step of a parameter, or of a shard of its rows."""
    if not parameter.numel():
        return
    x_RW, gradient_RW = (_rows(each) for each in (parameter, gradient))
    averages = {name: _rows(_local(state[name])) for name in AVERAGES}
    scales = {name: _local(state[_scale(name)]) for name in AVERAGES if _scale(name) in state}
    rows = max(1, AT_ONCE[x_RW.device.type] // x_RW.shape[1])
    for begin in range(0, len(x_RW), rows):
        part = slice(begin, begin + rows)
        here = {name: averages[name][part] for name in AVERAGES}
        for name in scales:
            here[name] = dequantise(here[name], scales[name][part], signed=AVERAGES[name])
        _update(x_RW[part], gradient_RW[part], here, state["step"], group)
        for name in scales:
            averages[name][part], scales[name][part] = quantise(here[name], signed=AVERAGES[name])


def _update(x: Tensor, gradient: Tensor, averages: Mapping[str, Tensor], step: int, group: Mapping[str, Any]) -> None:
    """AdamW in place, with float32 averages."""
    mean = averages["exp_avg"]
    square = averages["exp_avg_sq"]
    first, second = group["betas"]
    mean.lerp_(gradient, 1 - first)
    square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
    spread = square.sqrt().div_((1 - second**step) ** 0.5).add_(EPSILON)
    x.mul_(1 - group["lr"] * group["weight_decay"])
    x.addcdiv_(mean, spread, value=-group["lr"] / (1 - first**step))


def quantise(x_RW: Tensor, *, signed: bool) -> tuple[Tensor, Tensor]:
    """Codes [R, W] and scales [R, C]: a scale is the block's largest number, with its sign, whose code is exact."""
    x_RCB = _blocks(x_RW)
    scale_RC = x_RCB.amax(2)
    if signed:
        least_RC = x_RCB.amin(2)
        scale_RC = torch.where(scale_RC < -least_RC, least_RC, scale_RC)
    shares_RCB = x_RCB / torch.where(scale_RC == 0, 1, scale_RC)[:, :, None]
    bits_N = shares_RCB.half().view(torch.int16).view(-1).int() & 0xFFFF
    code_RCB = _nearest(signed, x_RW.device).index_select(0, bits_N).view(x_RCB.shape)
    return code_RCB.flatten(1)[:, : x_RW.shape[1]], scale_RC


def dequantise(code_RW: Tensor, scale_RC: Tensor, *, signed: bool) -> Tensor:
    """The numbers [R, W] of these codes."""
    code_RCB = _blocks(code_RW)
    value_RCB = _values(signed, code_RW.device).index_select(0, code_RCB.reshape(-1).int()).view(code_RCB.shape)
    return value_RCB.mul_(scale_RC[:, :, None]).flatten(1)[:, : code_RW.shape[1]]


def _blocks(x_RW: Tensor) -> Tensor:
    """[R, C, B]: rows in equal blocks of at most BLOCK numbers, the last one filled up with zeros."""
    width = x_RW.shape[1]
    count = -(-width // BLOCK)
    size = -(-width // count)
    if count * size != width:
        x_RW = torch.nn.functional.pad(x_RW, (0, count * size - width))
    return x_RW.reshape(-1, count, size)


@cache
def _values(signed: bool, device: torch.device) -> Tensor:
    """The 256 values, ascending. Squares have no zero: a step divided by one that was rounded to zero would be huge."""
    found = {0.0, 1.0} if signed else {1.0}
    for decade in range(7):
        edges = torch.linspace(0.1, 1, 2 ** (decade if signed else decade + 1) + 1, dtype=torch.float64)
        shares = (edges[:-1] + edges[1:]) / 2 * 10.0 ** (decade - 6)
        found |= {*shares.tolist()} | ({*(-shares).tolist()} if signed else set())
    if not signed:
        found |= {0.55e-7}
    return torch.tensor(sorted(found), dtype=torch.float32, device=device)


@cache
def _nearest(signed: bool, device: torch.device) -> Tensor:
    """The code of every number of float16, by its bits: seven times as fast as a search."""
    values = _values(signed, torch.device("cpu"))
    numbers = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.float16).float().nan_to_num()
    return torch.bucketize(numbers, (values[:-1] + values[1:]) / 2).to(torch.uint8).to(device)


def _rows(tensor: Tensor) -> Tensor:
    return tensor.view(tensor.shape[0], -1) if tensor.ndim > 1 else tensor.view(1, -1)


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _shard_like(parameter: Tensor, scale_RC: Tensor) -> Tensor:
    """The scales of a parameter's rows, sharded as it is."""
    if not isinstance(parameter, DTensor):
        return scale_RC
    shape = torch.Size((parameter.shape[0], scale_RC.shape[1]))
    return DTensor.from_local(
        scale_RC, parameter.device_mesh, parameter.placements, run_check=False, shape=shape, stride=(shape[1], 1)
    )


def _scale(name: str) -> str:
    return f"{name}_scale"
