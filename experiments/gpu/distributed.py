"""Parts of `make gpu-check` that need a process group of one: NCCL on a GPU, gloo on a CPU."""

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from loomrl.algorithms.language.precision import hold_in_float32
from loomrl.algorithms.language.score import Scores, score
from loomrl.algorithms.language.sharding import full, shard, whole
from loomrl.experiments.bench.model import BenchLesson, ModelSize, build_model, settle, time_call
from loomrl.experiments.gpu.compute import model_size


@contextmanager
def group_of_one(device: str) -> Iterator[None]:
    """A process group with a file store: no port, no address."""
    with tempfile.TemporaryDirectory(prefix="loom-gpu-") as folder:
        dist.init_process_group(
            "nccl" if device == "cuda" else "gloo",
            init_method=f"file://{Path(folder) / 'meeting'}",
            rank=0,
            world_size=1,
            device_id=torch.device("cuda", 0) if device == "cuda" else None,
        )
        try:
            yield
        finally:
            dist.destroy_process_group()


def process_group(*, cpu: bool, tiny: bool) -> Iterator[dict[str, Any]]:
    """Cost of a reduction and a broadcast of a model's weights in a group of one: calls only, without transfer."""
    size = model_size(cpu=cpu, tiny=tiny)
    with group_of_one(size.device):
        x = torch.randn((1 << 16) if tiny else (1 << 28), device=size.device, dtype=getattr(torch, size.dtype))
        before = x.clone()
        dist.all_reduce(x)
        reduce_s = statistics.median(time_call(lambda: dist.all_reduce(x), size.device) for _ in range(10))
        if not torch.equal(x, before):
            raise ArithmeticError("a sum over one process changed the numbers")
        weights = [p.detach() for p in build_model(size).parameters()]
        broadcast_s = statistics.median(time_call(lambda: _broadcast(weights), size.device) for _ in range(5))
        moved = x.numel() * x.element_size()
        yield {
            "backend": dist.get_backend(),
            "all_reduce_s": round(reduce_s, 6),
            "all_reduce_gb_per_s": round(moved / reduce_s / 1e9, 1),
            "broadcast_weights_s": round(broadcast_s, 6),
            "weights_mib": round(sum(w.numel() * w.element_size() for w in weights) / 2**20, 1),
            "tensors": len(weights),
        }


def _broadcast(weights: list[Tensor]) -> None:
    for weight in weights:
        dist.broadcast(weight, src=0)


class Sharded(nn.Module):
    """A module with a language model in it, scoring in its own forward pass, as `shard` needs it."""

    def __init__(self, lm: PreTrainedModel) -> None:
        super().__init__()
        self.lm = lm
        self.computed = hold_in_float32(lm)
        self.value = self.doubt = None

    def forward(self, batch: dict[str, Tensor | None]) -> Scores:
        """Log-probabilities and entropies of the batch's action tokens."""
        return score(self.lm, batch)


def fsdp(*, cpu: bool, tiny: bool) -> Iterator[dict[str, Any]]:
    """One optimizer step plain and under FSDP2: log-probabilities and gradient agree; seconds and memory of both."""
    size = model_size(cpu=cpu, tiny=tiny)
    with group_of_one(size.device):
        plain = _steps(size, wrap=False)
        yield {"plain": plain}
        wrapped = _steps(size, wrap=True)
    bound = 1e-2 if size.dtype == "bfloat16" else 1e-5
    for name in ("mean_logp", "gradient_norm"):
        ours = wrapped[name]
        theirs = plain[name]
        if not abs(ours - theirs) <= bound * abs(theirs):
            raise ArithmeticError(f"{name} is {ours} under FSDP2 and {theirs} without")
    if not wrapped["sharded"] == wrapped["tensors"] == plain["tensors"]:
        raise ArithmeticError(f"{wrapped['sharded']} of {wrapped['tensors']} tensors were sharded")
    yield {"fsdp": wrapped, "fsdp_over_plain_s": round(wrapped["step_s"] / plain["step_s"], 2)}


def _steps(size: ModelSize, *, wrap: bool) -> dict[str, Any]:
    if size.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    module: Any = Sharded(build_model(size).train())
    if wrap:
        shard(module)
    lesson = BenchLesson(size)
    mean_logp = lesson.gradients(module, size.device)
    norm = float(full(torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)))
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-5)

    def learn() -> None:
        optimizer.zero_grad(set_to_none=True)
        lesson.gradients(module, size.device)
        optimizer.step()

    learn()
    seconds = statistics.median(time_call(learn, size.device) for _ in range(size.rounds))
    sharded = sum(isinstance(p, DTensor) for p in module.parameters())
    gathered = whole(dict(module.named_parameters()))
    if not all(bool(torch.isfinite(tensor).all()) for tensor in gathered.values()):
        raise ArithmeticError("weights are not finite after a few steps")
    found = {
        "mean_logp": mean_logp,
        "gradient_norm": norm,
        "step_s": round(seconds, 4),
        "sharded": sharded,
        "tensors": len(gathered),
    }
    if size.device == "cuda":
        settle(size.device)
        found["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    return found
