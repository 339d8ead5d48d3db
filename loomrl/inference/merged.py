"""A version that is low-rank additions to a base: merged into a whole model, or the additions alone."""

import json
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from loomrl.errors import ConfigError
from loomrl.inference.model import open_model, save_model
from loomrl.inference.weights.adapter import WIDEN, merge, open_adapter
from loomrl.inference.weights.sealed import Sealed, identify
from loomrl.run.version import BASE, BASE_FILE


def whole_model(checkpoint: Path, *, trust_remote_code: bool = False) -> Path:
    """The model's folder in a copy of a checkpoint; low-rank additions are merged into the base that lies beside it."""
    folder = checkpoint / "model"
    reference = checkpoint / BASE_FILE
    if not reference.is_file():
        return folder
    about = json.loads(reference.read_text())
    base = checkpoint.with_name(BASE)
    model = open_model(base, dtype=about["dtype"], trust_remote_code=trust_remote_code)
    if identify(model.state_dict().items()) != about["identity"]:
        raise ConfigError(f"model path={str(base)!r} is not the base that the low-rank additions were trained on.")
    sealed = sealed_adapter(checkpoint)
    _untie(model, sealed)
    model.load_state_dict(merge(model.state_dict(), model, sealed))
    save_model(model, None, folder)
    return folder


def _untie(model: PreTrainedModel, sealed: Sealed) -> None:
    """Give the output layer weights of its own if only it has additions, and it is the input embedding too."""
    head: Any = model.get_output_embeddings()
    read: Any = model.get_input_embeddings()
    name = next(name for name, layer in model.named_modules() if layer is head)
    if head.weight is read.weight and name + WIDEN in sealed.weights:
        head.weight = nn.Parameter(head.weight.detach().clone())
        model.config.get_text_config().tie_word_embeddings = False
        model.config.tie_word_embeddings = False


def sealed_adapter(checkpoint: Path, version: int = 0) -> Sealed:
    """The low-rank additions in a copy of a checkpoint, for an engine that holds their base."""
    about = json.loads((checkpoint / BASE_FILE).read_text())
    return open_adapter(checkpoint / "adapter", base=about["identity"], version=version)
