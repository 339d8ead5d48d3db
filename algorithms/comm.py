"""Compression of gradients between learners, by torch's DDP hooks."""

from typing import Any

from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from loomrl.errors import ConfigError

RANK = 4
"""Rank of PowerSGD's approximation of gradients."""
EXACT_STEPS = 10
"""Optimizer steps before PowerSGD starts: the first gradients are the hardest to approximate."""


def refuse(compression: str, *, learners: int, gpus: float) -> None:
    """A ConfigError if this compression has no effect, or no backend supports it."""
    if compression == "none":
        return
    if learners < 2:
        raise ConfigError(
            f"compression={compression!r} has no effect with num_learners={learners}: gradients do not travel. "
            "Leave it out, or ask for at least 2 learners."
        )
    if compression == "bf16" and not gpus:
        raise ConfigError(
            "compression='bf16' needs NCCL, and learners without GPUs use gloo, which cannot add bfloat16 numbers. "
            "Choose fp16 or powersgd, or set num_gpus_per_learner."
        )


def compress(module: Any, compression: str) -> None:
    """Compress the gradients of a module that DDP wraps; others exchange none."""
    if not isinstance(module, DistributedDataParallel):
        return
    match compression:
        case "fp16":
            module.register_comm_hook(None, default_hooks.fp16_compress_hook)
        case "bf16":
            module.register_comm_hook(None, default_hooks.bf16_compress_hook)
        case "powersgd":
            state = powerSGD_hook.PowerSGDState(
                process_group=None, matrix_approximation_rank=RANK, start_powerSGD_iter=EXACT_STEPS
            )
            module.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
