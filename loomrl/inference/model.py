"""Language models and tokenizers as folders in Hugging Face's format. Nothing here uses the network."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from loomrl.errors import ConfigError, unknown
from loomrl.inference.experts import restore

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def open_model(path: str | Path, *, dtype: str = "float32", device: str = "cpu") -> PreTrainedModel:
    """The causal language model in a folder, with all its weights, in evaluation mode."""
    if dtype not in DTYPES:
        raise ConfigError(unknown("dtype", dtype, DTYPES))
    _require(path, "config.json", "model")
    try:
        with _without_progress_bar():
            opened: Any = kind_of(config_of(path)).from_pretrained(
                path,
                local_files_only=True,
                dtype=DTYPES[dtype],
                attn_implementation="sdpa",
                output_loading_info=True,
            )
    except Exception as error:  # the boundary
        raise _refused(path, "model", error) from error
    model, found = opened
    wrong = sorted({*found["missing_keys"], *(str(key) for key in found["mismatched_keys"])})
    if wrong:
        shown = ", ".join(wrong[:3])
        raise ConfigError(
            f"model path={str(path)!r}: {len(wrong)} weights are missing or of another shape ({shown}); "
            "they would be random. Save the whole model with loomrl.inference.model.save_model."
        )
    restore(model, Path(path))
    moved: PreTrainedModel = model.to(device).eval()
    return moved


def kind_of(config: Any) -> Any:
    """The class that opens a model with this configuration."""
    return AutoModelForImageTextToText if sees(config) else AutoModelForCausalLM


class Files(Protocol):
    """Further files of a model's folder."""

    def save(self, folder: str | Path) -> None:
        """Write them into the folder."""


def sees(config: Any) -> bool:
    """True if a model with this configuration takes pictures."""
    return getattr(config, "vision_config", None) is not None


def config_of(path: str | Path) -> Any:
    """The configuration of the model in a folder."""
    _require(path, "config.json", "model")
    return AutoConfig.from_pretrained(path, local_files_only=True)


def vocabulary_of(path: str | Path) -> int:
    """The number of token ids of the model in a folder."""
    return int(config_of(path).get_text_config().vocab_size)


def open_tokenizer(path: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer in a folder."""
    _require(path, "tokenizer_config.json", "tokenizer")
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except Exception as error:  # the boundary
        raise _refused(path, "tokenizer", error) from error
    return tokenizer


def save_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    *,
    vision: Files | None = None,
) -> None:
    """Write all files so that `AutoModelForCausalLM`, `AutoTokenizer`, `AutoProcessor` and vLLM can load them."""
    with _without_progress_bar():
        model.save_pretrained(folder)
    if vision is not None:
        vision.save(folder)
    tokenizer.save_pretrained(folder)


@contextmanager
def _without_progress_bar() -> Iterator[None]:
    bars: Any = logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def _require(path: str | Path, file: str, what: str) -> None:
    if not (Path(path) / file).is_file():
        found = "no such folder" if not Path(path).is_dir() else f"the folder has no {file}"
        raise ConfigError(
            f"{what} path={str(path)!r}: {found}. Give a local folder in Hugging Face's format, "
            "such as the one that training leaves behind."
        )


def _refused(path: str | Path, what: str, error: Exception) -> ConfigError:
    cause = " ".join(str(error).split())[:300]
    return ConfigError(f"{what} path={str(path)!r} cannot be opened: {type(error).__name__}: {cause}")
