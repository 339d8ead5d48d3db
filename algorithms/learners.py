"""Shared by all our learners: own optimizer steps, the dealing of data, gradient compression, errors translated."""

import pickle
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from ray.exceptions import RayActorError, RayTaskError
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.learner.training_data import TrainingData
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from loomrl.errors import ConfigError, LearnerError, LoomError
from loomrl.process import stacks_on_signal

_RENDEZVOUS = import_module("torch.distributed.rendezvous")  # as an attribute, the name is a function's


class OwnSteps(TorchLearner):
    """A TorchLearner whose `update` takes its optimizer steps itself."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        stacks_on_signal()
        _RENDEZVOUS.TCPStore = _store_at_its_address  # type: ignore[attr-defined]  # before RLlib has learners meet

    @override
    def compute_loss_for_module(self, **_: Any) -> Any:
        """Unused: losses belong to the optimizer steps in `update`."""
        raise NotImplementedError(f"{type(self).__name__} learns in update().")

    @staticmethod
    @override
    def _set_optimizer_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = float(lr)


def _store_at_its_address(*, host_name: str, port: int, is_master: bool, **settings: Any) -> TCPStore:
    """The store where learners meet, on one address: torch's own listens on all interfaces, without a password."""
    if is_master:
        family = socket.AF_INET6 if ":" in host_name else socket.AF_INET
        settings["master_listen_fd"] = socket.create_server((host_name, port), family=family).detach()
    return TCPStore(host_name=host_name, port=port, is_master=is_master, **settings)


def training_data(shares: Sequence[Any]) -> TrainingData:
    """One share per learner. RLlib deals `batches` unchanged; it would cut up a `batch` for a remote learner."""
    return TrainingData(batches=list(shares))


def share_of(given: TrainingData) -> Any:
    """The share of one learner: dealt to it by RLlib, which gives its local learner the whole list, of one."""
    if given.batch is not None:
        return given.batch
    (share,) = given.batches
    return share


@contextmanager
def unwrap_errors() -> Iterator[None]:
    """Raise a remote learner's error as its own type, and its death as a LearnerError."""
    try:
        yield
    except RayTaskError as error:
        if isinstance(error.cause, LoomError):
            raise error.cause from None
        raise
    except RayActorError as error:
        raise LearnerError(
            f"a remote learner died, or its node: {str(error).splitlines()[0]} What it had learnt is in the last "
            "checkpoint: resume from it, with `loomrl train --resume --run RUN` or restore_from_path."
        ) from error


@contextmanager
def memory_errors_translated(tokens: int) -> Iterator[None]:
    """Translate an out-of-memory error into one with a remedy."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        text = str(error)
        short = isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in text
        if not short:
            raise
        raise LearnerError(
            f"out of memory with optimizer.micro_batch_tokens={tokens}: {text.splitlines()[0][:200]}. Halve it, or "
            "set model.recompute=full."
        ) from error


Settings = list[list[dict[str, Any]]]
"""Per optimizer and parameter group: learning rate, betas, weight decay and the like."""


@contextmanager
def own_settings(learner_group: Any) -> Iterator[None]:
    """A context in which loading a state keeps the optimizers' current settings.

    Their state includes the settings of the saved run, which torch would use from then on.
    """
    kept = next(iter(learner_group.foreach_learner(_settings))).get()
    yield
    list(learner_group.foreach_learner(partial(_set, kept)))


def _optimizers(learner: Any) -> list[Any]:
    """Those of every policy."""
    return [each for name, _ in learner.module.items() for _, each in learner.get_optimizers_for_module(name)]


def _settings(learner: Any) -> Settings:
    return [
        [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
        for optimizer in _optimizers(learner)
    ]


def _set(kept: Settings, learner: Any) -> None:
    for optimizer, groups in zip(_optimizers(learner), kept, strict=True):
        for group, settings in zip(optimizer.param_groups, groups, strict=True):
            group.update(settings)


def load_state_file(path: Any, name: str) -> dict[str, Any]:
    """The state in a folder's file of this name, read before restoring; empty if it is not local."""
    file = Path(path) / f"{name}.pkl"
    return pickle.loads(file.read_bytes()) if file.is_file() else {}


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
