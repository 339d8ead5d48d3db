"""The policy as files: a self-contained Hugging Face folder, and with LoRA an adapter beside it."""

from pathlib import Path

from loomrl.algorithms.language.model.lora import Adapter
from loomrl.algorithms.language.resolved import Resolved
from loomrl.config import LanguageWeave
from loomrl.inference.model import open_model, open_tokenizer, save_model
from loomrl.inference.preferred import name_objectives
from loomrl.inference.vision import open_vision
from loomrl.inference.weights.sealed import Weights


def save_policy(resolved: Resolved, weights: Weights, adapter: Adapter | None, folder: Path) -> None:
    """`model/`, with low-rank additions merged; `adapter/`, for peft to add to the run's original model."""
    origin = resolved.origin
    settings = resolved.algorithm.model
    trusts = settings.trust_remote_code
    model = open_model(origin, dtype=settings.dtype, trust_remote_code=trusts)
    model.load_state_dict(weights)
    tokenizer = open_tokenizer(origin, trust_remote_code=trusts)
    if isinstance(resolved.algorithm, LanguageWeave):
        name_objectives(tokenizer, resolved.algorithm.tree.names)
    save_model(model, tokenizer, folder / "model", vision=open_vision(origin, trust_remote_code=trusts))
    if adapter is not None:
        adapter.save(
            folder / "adapter", base=settings.path or f"{resolved.experiment.artifact_url}/{resolved.built_name}"
        )
