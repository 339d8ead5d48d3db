"""Weights that engines read where the learner has them: in shared memory, or on its GPU through CUDA's own handles.

A learner lends a copy that nothing else writes to, until it steps. torch counts who has it open: what a reader that
died had open stays allocated until the learner ends.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch.multiprocessing.reductions import rebuild_cuda_tensor, reduce_tensor

from loomrl.errors import PolicyError
from loomrl.inference.weights.sealed import Sealed, Weights, checksums

ALIGNED = 16
"""A tensor begins at a multiple of so many bytes."""
DEVICE = 6
"""The argument of `rebuild_cuda_tensor` that is the GPU's number, which each process counts for itself."""


@dataclass(frozen=True, slots=True)
class LentTensor:
    """One tensor's part of the memory."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int

    @property
    def end(self) -> int:
        """The byte after its last one."""
        return self.begin + math.prod(self.shape) * self.dtype.itemsize

    def view(self, memory: Tensor) -> Tensor:
        """The tensor, without a copy."""
        return memory[self.begin : self.end].view(self.dtype).view(self.shape)


@dataclass(frozen=True, slots=True)
class LentWeights:
    """A version's weights in memory of the learner, as sealed there. A few kilobytes, for any number of readers."""

    version: int
    tensors: Mapping[str, LentTensor]
    checksums: Mapping[str, str]
    base: str | None
    gpu: str | None
    """The GPU that has them; None on CPUs."""
    handles: Mapping[int, tuple[Any, ...]]
    """torch's own, by reader: on a GPU each is for one opening."""

    def open(self, reader: int) -> Sealed:
        """The weights, not yet verified, as long as nothing refers to them after the learner's next step.

        A PolicyError if they are not there, or not here.
        """
        if self.gpu is not None and (here := _gpu(torch.device("cuda"))) != self.gpu:
            raise PolicyError(
                f"weights of version {self.version} are on GPU {self.gpu}, and this engine on {here}: "
                "placement.colocated=true needs one GPU for both. Let Ray see one, or leave it out."
            )
        try:
            memory = _reopen(self.handles[reader]) if self.gpu is None else _reopen_on_gpu(self.handles[reader])
        except RuntimeError as error:
            cause = str(error).splitlines()[0]
            raise PolicyError(
                f"weights of version {self.version}: the learner's memory cannot be opened ({cause}). It may have died."
            ) from None
        return Sealed(
            self.version, {name: one.view(memory) for name, one in self.tensors.items()}, self.checksums, self.base
        )


def lend(
    weights: Weights,
    version: int,
    *,
    readers: Collection[int],
    dtypes: Mapping[str, torch.dtype],
    base: str | None = None,
) -> tuple[LentWeights, Tensor]:
    """A loan of weights, which are all on one device, in these formats if given; and its memory, to be kept until the
    readers have done.
    """
    tensors: dict[str, LentTensor] = {}
    seen: set[int] = set()
    end = 0
    for name, tensor in weights.items():
        if tensor.numel() and tensor.data_ptr() in seen:
            continue  # tied to another one, whose name is enough
        seen.add(tensor.data_ptr())
        tensors[name] = LentTensor(dtypes.get(name, tensor.dtype), tuple(tensor.shape), -(-end // ALIGNED) * ALIGNED)
        end = tensors[name].end
    device = next(iter(weights.values())).device
    memory = _allocate(end, device)
    views = {name: one.view(memory) for name, one in tensors.items()}
    with torch.no_grad():
        for name, view in views.items():
            view.copy_(weights[name])
    sums = checksums(views)  # which waits for a GPU's copies
    gpu = None if device.type == "cpu" else _gpu(device)
    return LentWeights(version, tensors, sums, base, gpu, {reader: _handle(memory) for reader in readers}), memory


def _allocate(size: int, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.empty(size, dtype=torch.uint8, device=device)
    return _bytes_of(UntypedStorage._new_using_filename_cpu(size))


def _handle(memory: Tensor) -> tuple[Any, ...]:
    """A handle for processes that need not be children."""
    # on CPUs not by `reduce_tensor`, which would keep the memory until the handle is opened
    on_cpu = memory.device.type == "cpu"
    handle: Any = memory.untyped_storage()._share_filename_cpu_() if on_cpu else reduce_tensor(memory)[1]
    return tuple(handle)


def _reopen(handle: tuple[Any, ...]) -> Tensor:
    return _bytes_of(UntypedStorage._new_shared_filename_cpu(*handle))


def _reopen_on_gpu(handle: tuple[Any, ...]) -> Tensor:
    arguments = list(handle)
    arguments[DEVICE] = torch.cuda.current_device()
    memory: Tensor = rebuild_cuda_tensor(*arguments)
    return memory


def _bytes_of(storage: UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def _gpu(device: torch.device) -> str:
    return str(torch.cuda.get_device_properties(device).uuid)
