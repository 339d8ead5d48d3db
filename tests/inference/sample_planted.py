"""A model's folder that brings Python code of its own, which leaves a mark when it runs."""

import json
from pathlib import Path

from loomrl.inference.model import save_model
from tests.inference.sample_models import tiny_model, tiny_tokenizer

CODE = """
from pathlib import Path

from transformers import LlamaConfig, LlamaForCausalLM

Path({mark!r}).touch()


class PlantedConfig(LlamaConfig):
    model_type = "planted"


class PlantedForCausalLM(LlamaForCausalLM):
    config_class = PlantedConfig
"""
TOKENIZER = """
from pathlib import Path

from transformers import PreTrainedTokenizerFast

Path({mark!r}).touch()


class PlantedTokenizerFast(PreTrainedTokenizerFast):
    pass
"""


def planted(folder: Path, mark: Path, *, parts: str = "model tokenizer") -> Path:
    """A Llama under a name that transformers does not know, so that only the folder's own files can open it."""
    save_model(tiny_model(), tiny_tokenizer(), folder)
    if "model" in parts:
        (folder / "planted_model.py").write_text(CODE.format(mark=str(mark)))
        names = {"AutoConfig": "PlantedConfig", "AutoModelForCausalLM": "PlantedForCausalLM"}
        auto_map = {kind: f"planted_model.{name}" for kind, name in names.items()}
        _add(folder / "config.json", model_type="planted", architectures=["PlantedForCausalLM"], auto_map=auto_map)
    if "tokenizer" in parts:
        (folder / "planted_tokenizer.py").write_text(TOKENIZER.format(mark=str(mark)))
        auto_map = {"AutoTokenizer": [None, "planted_tokenizer.PlantedTokenizerFast"]}
        _add(folder / "tokenizer_config.json", tokenizer_class="PlantedTokenizer", auto_map=auto_map)
    return folder


def _add(file: Path, **settings: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
