"""A model as the engine uses it: prompts are read into rows, then one token at a time in all rows at once.

Axes: P prompts of T tokens (padded on the right), R rows that get them, N rows at work, L positions attended to, V the
vocabulary.
"""

import math
import mmap
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from loomrl.errors import ConfigError
from loomrl.inference.engine import Sight, Top
from loomrl.inference.torch.adapters import AdaptedModel, AdapterRows, LowRankAdapter
from loomrl.inference.torch.prefix import Prefix
from loomrl.inference.vision import Vision, embed_with_pictures


class KeyValues:
    """The keys and values of every layer, with operations on rows. They take memory from their first use on."""

    def __init__(self, model: PreTrainedModel, *, slots: int, context: int) -> None:
        self._sample = _sample(model, context)
        self._slots = slots
        self._context = context
        self._layers: list[tuple[Tensor, Tensor]] = []

    @property
    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """[S, H, C, D] keys and values."""
        if not self._layers:
            self._layers = [(self._open(key_1H1D), self._open(value_1H1D)) for key_1H1D, value_1H1D in self._sample]
        return self._layers

    def _open(self, x_1H1D: Tensor) -> Tensor:
        return zeros_like(x_1H1D, self._slots, x_1H1D.shape[1], self._context, x_1H1D.shape[3])

    def release(self) -> None:
        """Give the memory back, and what is kept in it."""
        self._layers = []

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of row `source` into row `target`."""
        for tensors in self.layers:
            for x_SHCD in tensors:
                x_SHCD[target, :, :length] = x_SHCD[source, :, :length]

    def split(self, row: int, prefix: Prefix) -> Prefix:
        """Take a row's prompt out of it into an empty prefix: what follows moves to the beginning."""
        length = prefix.length
        for key_SHCD, value_SHCD in self.layers:
            prefix.add(key_SHCD[row], value_SHCD[row])
            for x_SHCD in (key_SHCD, value_SHCD):
                x_SHCD[row, :, :-length] = x_SHCD[row, :, length:].clone()
        return prefix

    def clear(self, row: int, length: int) -> None:
        """Zero the first `length` positions of a row with non-finite numbers: even masked, they would spoil its next
        user.
        """
        for tensors in self.layers:
            for x_SHCD in tensors:
                x_SHCD[row, :, :length] = 0  # no more: it would take the memory of the whole row


def zeros_like(x: Tensor, *shape: int) -> Tensor:
    """Zeros of that shape. On a CPU they take no memory until they are written to."""
    if x.device.type != "cpu":
        return x.new_zeros(shape)
    pages = mmap.mmap(-1, math.prod(shape) * x.itemsize)  # torch.zeros would write them
    if sys.platform == "linux":
        pages.madvise(mmap.MADV_NOHUGEPAGE)  # a huge page spans the beginnings of several rows
    return torch.frombuffer(pages, dtype=x.dtype).view(shape)


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


FIXED_ROTATIONS = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary embedding whose angles do not depend on the sequence length."""
SCORE_TOKENS = 256
"""Tokens of a scored prompt whose distributions are in memory at a time."""
NO_PREFIX: Mapping[int, Prefix] = MappingProxyType({})


class CachedNetwork:
    """Any causal language model of Hugging Face, through its own `forward`."""

    def __init__(self, model: PreTrainedModel, *, slots: int, context: int, vision: Vision | None = None) -> None:
        self.model = model.eval()
        self.vision = vision
        known = getattr(model.config.get_text_config(), "max_position_embeddings", context)
        if context > known:
            raise ConfigError(
                f"context={context} exceeds the {known} positions of this {model.config.model_type}: beyond them its "
                f"answers are noise. Set algorithm.model.context={known} or less."
            )
        self.kept = self._open_cache(slots=slots, context=context)
        self.adapted = AdaptedModel(self.model)
        self._context = context
        self._position_C = torch.arange(context, device=model.device)

    def _open_cache(self, *, slots: int, context: int) -> KeyValues:
        return KeyValues(self.model, slots=slots, context=context)

    def fill(
        self,
        prompts: Sequence[NDArray[np.int32]],
        rows: Sequence[int],
        prompt_of: Sequence[int],
        sights: Sequence[Sequence[Sight]] = (),
        adapter: LowRankAdapter | None = None,
    ) -> None:
        """Read prompts with their pictures and one adapter; row `rows[i]` then holds prompt `prompt_of[i]`."""
        with self.adapted.reading(adapter):
            self._read(prompts, rows, prompt_of, sights=sights)

    def _read(
        self,
        prompts: Sequence[NDArray[np.int32]],
        rows: Sequence[int],
        prompt_of: Sequence[int],
        *,
        sights: Sequence[Sequence[Sight]] = (),
        prefixes: Mapping[int, Prefix] = NO_PREFIX,
        after: Prefix | None = None,
    ) -> None:
        """Read prompts into rows and into prefixes, or what follows a prefix into rows."""
        device = self.model.device
        start = after.length if after else 0
        longest = max(map(len, prompts))
        ids_PT = np.zeros((len(prompts), longest), np.int64)
        for line_T, prompt_T in zip(ids_PT, prompts, strict=True):
            line_T[: len(prompt_T)] = prompt_T
        position_T = self._position_C[start : start + longest]
        self.model.base_model(
            **self._inputs(torch.from_numpy(ids_PT).to(device), sights),
            position_ids=position_T.expand(len(prompts), -1),
            attention_mask=self._mask(position_T[None], start + longest),
            past_key_values=Filling(
                self.kept,
                torch.tensor(rows, dtype=torch.long, device=device),
                torch.tensor(prompt_of, dtype=torch.long, device=device),
                prefixes,
                after,
            ),
            use_cache=True,
        )

    def copy(self, source: int, target: int, length: int) -> None:
        """Let row `target` begin as row `source` does, up to `length`."""
        self.kept.copy(source, target, length)

    def move(self, source: int, target: int, length: int) -> None:
        """Put row `source`, which has read `length` tokens, into the place of row `target`, which has ended."""
        self.copy(source, target, length)

    def join(
        self, source: int, target: int, prompt_T: NDArray[np.int32], adapter: LowRankAdapter | None = None
    ) -> None:
        """Let row `target` begin with the prompt that row `source` begins with; more rows are expected to."""
        self.copy(source, target, len(prompt_T))

    def empty(self, row: int) -> None:
        """Make ready for another sequence."""

    def forget(self) -> None:
        """Drop what rows share: the weights are others."""

    def release(self) -> None:
        """Give back the memory of the rows, which all have ended; the next ones take it again."""
        self.kept.release()

    def clear(self, row: int, length: int) -> None:
        """Zero what a row has read: `length` tokens."""
        self.kept.clear(row, length)

    def step(
        self, ids_N: Tensor, position_N: Tensor, length: int, adapters: Sequence[LowRankAdapter | None] = ()
    ) -> Tensor:
        """The logits after one more token in each of the first N rows, none longer than `length` then; each row with
        its adapter.
        """
        with self.adapted.stepping(adapters) as rows:
            return self._step(ids_N, position_N, length, rows)

    def _step(self, ids_N: Tensor, position_N: Tensor, length: int, rows: AdapterRows | None) -> Tensor:
        output = self.model(
            input_ids=ids_N[:, None],
            position_ids=position_N[:, None],
            attention_mask=self._mask(position_N[:, None], length),
            past_key_values=Stepping(self.kept, position_N, length),
            use_cache=True,
        )
        logits_NV: Tensor = output.logits[:, 0]
        return logits_NV

    def score(
        self, prompt_T: NDArray[np.int32], *, temperature: float, top: int, adapter: LowRankAdapter | None = None
    ) -> Top:
        """The log-probability of each token of a prompt, of two or more, but the first; then those of the `top`
        likeliest there.
        """
        device = self.model.device
        ids_1T = torch.from_numpy(prompt_T.astype(np.int64)).to(device)[None]
        cache = DynamicCache(config=self.model.config)
        ids = []
        logprobs = []
        with self.adapted.reading(adapter):
            for start in range(0, ids_1T.shape[1] - 1, SCORE_TOKENS):
                end = min(start + SCORE_TOKENS, ids_1T.shape[1] - 1)
                position_1T = self._position_C[None, start:end]
                output = self.model(
                    input_ids=ids_1T[:, start:end],
                    position_ids=position_1T,
                    attention_mask=self._mask(position_1T, end),
                    past_key_values=cache,
                    use_cache=True,
                )
                logp_TV = torch.log_softmax(output.logits[0].float() / (temperature or 1.0), dim=-1)
                best = logp_TV.topk(min(top, logp_TV.shape[1]))
                own_T1 = ids_1T[0, start + 1 : end + 1, None]
                ids.append(torch.cat([own_T1, best.indices], 1))
                logprobs.append(torch.cat([logp_TV.gather(1, own_T1), best.values], 1))
        return Top(torch.cat(ids).cpu().numpy().astype(np.int32), torch.cat(logprobs).cpu().numpy())

    def constants(self) -> dict[str, Tensor]:
        """Constants besides the weights: buffers that are in no state dict."""
        config: Any = self.model.config.get_text_config()
        turned = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default") in FIXED_ROTATIONS
        stored = self.model.state_dict().keys()
        found = {name: buffer for name, buffer in self.model.named_buffers() if name not in stored}
        return {name: buffer for name, buffer in found.items() if turned or "rotary_emb" not in name}

    def _inputs(self, ids_PT: Tensor, sights: Sequence[Sequence[Sight]]) -> dict[str, Tensor]:
        if not any(sights):
            return {"input_ids": ids_PT}
        assert self.vision is not None
        columns = [[self.vision.places(sight) for sight in seen] for seen in sights]
        row_M = np.repeat(np.arange(len(sights)), [sum(map(len, found)) for found in columns])
        column_M = np.concatenate([place for found in columns for place in found])
        places = (torch.from_numpy(row_M).to(ids_PT.device), torch.from_numpy(column_M).to(ids_PT.device))
        seen = [self.vision.seen(sight.picture) for one in sights for sight in one]
        return {"inputs_embeds": embed_with_pictures(self.model, ids_PT, places, seen)}

    def _mask(self, position_BT: Tensor, length: int) -> Tensor:
        """An additive mask for [B, 1, T, L] scores: zero up to a token's own position, minus infinity after it."""
        later_BTL = self._position_C[:length] > position_BT[:, :, None]
        mask_BTL = torch.zeros(later_BTL.shape, dtype=self.model.dtype, device=self.model.device)
        return mask_BTL.masked_fill_(later_BTL, -torch.inf)[:, None]
