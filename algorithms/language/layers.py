"""How the layers of a model run: compiled, and computed again for the backward pass."""

from functools import partial

from torch.fx.experimental import _config as shapes
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from loomrl.errors import ConfigError


def compile_layers(lm: PreTrainedModel, *, backend: str = "inductor") -> None:
    """Compile the layers: one graph for all of them and for flat rows of every length."""
    shapes.use_duck_shape = False  # else a first row without shared prompts, with a key per token, has its own graph
    for layer in _layers(lm, "learners.compile"):
        layer.compile(backend=backend, fullgraph=True, dynamic=True)


def compute_layers_twice(lm: PreTrainedModel) -> None:
    """Keep no activations inside layers: the backward pass recomputes them.

    Hugging Face's own switch works in training mode only.
    """
    for layer in _layers(lm, "model.gradient_checkpointing"):
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)


def _layers(lm: PreTrainedModel, setting: str) -> list[GradientCheckpointingLayer]:
    layers = [layer for layer in lm.modules() if isinstance(layer, GradientCheckpointingLayer)]
    if not layers:
        raise ConfigError(f"{setting}=True: {type(lm).__name__} has no layers that support it.")
    return layers
