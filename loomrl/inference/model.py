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


def open_model(
    path: str | Path, *, dtype: str = "float32", device: str = "cpu", trust_remote_code: bool = False
) -> PreTrainedModel:
    """The causal language model in a folder, with all its weights, in evaluation mode.

    `trust_remote_code`: Python files in the folder may run, if transformers does not know the model. They can do
    all that this process can.
    """
    if dtype not in DTYPES:
        raise ConfigError(unknown("dtype", dtype, DTYPES))
    config = config_of(path, trust_remote_code=trust_remote_code)
    try:
        with without_progress_bar():
            opened: Any = kind_of(config).from_pretrained(
                path,
                local_files_only=True,
                trust_remote_code=trust_remote_code,
                dtype=DTYPES[dtype],
                attn_implementation="sdpa",
                output_loading_info=True,
            )
    except Exception as error:  # the boundary
        raise _refusal(path, "model", error) from error
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


def config_of(path: str | Path, *, trust_remote_code: bool = False) -> Any:
    """The configuration of the model in a folder."""
    _require(path, "config.json", "model")
    try:
        return AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=trust_remote_code)
    except Exception as error:  # the boundary
        raise _refusal(path, "model", error) from error


def skeleton_of(config: Any, *, trust_remote_code: bool = False) -> Any:
    """A model with this configuration, without weights."""
    with torch.device("meta"):
        model: Any = kind_of(config).from_config(config, trust_remote_code=trust_remote_code)
    model.tie_weights()
    return model


def vocabulary_of(path: str | Path, *, trust_remote_code: bool = False) -> int:
    """The number of token ids of the model in a folder."""
    return int(config_of(path, trust_remote_code=trust_remote_code).get_text_config().vocab_size)


def open_tokenizer(path: str | Path, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer in a folder; a ConfigError if it has ids that the model beside it has no embeddings for."""
    _require(path, "tokenizer_config.json", "tokenizer")
    rows = None  # asked for first: without its configuration transformers guesses which tokenizer it is, aloud
    if (Path(path) / "config.json").is_file():
        rows = vocabulary_of(path, trust_remote_code=trust_remote_code)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=trust_remote_code
        )
    except Exception as error:  # the boundary
        raise _refusal(path, "tokenizer", error) from error
    if rows is not None:
        _refuse_strange_ids(path, tokenizer, rows)
    return tokenizer


def _refuse_strange_ids(path: str | Path, tokenizer: PreTrainedTokenizerBase, rows: int) -> None:
    """More rows than ids are padding; more ids than rows end in an index error, or read memory of others on a GPU."""
    strange = sorted((id, token) for token, id in tokenizer.get_vocab().items() if id >= rows)
    if strange:
        id, token = strange[0]
        raise ConfigError(
            f"tokenizer path={str(path)!r}: {len(strange)} ids, from {id} ({token!r:.60}) on, have no embedding: "
            f"the model has {rows}. Use the tokenizer the model was trained with, or add embeddings to the model "
            "(model.resize_token_embeddings) and train them."
        )


def save_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    folder: str | Path,
    *,
    vision: Files | None = None,
) -> None:
    """Write all files so that `AutoModelForCausalLM`, `AutoTokenizer`, `AutoProcessor` and vLLM can load them; without
    a tokenizer, those of the model alone.
    """
    with without_progress_bar():
        model.save_pretrained(folder)
    if vision is not None:
        vision.save(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)


@contextmanager
def without_progress_bar() -> Iterator[None]:
    """Load or save weights without transformers' bar."""
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


def _refusal(path: str | Path, what: str, error: Exception) -> ConfigError:
    if "trust_remote_code" in str(error):
        files = ", ".join(sorted(file.name for file in Path(path).glob("*.py"))) or "of another repository"
        return ConfigError(
            f"{what} path={str(path)!r} needs Python code of its own ({files}), which could do all that you can. "
            "LoomRL runs none unless the settings say so: read that code, then set trust_remote_code=true: "
            "algorithm.model.trust_remote_code to train or evaluate, engine.trust_remote_code to serve, and "
            "trust_remote_code in a gate's suite. Or convert the model to an architecture that transformers knows."
        )
    cause = " ".join(str(error).split())[:300]
    return ConfigError(f"{what} path={str(path)!r} cannot be opened: {type(error).__name__}: {cause}")
