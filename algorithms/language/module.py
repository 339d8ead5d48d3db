"""The RLModule of a token policy: a causal language model, and a value head where the algorithm has one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from algorithms.language.looking import looked_at
from algorithms.language.score import Scores, score
from loomrl.config import LanguageModel, Lora
from loomrl.errors import ConfigError
from loomrl.inference.model import open_model
from loomrl.inference.vision import open_vision


class LanguageModule(TorchRLModule):  # type: ignore[misc]
    """Scores given tokens: log-probability, entropy and value at each chosen position, in one forward pass."""

    lm: PreTrainedModel

    def setup(self) -> None:
        """Load the first weights and attach what the settings ask for."""
        settings: LanguageModel = self.model_config["model"]
        self.lm = open_model(self.model_config["origin"], dtype=settings.dtype)
        self.vision = open_vision(self.model_config["origin"])
        _refuse_altered_logits(self.lm, self.model_config["origin"])
        if settings.gradient_checkpointing:
            self.lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if settings.lora is not None:
            _attach(self.lm, settings.lora)
        self.value: nn.Linear | None = None
        if self.model_config["value"]:
            self.value = nn.Linear(self.lm.config.get_text_config().hidden_size, 1)
            nn.init.zeros_(self.value.weight)
            nn.init.zeros_(self.value.bias)

    def _forward(self, batch: Mapping[str, Any], **_: Any) -> Scores:
        if self.vision is not None:
            batch = {**batch, "embeds_BTH": looked_at(self.lm, self.vision, batch)}
        return score(self.lm, batch, temperature=self.model_config["temperature"], value=self.value)

    def _forward_train(self, batch: Mapping[str, Any], **_: Any) -> Scores:
        return self._forward(batch)

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The weights as NumPy arrays, where these are there and NumPy knows their type (else see `whole_state`)."""
        if any(isinstance(p, DTensor) or p.dtype is torch.bfloat16 for p in self.parameters()):
            return {}
        return super().get_state(*args, **kwargs)  # type: ignore[no-any-return]

    def merged(self) -> dict[str, Tensor]:
        """The language model's weights as an engine takes them: low-rank additions added, names as in the origin."""
        if self.model_config["model"].lora is None:
            return dict(self.lm.state_dict())
        return _merged(self.lm)


def _refuse_altered_logits(lm: PreTrainedModel, origin: Path) -> None:
    """We take logits from the hidden state with the output embedding; a model that does more would be misread."""
    probe = torch.arange(4)[None] % lm.config.get_text_config().vocab_size
    with torch.no_grad():
        theirs = lm(input_ids=probe, use_cache=False).logits
        ours = lm.get_output_embeddings()(lm.base_model(input_ids=probe, use_cache=False).last_hidden_state)
    if not torch.allclose(theirs, ours, atol=1e-3, rtol=1e-3):
        raise ConfigError(
            f"model.path={str(origin)!r}: {type(lm).__name__} changes its logits behind the output embedding "
            "(scaling or capping), which the learner does not follow. Choose a model without it."
        )


def _attach(lm: PreTrainedModel, lora: Lora) -> None:
    """Freeze the weights and add trainable low-rank ones."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ConfigError(
            f"model.lora: peft cannot be imported ({error}). Install: pip install 'loomrl[lora]'."
        ) from None
    targets = list(lora.targets) or "all-linear"
    settings = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=targets)
    for parameter in lm.parameters():
        parameter.requires_grad_(False)
    inject_adapter_in_model(settings, lm)


def _merged(lm: PreTrainedModel) -> dict[str, Tensor]:
    from peft.tuners.lora import LoraLayer

    layers: dict[str, Any] = {name: layer for name, layer in lm.named_modules() if isinstance(layer, LoraLayer)}
    merged = {}
    for name, tensor in lm.state_dict().items():
        if ".lora_" in name:
            continue
        owner = name.removesuffix(".base_layer.weight")
        if owner in layers:
            tensor = tensor + layers[owner].get_delta_weight("default").to(tensor.dtype)
        merged[name.replace(".base_layer.", ".")] = tensor
    return merged


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Without dropout; afterwards every part is as it was."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def without_adapters(lm: PreTrainedModel, *, enabled: bool) -> None:
    """Switch low-rank additions off (the policy of the beginning) or on again."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    for layer in lm.modules():
        if isinstance(layer, BaseTunerLayer):
            layer.enable_adapters(enabled)
