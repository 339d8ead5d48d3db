"""The memory of models, from their configuration alone: before any weights are loaded."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from loomrl.inference.model import skeleton_of

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number, by its format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes of a model from which its memory follows."""

    parameters: int
    layers: int
    hidden: int
    intermediate: int
    keys: int
    """Width of a token's keys in a layer, and of its values."""
    vocabulary: int
    adapted: int
    """Parameters of additions of rank 1 to all linear layers but the last."""

    @classmethod
    def of(cls, config: Any, *, trust_remote_code: bool = False) -> "ModelShape":
        """The shape of a model with this configuration (`loomrl.inference.model.config_of`)."""
        text = config.get_text_config()
        model = skeleton_of(config, trust_remote_code=trust_remote_code)
        head = model.get_output_embeddings()
        linear = [part for part in model.modules() if isinstance(part, nn.Linear) and part is not head]
        width = getattr(text, "head_dim", None) or text.hidden_size // _queries(text)
        return cls(
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            layers=text.num_hidden_layers,
            hidden=text.hidden_size,
            intermediate=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
            keys=key_heads(config) * width,
            vocabulary=text.vocab_size,
            adapted=sum(part.in_features + part.out_features for part in linear),
        )

    def cache_bytes(self, tokens: int, dtype: str) -> int:
        """Keys and values of so many tokens."""
        return 2 * self.layers * self.keys * tokens * BYTES[dtype]

    def engine_bytes(self, dtype: str) -> int:
        """The weights in an engine while it is opened, without pages of their file, which the system can drop."""
        return 6 * self.parameters * BYTES[dtype] // 5


def key_heads(config: Any) -> int:
    """The heads of keys in a layer of a model with this configuration."""
    text = config.get_text_config()
    return getattr(text, "num_key_value_heads", None) or _queries(text)


def _queries(text: Any) -> int:
    return getattr(text, "num_attention_heads", None) or 1
