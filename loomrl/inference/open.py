"""Opens an engine by its kind."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from loomrl.config.engine import EngineChoice, OpenAIEngineConfig, TorchEngineConfig, VllmEngineConfig
from loomrl.errors import ConfigError
from loomrl.inference.chat import Spelling
from loomrl.inference.engine import Engine
from loomrl.inference.footprint import ModelShape
from loomrl.inference.form import FormCompiler
from loomrl.inference.model import config_of, open_model, open_tokenizer, vocabulary_of
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.torch.graph_engine import GraphEngine
from loomrl.inference.vision import open_vision
from loomrl.process import free_memory, return_freed_memory

SPARED = 0.9
"""Share of the free memory that an engine may fill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The arguments for opening an engine of any kind."""

    origin: Path
    """Folder of the model."""
    context: int
    slots: int
    """Maximum number of open requests."""
    dtype: str = "float32"
    device: str = "cpu"
    trust_remote_code: bool = False
    """Python files in the model's folder may run."""
    version: int = 0
    """The policy version that its tokens record."""


def open_engine(choice: EngineChoice, opening: Opening) -> Engine:
    """An engine of this kind in this process; vLLM's are opened by `open_fleet` or `VllmEngine.open`."""
    trusts = opening.trust_remote_code
    match choice:
        case TorchEngineConfig():
            if choice.graphs and opening.device == "cpu":
                raise ConfigError("engine.graphs=true: a CPU has no graphs. Open the engine on a GPU, or without them.")
            model = open_model(opening.origin, dtype=opening.dtype, device=opening.device, trust_remote_code=trusts)
            vision = open_vision(opening.origin, trust_remote_code=trusts)
            engine = (GraphEngine if choice.graphs else TorchEngine)(
                model,
                slots=opening.slots,
                context=opening.context,
                version=opening.version,
                vision=vision,
                forms=open_forms(opening.origin, trust_remote_code=trusts),
            )
            return_freed_memory()
            return engine
        case OpenAIEngineConfig():
            from loomrl.inference.remote.engine import OpenAIEngine, require_updates

            require_updates(choice)
            return OpenAIEngine(choice, origin=opening.origin, context=opening.context, trust_remote_code=trusts)
        case VllmEngineConfig():
            raise ConfigError("engine.kind='vllm' is shared by all runners: the driver opens it with open_fleet.")


def open_forms(folder: Path, *, trust_remote_code: bool = False) -> FormCompiler:
    """Forms for the vocabulary of the model in a folder, whose tokenizer is read when the first one comes."""

    def spell() -> list[bytes]:
        tokenizer = open_tokenizer(folder, trust_remote_code=trust_remote_code)
        spelling = Spelling(tokenizer)
        special = set(tokenizer.all_special_ids)
        rows = vocabulary_of(folder, trust_remote_code=trust_remote_code)
        return [b"" if id in special else spelling[id] for id in range(rows)]

    return FormCompiler(spell)


def fitted(opening: Opening) -> Opening:
    """The opening with no more slots than the free memory has room for; a ConfigError if there is none for one."""
    config = config_of(opening.origin, trust_remote_code=opening.trust_remote_code)
    shape = ModelShape.of(config, trust_remote_code=opening.trust_remote_code)
    free = torch.cuda.mem_get_info()[0] if opening.device == "cuda" else free_memory()
    weights = shape.engine_bytes(opening.dtype)
    slot = shape.cache_bytes(opening.context, opening.dtype)
    slots = int(SPARED * free - weights) // slot
    if slots < 1:
        raise ConfigError(
            f"model path={str(opening.origin)!r} needs {(weights + slot) / 1e9:.1f} GB in {opening.dtype} with one "
            f"conversation of {opening.context} tokens, and {free / 1e9:.1f} GB of memory are free on this machine. "
            "Take a smaller model or context, bfloat16 (engine.dtype, to serve), or a larger machine."
        )
    return replace(opening, slots=min(opening.slots, slots))


def longest_context(folder: str | Path, wanted: int, *, trust_remote_code: bool = False) -> int:
    """The wanted tokens of a conversation, or as many as the model in a folder has positions for."""
    # beyond its positions a model does not fail: its answers become noise
    config = config_of(folder, trust_remote_code=trust_remote_code)
    return min(wanted, int(getattr(config.get_text_config(), "max_position_embeddings", wanted)))
