"""Opens an engine by its kind."""

from dataclasses import dataclass
from pathlib import Path

from loomrl.config.engine import EngineChoice, TorchEngineConfig, VllmEngineConfig
from loomrl.errors import ConfigError
from loomrl.inference.engine import Engine
from loomrl.inference.model import config_of, open_model
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.vision import open_vision


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
    shared: Engine | None = None
    """The fleet's client, if the runners share engines."""


def open_engine(choice: EngineChoice, opening: Opening) -> Engine:
    """An engine of this kind, on the caller's event loop."""
    if isinstance(choice, TorchEngineConfig):
        trusts = opening.trust_remote_code
        model = open_model(opening.origin, dtype=opening.dtype, device=opening.device, trust_remote_code=trusts)
        vision = open_vision(opening.origin, trust_remote_code=trusts)
        return TorchEngine(model, slots=opening.slots, context=opening.context, version=opening.version, vision=vision)
    if isinstance(choice, VllmEngineConfig):
        if opening.shared is None:
            raise ConfigError("engine.kind='vllm' is shared by all runners: the driver opens it with open_fleet.")
        return opening.shared
    from loomrl.inference.remote.engine import open_openai

    return open_openai(
        choice, origin=opening.origin, context=opening.context, trust_remote_code=opening.trust_remote_code
    )


def longest_context(folder: str | Path, wanted: int, *, trust_remote_code: bool = False) -> int:
    """The wanted tokens of a conversation, or as many as the model in a folder has positions for."""
    # beyond its positions a model does not fail: its answers become noise
    config = config_of(folder, trust_remote_code=trust_remote_code)
    return min(wanted, int(getattr(config.get_text_config(), "max_position_embeddings", wanted)))
