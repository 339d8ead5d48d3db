"""How the layers of a model run: compiled, and computed again for the backward pass."""

from functools import partial
from typing import Any, Literal

import torch
from torch._dynamo import config as dynamo
from torch.fx.experimental import _config as shapes
from torch.nn.attention import varlen  # noqa: F401 - defines an operator
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from loomrl.errors import ConfigError

PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}
CHEAP = 128
"""Terms of a number below which a product is made again: of low-rank additions it would double what is kept."""
ATTENTIONS = {
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.torch_attn._varlen_attn.default,
}
"""Not those that are made of products: they would keep the scores of all pairs of tokens."""


def compile_layers(lm: PreTrainedModel, *, backend: str = "inductor") -> None:
    """Compile the layers: one graph for all of them and for flat rows of every length."""
    shapes.use_duck_shape = False  # else a first row without shared prompts, with a key per token, has its own graph
    # `precision` puts cast parameters into a layer and takes them out again, which the backward pass need not repeat
    dynamo.skip_fwd_side_effects_in_bwd_under_checkpoint = True
    for layer in _layers(lm, "learners.compile"):
        layer.compile(backend=backend, fullgraph=True, dynamic=True)


def recompute_layers(lm: PreTrainedModel, extent: Literal["selective", "full"]) -> None:
    """Keep the inputs of layers alone for the backward pass, which computes the rest again: all of it, or what is
    neither a matrix product nor attention.

    Hugging Face's own switch works in training mode only.
    """
    settings: dict[str, Any] = {"use_reentrant": False}
    if extent == "selective":
        settings["context_fn"] = partial(create_selective_checkpoint_contexts, _is_kept)
    for layer in _layers(lm, "model.recompute"):
        layer.forward = partial(_recompute, layer.forward, settings)


def _recompute(forward: Any, settings: Any, *args: Any, **kwargs: Any) -> Any:
    """A frame of Python, without which `torch.compile` finds nothing to compile in a layer."""
    return checkpoint(forward, *args, **settings, **kwargs)


def _is_kept(context: Any, operator: Any, *args: Any, **_: Any) -> CheckpointPolicy:
    if (operator in PRODUCTS and args[-1].shape[0] >= CHEAP) or operator in ATTENTIONS:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


def _layers(lm: PreTrainedModel, setting: str) -> list[GradientCheckpointingLayer]:
    layers = [layer for layer in lm.modules() if isinstance(layer, GradientCheckpointingLayer)]
    if not layers:
        raise ConfigError(f"{setting}: {type(lm).__name__} has no layers that support it.")
    return layers
