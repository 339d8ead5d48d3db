"""Reading weights back inside vLLM, to verify that its kernels compute with the sealed weights.

vLLM's own loaders know the place of every number: the part of a merged tensor, the shard, the orientation. They run
again as if they loaded, and their copies become comparisons.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from vllm.model_executor.model_loader.reload.layerwise import _get_original_loader, get_layerwise_info
from vllm.model_executor.model_loader.reload.sanitize import restore_layer_refs

ROWS = 512
"""Rows of a packed weight that are read at once."""

_log = logging.getLogger(__name__)

Named = Iterable[tuple[str, Tensor]]


class WeightReader:
    """Compares a model with weights, after it was opened with known ones and has sampled a token."""

    def __init__(self, model: nn.Module, weights: Named) -> None:
        """`weights` are the model's current ones: parameters that differ from them are in a format of vLLM's own."""
        self._model = model
        self._seen: dict[str, int] = {}
        names = {name for name, _ in model.named_parameters()}
        try:
            found = _compare(model, weights)
            self._seen = {name: count for name, count in found.seen.items() if name not in found.wrong}
        except Exception:  # noqa: BLE001 - loaders are the models' own
            _log.warning("this model's weights cannot be read back; only probes check them", exc_info=True)
        if hidden := sorted(names - self._seen.keys()):
            _log.warning("%d of %d parameters cannot be read back: %s", len(hidden), len(names), ", ".join(hidden[:3]))
        self._constants = {
            name: buffer.clone()
            for name, buffer in model.named_buffers()
            if name not in self._seen and buffer.is_floating_point()
        }

    def wrong(self, weights: Named) -> list[str]:
        """The parameters that differ from these weights, and the constants that have changed."""
        buffers = dict(self._model.named_buffers())
        wrong = {
            name for name, kept in self._constants.items() if not torch.equal(kept.to(buffers[name]), buffers[name])
        }
        if self._seen:
            found = _compare(self._model, weights)
            wrong |= found.wrong & self._seen.keys()
            wrong |= {name for name, count in self._seen.items() if found.seen[name] < count}
        return sorted(wrong)


class _Comparing(TorchDispatchMode):
    """Turns every copy into one of these tensors into a comparison."""

    def __init__(self, tensors: Named) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._owners = {tensor.untyped_storage().data_ptr(): name for name, tensor in tensors if tensor.numel()}
        self.seen = Counter[str]()
        """Numbers that were compared, by tensor."""
        self.wrong: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten.copy_.default, torch.ops.aten.fill_.Scalar, torch.ops.aten.fill_.Tensor):
            there, given = args[:2]
            owner = self._owners.get(there.untyped_storage().data_ptr())
            if owner is not None:
                self.seen[owner] += there.numel()
                expected = torch.as_tensor(given).to(there.device, there.dtype)
                if not bool((there == expected).all()):
                    self.wrong.add(owner)
                return there
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def _compare(model: Any, weights: Named) -> _Comparing:
    with _unpack(model) as differing:
        found = _Comparing([*model.named_parameters(), *model.named_buffers()])
        with found:
            model.load_weights(iter(weights))
    found.wrong |= differing
    return found


@contextmanager
def _unpack(model: nn.Module) -> Iterator[set[str]]:
    """In this context, on CPUs, weights that exist only in a kernel's packed format are put back as the kernel has
    them.

    Others are kept beside their packed copy: yields the names of those that differ from it.
    """
    packed: list[tuple[nn.Module, nn.Parameter]] = []
    differing: set[str] = set()
    try:
        for prefix, layer in model.named_modules():
            kernel = getattr(layer, "cpu_linear", None)
            weight = layer._parameters.get("weight")
            if kernel is None or weight is None:
                continue
            if weight.numel():
                if weight.ndim == 2 and not torch.equal(_through(kernel, weight, weight), weight):
                    differing.add(f"{prefix}.weight")
                continue
            like = get_layerwise_info(layer).restore_metadata[0]["weight"]
            read = _through(kernel, weight, like)
            read.__class__ = like.__class__
            read.__dict__ = like.__dict__.copy()
            packed.append((layer, weight))
            read = restore_layer_refs(read, layer)
            read.weight_loader = _get_original_loader(read)  # an update leaves its own there, which only counts
            layer.register_parameter("weight", read)
        yield differing
    finally:
        for layer, weight in packed:
            layer.register_parameter("weight", weight)


def _through(kernel: Any, weight: Tensor, like: Tensor) -> Tensor:
    """The exact weights of a kernel: its answers to the rows of a unit matrix."""
    unit = torch.eye(like.shape[1], dtype=like.dtype)
    return torch.cat([kernel(rows, weight, None) for rows in unit.split(ROWS)]).t().contiguous()
