"""An adapter as it travels: low-rank additions by the names of a model's linear layers, and the base they belong to.

Each layer has two factors, named as peft names them: `LAYER.lora_A.weight` [R, I] and `LAYER.lora_B.weight` [O, R]. The
scale is in the second.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from loomrl.errors import ConfigError, PolicyError, did_you_mean
from loomrl.inference.weights.sealed import Sealed, seal

NARROW = ".lora_A.weight"
WIDEN = ".lora_B.weight"


class Factors(NamedTuple):
    """The addition to a linear layer: what the layer puts out is increased by `widen · narrow · x`."""

    narrow_RI: Tensor
    widen_OR: Tensor


def open_adapter(folder: Path, *, base: str, version: int = 0) -> Sealed:
    """The adapter in a folder of peft's, for a base of this identity."""
    try:
        settings = json.loads((folder / "adapter_config.json").read_text())
        rank = settings["r"]
        alpha = settings["lora_alpha"]
        tensors = load_file(folder / "adapter_model.safetensors")
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(f"adapter path={str(folder)!r} cannot be read: {cause}. Restore it from a copy.") from None
    odd = [name for name in ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern") if settings.get(name)]
    if odd or settings.get("peft_type") != "LORA":
        raise ConfigError(
            f"adapter path={str(folder)!r}: {odd[0] if odd else 'peft_type'} is not followed, only LoRA of one rank "
            "and alpha is. Merge it into its base with peft, and use the whole model."
        )
    if rank < 1:
        raise ConfigError(f"adapter path={str(folder)!r}: rank r={rank}, and 1 or more is needed.")
    scale = alpha / rank
    weights = {}
    for key, tensor in tensors.items():
        name = key.removeprefix("base_model.model.")
        weights[name] = tensor.float() * scale if name.endswith(WIDEN) else tensor
    return seal(weights, version, base=base)


def refuse_other_base(sealed: Sealed, identity: str) -> None:
    """A PolicyError for an adapter that belongs to another base than the engine's."""
    if sealed.base != identity:
        raise PolicyError(
            f"adapter of version {sealed.version}: it was trained on base {str(sealed.base)[:12]}, the engine has "
            f"base {identity[:12]}. Open the engine with the model that the adapter's run began with."
        )


def factors_of(model: nn.Module, sealed: Sealed) -> dict[str, Factors]:
    """The additions by layer, in float32; a PolicyError if they do not fit the model."""
    layers = {name: layer for name, layer in model.named_modules() if type(layer) in (nn.Linear, Conv1D)}
    given = sealed.weights
    owners = dict.fromkeys(name.removesuffix(NARROW).removesuffix(WIDEN) for name in given)
    if not owners:
        raise _misfit(sealed, "it adds to no layer")
    found = {}
    for owner in owners:
        if owner not in layers:
            raise _misfit(
                sealed, f"{owner!r} is none of the model's {len(layers)} linear layers.{did_you_mean(owner, layers)}"
            )
        found[owner] = _factors(sealed, owner, _sizes(layers[owner]))
    return found


def merge(weights: Mapping[str, Tensor], model: nn.Module, sealed: Sealed) -> dict[str, Tensor]:
    """All of the model's weights, with the additions in them."""
    merged = dict(weights)
    for owner, factors in factors_of(model, sealed).items():
        name = f"{owner}.weight"
        added_OI = factors.widen_OR @ factors.narrow_RI
        added = added_OI.t() if isinstance(model.get_submodule(owner), Conv1D) else added_OI
        merged[name] = (weights[name].float() + added.to(weights[name].device)).to(weights[name].dtype)
    return merged


def _factors(sealed: Sealed, owner: str, sizes: tuple[int, int]) -> Factors:
    missing = [name for name in (owner + NARROW, owner + WIDEN) if name not in sealed.weights]
    if missing:
        raise _misfit(sealed, f"{missing[0]!r} is missing")
    narrow_RI = sealed.weights[owner + NARROW]
    widen_OR = sealed.weights[owner + WIDEN]
    inputs, outputs = sizes
    rank = len(narrow_RI)
    shapes = (tuple(narrow_RI.shape), tuple(widen_OR.shape))
    if rank == 0 or shapes != ((rank, inputs), (outputs, rank)):
        raise _misfit(
            sealed,
            f"{owner} has additions of shapes {shapes[0]} and {shapes[1]}; a rank of 1 or more is needed, and shapes "
            f"(rank, {inputs}) and ({outputs}, rank)",
        )
    for name in (owner + NARROW, owner + WIDEN):
        if not sealed.weights[name].is_floating_point() or not bool(torch.isfinite(sealed.weights[name]).all()):
            raise _misfit(sealed, f"{name} has values that are not finite numbers")
    return Factors(narrow_RI.detach().float(), widen_OR.detach().float())


def _sizes(layer: Any) -> tuple[int, int]:
    """Inputs and outputs."""
    if isinstance(layer, Conv1D):  # GPT-2 keeps its weights turned
        return int(layer.nx), int(layer.nf)
    return int(layer.in_features), int(layer.out_features)


def _misfit(sealed: Sealed, cause: str) -> PolicyError:
    return PolicyError(f"adapter of version {sealed.version}: {cause}. The engine keeps the weights it has.")
