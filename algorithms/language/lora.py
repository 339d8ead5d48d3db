"""Low-rank adaptation (LoRA) of a model, and its files in peft's format."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from loomrl.config import Lora
from loomrl.errors import ConfigError
from loomrl.inference.weights.adapter import NARROW, WIDEN

NAME = "default"
"""peft's name for a model's only adapter; files omit it."""


def attach(lm: PreTrainedModel, lora: Lora) -> None:
    """Freeze the weights and add trainable low-rank ones."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ConfigError(
            f"model.lora: peft cannot be imported ({error}). Install: pip install 'loomrl[lora]'."
        ) from None
    _refuse_other_layers(lm, lora.targets)
    targets = list(lora.targets) or "all-linear"
    settings = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=targets,
        fan_in_fan_out=any(isinstance(layer, Conv1D) for layer in lm.modules()),  # GPT-2 keeps its weights turned
    )
    for parameter in lm.parameters():
        parameter.requires_grad_(False)
    inject_adapter_in_model(settings, lm)
    for parameter in lm.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()  # in bfloat16, small steps would be rounded away


def _refuse_other_layers(lm: PreTrainedModel, targets: Sequence[str]) -> None:
    """Engines add to linear layers only."""
    layers = {name: type(layer) in (nn.Linear, Conv1D) for name, layer in lm.named_modules()}
    others = [name for name, is_linear in layers.items() if not is_linear and name.endswith(tuple(targets))]
    if targets and others:
        linear = sorted({name.rpartition(".")[2] for name, is_linear in layers.items() if is_linear})
        raise ConfigError(
            f"model.lora.targets: {others[0]} is not a linear layer. Choose from {', '.join(linear)}, or leave targets "
            "empty for all of them."
        )


def _adapted(lm: PreTrainedModel) -> dict[str, Any]:
    from peft.tuners.lora import LoraLayer

    return {name: layer for name, layer in lm.named_modules() if isinstance(layer, LoraLayer)}


def base_weights(lm: PreTrainedModel) -> dict[str, Tensor]:
    """The weights without the low-rank additions, under their original names."""
    named = lm.state_dict().items()
    return {name.replace(".base_layer.", "."): tensor for name, tensor in named if ".lora_" not in name}


def merge_adapter(lm: PreTrainedModel) -> dict[str, Tensor]:
    """The weights with the low-rank additions merged, under their original names."""
    whole = base_weights(lm)
    for owner, layer in _adapted(lm).items():
        tensor = whole[f"{owner}.weight"]
        whole[f"{owner}.weight"] = (tensor.float() + layer.get_delta_weight(NAME).float()).to(tensor.dtype)
    return whole


def additions(lm: PreTrainedModel) -> dict[str, Tensor]:
    """The low-rank additions as engines take them (`weights.adapter`); shards stay shards."""
    found = {}
    for owner, layer in _adapted(lm).items():
        found[owner + NARROW] = layer.lora_A[NAME].weight
        found[owner + WIDEN] = layer.lora_B[NAME].weight * layer.scaling[NAME]
    return found


@dataclass(frozen=True, slots=True)
class Adapter:
    """The additions by the names in peft's files, and peft's settings for them."""

    tensors: Mapping[str, Tensor]
    settings: Any
    base: str
    """The identity of the weights that they are added to."""

    @staticmethod
    def of(lm: PreTrainedModel, *, base: str) -> "Adapter":
        """The adapter of a model; shards stay shards."""
        named = lm.state_dict().items()
        own = {f"base_model.model.{name.replace(f'.{NAME}.', '.')}": one for name, one in named if ".lora_" in name}
        return Adapter(own, lm.peft_config[NAME], base)

    def save(self, folder: Path, *, base: str) -> None:
        """Write the files that `peft.PeftModel.from_pretrained` adds to the model in `base`."""
        settings = copy(self.settings)
        settings.base_model_name_or_path = base
        settings.task_type = "CAUSAL_LM"
        settings.inference_mode = True
        folder.mkdir()
        settings.save_pretrained(str(folder))
        save_file(dict(self.tensors), folder / "adapter_model.safetensors")


def without_adapters(lm: PreTrainedModel, *, enabled: bool) -> None:
    """Switch low-rank additions off (for the reference policy) or on again."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    for layer in lm.modules():
        if isinstance(layer, BaseTunerLayer):
            layer.enable_adapters(enabled)
