"""The step of Llama-like models in a few large operations: for small models, dispatch costs as much as arithmetic.

Axes: N rows at work, W width of the model, A heads of queries, H heads of keys and values, G queries that share one, D
width of a head, S slots, C positions up to the context, L positions of a row attended to, V the vocabulary, U heads
that are rotated (A + H), X heads of all rows (N * H).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu
from transformers import LlamaForCausalLM, MistralForCausalLM, PreTrainedModel, Qwen2ForCausalLM, Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer

from loomrl.errors import ConfigError
from loomrl.inference.engine import Sight
from loomrl.inference.experts import ExpertHead
from loomrl.inference.torch.adapters import AdapterRows, LowRankAdapter, Parts
from loomrl.inference.torch.network import FIXED_ROTATIONS, CachedNetwork
from loomrl.inference.torch.prefix import NOTHING, Prefix, PrefixArrangement, Prefixes, attend
from loomrl.inference.vision import Vision

PREFIX_BYTES = 2**20
"""The cost of a prefix in a layer's step, as keys and values that could be read instead: some ten small operations."""
JOINING = 4
"""The number of members of a group that are expected to join one whose prompt has been read into its row."""
QKV = ("q_proj", "k_proj", "v_proj")
KNOWN = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)


Places = Sequence[tuple[int, int]]
"""Rows, and for each which of some prompts it gets."""


@dataclass(frozen=True, slots=True)
class FusedLayer:
    """The weights of one layer; those that read the same input are one tensor."""

    before_attention: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    query_norm: Tensor | None
    key_norm: Tensor | None
    out: nn.Linear
    before_mlp: Tensor
    gate_up: Tensor
    down: nn.Linear
    qkv_parts: Parts
    out_parts: Parts
    gate_up_parts: Parts
    down_parts: Parts


class Rotation(NamedTuple):
    """The rotation of each row's queries and keys."""

    cos_NUD: Tensor
    sin_NUD: Tensor


Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Keeps a layer's new keys and values [N, H, D]; attention of the queries [N, A, D] to all that are kept."""


@dataclass(frozen=True, slots=True)
class StepPlace:
    """The positions of this step's tokens, equal for all layers."""

    rotation: Rotation
    mask_N11L: Tensor
    slot_X: Tensor
    """The index of each row's heads among all slots' heads' positions."""
    prefixes: PrefixArrangement


def is_fusible(model: PreTrainedModel) -> bool:
    """True if `FusedNetwork` supports every part of the model."""
    if type(model) not in KNOWN:
        return False
    config: Any = model.config
    plain = all(type(part) in (nn.Linear, ExpertHead) for part in model.modules() if isinstance(part, nn.Linear))
    usual = config.hidden_act == "silu" and not (isinstance(model, LlamaForCausalLM) and config.mlp_bias)
    return plain and usual and config.rope_parameters["rope_type"] in FIXED_ROTATIONS


class FusedNetwork(CachedNetwork):
    """A Llama, Mistral, Qwen2 or Qwen3. The model's own weights become views of the merged tensors, without copies."""

    def __init__(self, model: PreTrainedModel, *, slots: int, context: int) -> None:
        super().__init__(model, slots=slots, context=context)
        config: Any = model.config
        self._body: Any = model.model
        self._eps = float(config.rms_norm_eps)
        self._scale = float(self._body.layers[0].self_attn.scaling)
        self._width = int(self._body.layers[0].self_attn.head_dim)
        self._queries = int(config.num_attention_heads)
        self._heads = int(config.num_key_value_heads)
        self._layers = [_merge(layer, f"model.layers.{index}") for index, layer in enumerate(self._body.layers)]
        self._head: Any = model.get_output_embeddings()
        self._cos_C1D, self._sin_C1D = self._angles()
        self._in_products = model.dtype == torch.float32 and model.device.type == "cpu"
        self._prefixes = Prefixes(slots)

    def fill(
        self,
        prompts: Sequence[NDArray[np.int32]],
        rows: Sequence[int],
        prompt_of: Sequence[int],
        sights: Sequence[Sequence[Sight]] = (),
        adapter: LowRankAdapter | None = None,
    ) -> None:
        """Read prompts into rows, or outside of them where that makes a step cheaper: there each is read once, and the
        rows, of which all are read as far as the longest, are short.

        What goes on from a prompt outside is read from there on.
        """
        after = [self._prefixes.longest(prompt, adapter) for prompt in prompts]
        for prefix in dict.fromkeys(after):
            of = {prompt: place for place, prompt in enumerate(p for p, found in enumerate(after) if found is prefix)}
            places = [(row, of[prompt]) for row, prompt in zip(rows, prompt_of, strict=True) if prompt in of]
            texts = [prompts[prompt] for prompt in of]
            with self.adapted.reading(adapter):
                self._fill_after(prefix, texts, places) if prefix else self._fill_whole(texts, places, adapter)

    def _fill_after(self, prefix: Prefix, texts: Sequence[NDArray[np.int32]], places: Places) -> None:
        """Read what follows a prefix."""
        rest = [text[prefix.length :] for text in texts]
        if max(map(len, rest)):
            self._read(rest, [row for row, _ in places], [text for _, text in places], after=prefix)
        for row, _ in places:
            self._prefixes[row] = prefix

    def _fill_whole(self, prompts: Sequence[NDArray[np.int32]], places: Places, adapter: LowRankAdapter | None) -> None:
        """Read prompts from their first token."""
        saved_P = [self._bytes(len(ids_T)) * (max(row for row, _ in places) + 1) for ids_T in prompts]
        all_out = self._in_products and max(saved_P) >= (self._prefixes.distinct() + len(prompts)) * PREFIX_BYTES
        worth = [all_out and saved >= PREFIX_BYTES for saved in saved_P]
        found = [
            Prefix(ids_T.copy() if out else NOTHING, adapter=adapter) for ids_T, out in zip(prompts, worth, strict=True)
        ]
        own = [place for place in places if not worth[place[1]]]
        outside = {prompt: prefix for prompt, prefix in enumerate(found) if worth[prompt]}
        self._read(prompts, [row for row, _ in own], [prompt for _, prompt in own], prefixes=outside)
        for row, prompt in places:
            self._prefixes[row] = found[prompt]

    def copy(self, source: int, target: int, length: int) -> None:
        """Let row `target` begin as row `source` does, up to `length`."""
        prefix = self._prefixes[source]
        if prefix.length > length:
            prefix = prefix.cut(length)
        self.kept.copy(source, target, length - prefix.length)
        self._prefixes[target] = prefix

    def join(
        self, source: int, target: int, prompt_T: NDArray[np.int32], adapter: LowRankAdapter | None = None
    ) -> None:
        """Let row `target` begin with the prompt that row `source` begins with; more rows are expected to."""
        worth = self._in_products and JOINING * self._bytes(len(prompt_T)) >= PREFIX_BYTES
        if worth and not self._prefixes[source].length:
            self._prefixes[source] = self.kept.split(source, Prefix(prompt_T.copy(), adapter=adapter))
        self.copy(source, target, len(prompt_T))

    def empty(self, row: int) -> None:
        """Make ready for another sequence."""
        self._prefixes[row] = None

    def forget(self) -> None:
        """Drop what rows share: the weights are others."""
        self._prefixes.forget()

    def release(self) -> None:
        """Give back the memory of the rows, which all have ended; the next ones take it again."""
        super().release()
        self._prefixes.forget()

    def clear(self, row: int, length: int) -> None:
        """Zero what a row has read: `length` tokens."""
        super().clear(row, length)
        self._prefixes[row] = None

    def _step(self, ids_N: Tensor, position_N: Tensor, length: int, rows: AdapterRows | None) -> Tensor:
        place = self._place(position_N, length)
        return self._compute(ids_N, place.rotation, partial(self._attend, place), rows)

    def _compute(self, ids_N: Tensor, rotation: Rotation, attend: Attend, rows: AdapterRows | None) -> Tensor:
        """The logits after one more token in each row, whose keys and values `attend` keeps."""
        x_NW = self._body.embed_tokens(ids_N)
        for index, layer in enumerate(self._layers):
            q_NAD, k_NHD, v_NHD = self._project(layer, x_NW, rotation, rows)
            attended = attend(index, q_NAD, k_NHD, v_NHD).reshape(len(x_NW), -1)
            x_NW = _add(x_NW, attended, layer.out)
            if rows is not None:
                rows.add(attended, layer.out_parts, x_NW)
            normed_NW = self._norm(x_NW, layer.before_mlp)
            both = linear(normed_NW, layer.gate_up)
            if rows is not None:
                rows.add(normed_NW, layer.gate_up_parts, both)
            gate, up = both.chunk(2, dim=-1)
            inner = silu(gate).mul_(up)
            x_NW = _add(x_NW, inner, layer.down)
            if rows is not None:
                rows.add(inner, layer.down_parts, x_NW)
        logits_NV: Tensor = self._head(self._norm(x_NW, self._body.norm.weight))
        return logits_NV

    def constants(self) -> dict[str, Tensor]:
        """Includes the tables of rotations; prompts and steps read different copies."""
        return {**super().constants(), "cosines": self._cos_C1D, "sines": self._sin_C1D}

    @torch.inference_mode()
    def _angles(self) -> tuple[Tensor, Tensor]:
        """Cosine and sine by position; the first half of the sines is negated, for a roll instead of a rotation."""
        like = self._body.embed_tokens.weight[:1, None]
        cos_1CD, sin_1CD = self._body.rotary_emb(like, position_ids=self._position_C[None])
        half = self._width // 2
        sin_1CD = torch.cat([-sin_1CD[..., :half], sin_1CD[..., half:]], -1)
        return cos_1CD[0, :, None], sin_1CD[0, :, None]

    def _place(self, position_N: Tensor, length: int) -> StepPlace:
        prefixes = self._prefixes.arrange(len(position_N))
        column_N = position_N
        if prefixes.spans:
            column_N = position_N - prefixes.base_N
            length = int(column_N.max()) + 1
        head_X = torch.arange(len(position_N) * self._heads, device=position_N.device)
        return StepPlace(
            self._rotate(position_N),
            self._mask(column_N[:, None], length),
            head_X * self._context + column_N.repeat_interleave(self._heads),
            prefixes,
        )

    def _rotate(self, position_N: Tensor) -> Rotation:
        rotated = self._queries + self._heads
        tables = (self._cos_C1D, self._sin_C1D)
        return Rotation(*(table_C1D[position_N].expand(-1, rotated, -1).contiguous() for table_C1D in tables))

    def _project(
        self, layer: FusedLayer, x_NW: Tensor, rotation: Rotation, rows: AdapterRows | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys, normalised if the model does so, and rotated; values."""
        normed_NW = self._norm(x_NW, layer.before_attention)
        joint = linear(normed_NW, layer.qkv, layer.qkv_bias)
        if rows is not None:
            rows.add(normed_NW, layer.qkv_parts, joint)
        q_NAD, k_NHD, v_NHD = joint.view(len(x_NW), -1, self._width).split(
            [self._queries, self._heads, self._heads], dim=1
        )
        u_NUD = joint.view(len(x_NW), -1, self._width)[:, : -self._heads]
        if layer.query_norm is not None and layer.key_norm is not None:
            u_NUD = torch.cat([self._norm(q_NAD, layer.query_norm), self._norm(k_NHD, layer.key_norm)], 1)
        u_NUD = torch.addcmul(u_NUD * rotation.cos_NUD, u_NUD.roll(self._width // 2, -1), rotation.sin_NUD)
        return u_NUD[:, : self._queries], u_NUD[:, self._queries :], v_NHD

    def _attend(self, place: StepPlace, layer: int, q_NAD: Tensor, k_NHD: Tensor, v_NHD: Tensor) -> Tensor:
        """The attention output of each query over its row. Two small matrix products are faster than the CPU's own
        kernel.
        """
        mask_N11L = place.mask_N11L
        kept = self.kept.layers[layer]
        for kept_SHCD, new_NHD in zip(kept, (k_NHD, v_NHD), strict=True):
            kept_SHCD.view(-1, self._width).index_copy_(0, place.slot_X, new_NHD.reshape(-1, self._width))
        count = len(q_NAD)
        length = mask_N11L.shape[-1]
        shared = self._queries // self._heads
        if not self._in_products:
            key_NHLD, value_NHLD = (x_SHCD[:count, :, :length] for x_SHCD in kept)
            attended_NA1D = scaled_dot_product_attention(
                q_NAD[:, :, None], key_NHLD, value_NHLD, mask_N11L, scale=self._scale, enable_gqa=shared > 1
            )
            return attended_NA1D[:, :, 0]
        x = count * self._heads
        key_XLD, value_XLD = (x_SHCD.view(-1, self._context, self._width)[:x, :length] for x_SHCD in kept)
        mask_X1L = mask_N11L.expand(-1, self._heads, -1, -1).reshape(x, 1, length)
        q_XGD = q_NAD.reshape(x, shared, self._width)
        score_XGL = torch.baddbmm(mask_X1L, q_XGD, key_XLD.transpose(1, 2), alpha=self._scale)
        if not place.prefixes.spans:
            return torch.bmm(score_XGL.softmax(-1), value_XLD).view(count, self._queries, self._width)
        before = place.prefixes.attend((q_XGD * self._scale).view(count, self._heads, shared, self._width), layer)
        return attend(score_XGL, value_XLD).join(before).view(count, self._queries, self._width)

    def _bytes(self, length: int) -> int:
        """The size of a layer's keys and values."""
        return 8 * self._heads * self._width * length

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight.shape, weight, self._eps)


def _add(x_NW: Tensor, y: Tensor, layer: nn.Linear) -> Tensor:
    """`x + layer(y)`."""
    x_NW = x_NW if layer.bias is None else x_NW + layer.bias
    return torch.addmm(x_NW, y, layer.weight.t())


def _merge(layer: Any, name: str) -> FusedLayer:
    attention = layer.self_attn
    mlp = layer.mlp
    biased = attention.q_proj.bias is not None
    parts = [attention.get_submodule(part) for part in QKV]
    normed = isinstance(layer, Qwen3DecoderLayer)
    return FusedLayer(
        layer.input_layernorm.weight,
        _join([part.weight for part in parts]),
        _join([part.bias for part in parts]) if biased else None,
        attention.q_norm.weight if normed else None,
        attention.k_norm.weight if normed else None,
        _lay_out(attention.o_proj),
        layer.post_attention_layernorm.weight,
        _join([mlp.gate_proj.weight, mlp.up_proj.weight]),
        _lay_out(mlp.down_proj),
        [(f"{name}.self_attn.{part}", len(attention.get_submodule(part).weight)) for part in QKV],
        [(f"{name}.self_attn.o_proj", len(attention.o_proj.weight))],
        [(f"{name}.mlp.{part}", len(mlp.get_submodule(part).weight)) for part in ("gate_proj", "up_proj")],
        [(f"{name}.mlp.down_proj", len(mlp.down_proj.weight))],
    )


def _lay_out(layer: nn.Linear) -> nn.Linear:
    _join([layer.weight])
    return layer


def _join(parts: Sequence[Tensor]) -> Tensor:
    """One tensor of which the parameters become views: copying into them updates it.

    Weights are kept with the inputs first: products of few rows with them are up to a third faster.
    """
    whole = torch.cat([part.detach() for part in parts])
    whole = whole if whole.ndim == 1 else whole.t().contiguous().t()
    for part, place in zip(parts, whole.split([len(part) for part in parts]), strict=True):
        part.data = place
    return whole


TOLERANCE = {torch.float32: 1e-3}
"""Tolerated difference of logits, as a share of the largest; `COARSE` for other dtypes."""
COARSE = 0.05


def open_network(model: PreTrainedModel, *, slots: int, context: int, vision: Vision | None = None) -> CachedNetwork:
    """A network for a model; a ConfigError if its cached steps differ from the model's own forward pass."""
    if is_fusible(model):
        network: CachedNetwork = FusedNetwork(model, slots=slots, context=context)
    else:
        network = CachedNetwork(model, slots=slots, context=context, vision=vision)
    prove(network, slots=slots, context=context)
    return network


@torch.inference_mode()
def prove(network: CachedNetwork, *, slots: int, context: int) -> None:
    """Compare two sequences of different length, read as the engine reads them and in one pass each."""
    if slots < 2 or context < 7:
        return
    model = network.model
    vocabulary = int(model.config.get_text_config().vocab_size)
    whole = [(np.arange(length) * 7 + length).astype(np.int32) % vocabulary for length in (4, 6)]
    network.fill([ids[:-2] for ids in whole], [1, 0], [0, 1])
    for last in (-2, -1):
        ids_N = torch.tensor([whole[1][last], whole[0][last]], device=model.device)
        position_N = torch.tensor([6 + last, 4 + last], device=model.device)
        got_NV = network.step(ids_N.long(), position_N, 7 + last)
    for row, ids in ((0, whole[1]), (1, whole[0])):
        ids_1T = torch.from_numpy(ids).long().to(model.device)[None]
        expected_V = model(input_ids=ids_1T, use_cache=False).logits[0, -1]
        apart = float((got_NV[row] - expected_V).abs().max() / expected_V.abs().max().clamp(min=1))
        if apart > TOLERANCE.get(model.dtype, COARSE):
            raise ConfigError(
                f"model {type(model).__name__}: with cached keys and values its logits are off by {apart:.1%}. "
                "It does not take position_ids, a 4-D mask and a cache as other models do: use another engine."
            )
    network.release()
