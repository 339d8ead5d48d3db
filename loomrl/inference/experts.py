"""Several experts on one trunk: π(a|s) = Σ wₖ(s) πₖ(a|s), token by token, as the last layer of a model.

Each expert changes the last hidden state before the model's own output embedding, by a matrix of low rank; a gate on
the same state weighs them. What the layer puts out in place of logits are exact log-probabilities, so that everything
behind it is as it was: sampling, temperature, entropy, the learner's loss.

Axes: `_H` hidden size, `_V` vocabulary, `_K` experts, `_R` rank.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel

from loomrl.errors import ConfigError

SETTING = "loomrl_experts"
"""The number of experts and their rank, in the configuration of a model that has some."""


class ExpertHead(nn.Linear):
    """An output embedding with experts. Its weight stays the model's, tied or not."""

    def __init__(self, base: nn.Linear, experts: int, rank: int, *, seed: int = 0) -> None:
        super().__init__(base.in_features, base.out_features, bias=base.bias is not None, device="meta")
        self.weight = base.weight
        self.bias = base.bias
        like = base.weight
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            narrow = torch.randn(experts, rank, base.in_features) * base.in_features**-0.5
        self.narrow_KRH = nn.Parameter(narrow.to(like))
        self.widen_KHR = nn.Parameter(like.new_zeros(experts, base.in_features, rank))
        self.gate = nn.Linear(base.in_features, experts).to(like)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """log π: normalised, in float32."""
        changed = torch.einsum("krh,...h->...kr", self.narrow_KRH, hidden)
        each = hidden[..., None, :] + torch.einsum("khr,...kr->...kh", self.widen_KHR, changed)
        logp = linear(each, self.weight, self.bias).float().log_softmax(-1)
        return (logp + self.log_weights(hidden)[..., None]).logsumexp(-2)

    def log_weights(self, hidden: Tensor) -> Tensor:
        """log wₖ, in float32."""
        weights: Tensor = self.gate(hidden).float().log_softmax(-1)
        return weights


def attach(model: PreTrainedModel, experts: int, rank: int, *, seed: int = 0) -> None:
    """Give a model experts that are equal until they are trained."""
    base: Any = model.get_output_embeddings()
    if type(base) is not nn.Linear:
        raise ConfigError(f"algorithm.experts={experts}: the last layer of {type(model).__name__} is no linear one.")
    model.set_output_embeddings(ExpertHead(base, experts, rank, seed=seed))
    setattr(model.config, SETTING, {"count": experts, "rank": rank})


def restore(model: PreTrainedModel, folder: Path) -> None:
    """The experts that are in the folder which a model was opened from, if it has any."""
    asked = getattr(model.config, SETTING, None)
    if asked is None:
        return
    attach(model, asked["count"], asked["rank"])
    head = model.get_output_embeddings()
    (name,) = (name for name, part in model.named_modules() if part is head)
    wanted = {f"{name}.{key}": tensor for key, tensor in head.state_dict().items() if key not in ("weight", "bias")}
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            found |= {key: tensors.get_tensor(key) for key in wanted.keys() & tensors.keys()}
    missing = sorted(wanted.keys() - found.keys())
    if missing:
        shown = ", ".join(missing[:3])
        raise ConfigError(f"model path={str(folder)!r}: {len(missing)} weights of its experts are missing ({shown}).")
    with torch.no_grad():
        for key, tensor in found.items():
            wanted[key].copy_(tensor)


def refuse_experts(folder: Path, engine: str) -> None:
    """A ConfigError if the model in this folder has experts, which `engine` does not know."""
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return  # which the engine says itself
    if SETTING in config:
        raise ConfigError(
            f"model path={str(folder)!r} has {config[SETTING]['count']} experts, whose mixture {engine} cannot sample "
            "from: serve it with engine.kind=torch, or train with algorithm.experts=1."
        )
