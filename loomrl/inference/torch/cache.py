"""Keys and values of many sequences in tensors that are allocated once, one sequence per row.

Axes: S slots, H heads of keys and values, C positions up to the context, D width of a head; R rows being filled from
P different prompts of T tokens; N rows at work, L positions attended to.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from loomrl.errors import ConfigError
from loomrl.inference.torch.prefix import Prefix


class KeyValues:
    """The keys and values of every layer, with operations on rows."""

    def __init__(self, model: PreTrainedModel, *, slots: int, context: int) -> None:
        self.layers: list[tuple[Tensor, Tensor]] = []
        for key_1H1D, value_1H1D in _sample(model, context):
            key_SHCD = key_1H1D.new_zeros(slots, key_1H1D.shape[1], context, key_1H1D.shape[3])
            value_SHCD = value_1H1D.new_zeros(slots, value_1H1D.shape[1], context, value_1H1D.shape[3])
            self.layers.append((key_SHCD, value_SHCD))

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of row `source` into row `target`."""
        for tensors in self.layers:
            for x_SHCD in tensors:
                x_SHCD[target, :, :length] = x_SHCD[source, :, :length]

    def split(self, row: int, prompt_T: NDArray[np.int32]) -> Prefix:
        """Take a row's prompt out of it: what follows moves to the beginning."""
        prefix = Prefix(prompt_T)
        length = len(prompt_T)
        for key_SHCD, value_SHCD in self.layers:
            prefix.add(key_SHCD[row], value_SHCD[row])
            for x_SHCD in (key_SHCD, value_SHCD):
                x_SHCD[row, :, :-length] = x_SHCD[row, :, length:].clone()
        return prefix

    def clear(self, row: int) -> None:
        """Zero a row with non-finite numbers: even masked, they would spoil the row's next user."""
        for tensors in self.layers:
            for x_SHCD in tensors:
                x_SHCD[row] = 0


class Filling(Cache):
    """A cache for prompts read from their first token, or on from a prefix, which stores the results in rows, and in
    new prefixes.

    Row `rows_R[i]` gets the result of prompt `prompt_R[i]`, and `prefixes[j]` that of prompt `j`.
    """

    def __init__(
        self, kept: KeyValues, rows_R: Tensor, prompt_R: Tensor, prefixes: Mapping[int, Prefix], after: Prefix | None
    ) -> None:
        super().__init__(layers=[])
        self._kept = kept
        self._rows_R = rows_R
        self._prompt_R = prompt_R
        self._prefixes = prefixes
        self._after = after

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store [P, H, T, D] of a layer; attention needs only these keys and values, and those of the prefix."""
        length = key_states.shape[2]
        for kept_SHCD, new_PHTD in zip(self._kept.layers[layer_idx], (key_states, value_states), strict=True):
            kept_SHCD[self._rows_R, :, :length] = new_PHTD[self._prompt_R]
        for prompt, prefix in self._prefixes.items():
            prefix.add(key_states[prompt], value_states[prompt])
        if self._after is None:
            return key_states, value_states
        key_HDT, value_HTD = self._after.layers[layer_idx]
        before = (x_HTD.expand(len(key_states), -1, -1, -1) for x_HTD in (key_HDT.transpose(1, 2), value_HTD))
        key_PHTD, value_PHTD = (torch.cat(xs, 2) for xs in zip(before, (key_states, value_states), strict=True))
        return key_PHTD, value_PHTD


class Stepping(Cache):
    """A cache for one more token in each of the first rows."""

    def __init__(self, kept: KeyValues, position_N: Tensor, length: int) -> None:
        super().__init__(layers=[])
        self._kept = kept
        self._length = length
        self._row_N = torch.arange(len(position_N), device=position_N.device)
        self._position_N = position_N

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store [N, H, 1, D] at each row's position and return everything up to the attended length."""
        count = len(self._row_N)
        for kept_SHCD, new_NH1D in zip(self._kept.layers[layer_idx], (key_states, value_states), strict=True):
            kept_SHCD[self._row_N, :, self._position_N] = new_NH1D[:, :, 0]
        key_SHCD, value_SHCD = self._kept.layers[layer_idx]
        return key_SHCD[:count, :, : self._length], value_SHCD[:count, :, : self._length]


def _sample(model: PreTrainedModel, context: int) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of one token; a model with another kind of cache is refused."""
    ids_11 = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    with torch.inference_mode():
        cache = model(input_ids=ids_11, past_key_values=DynamicCache(config=model.config), use_cache=True)
    found: list[tuple[Tensor, Tensor]] = []
    for layer in cache.past_key_values.layers:
        plain = isinstance(layer, DynamicLayer) and not isinstance(layer, DynamicSlidingWindowLayer)
        wide = isinstance(layer, DynamicSlidingWindowLayer) and layer.sliding_window >= context
        if not (plain or wide) or layer.keys is None or layer.values is None:
            raise ConfigError(
                f"model {model.config.model_type!r} with context={context}: a {type(layer).__name__} is no plain cache "
                "of keys and values. Take a model with full attention, or a context within its window."
            )
        found.append((layer.keys, layer.values))
    return found
