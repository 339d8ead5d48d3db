"""An experiment of a token policy, resolved: the algorithm's own settings, the folder of the first weights, and the
files of the versions that follow.
"""

import hashlib
import json
import tempfile
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from loomrl.algorithms.language.lora import Adapter
from loomrl.artifacts import open_artifacts
from loomrl.canonical import content_hash
from loomrl.config import (
    DPO,
    GRPO,
    KTO,
    PPO,
    RAFT,
    RLOO,
    SFT,
    Experiment,
    LanguageModel,
    LanguageWeave,
    Reinforce,
    Remote,
    TorchEngineConfig,
)
from loomrl.files import scratch
from loomrl.inference.chat import ChatTemplate, name_objectives
from loomrl.inference.gguf import model_folder
from loomrl.inference.model import open_model, open_tokenizer, save_model
from loomrl.inference.vision import Vision, open_vision
from loomrl.inference.weights.sealed import Weights
from loomrl.run.version import BASE_FILE


def origin_of(model: LanguageModel, *, artifact_url: str, built: str) -> Path:
    """The folder to load the first weights from; `built` names the artifact of a model that has no path."""
    if model.path is not None:
        return model_folder(model.path, artifact_url)
    return _fetch_built(artifact_url, built)


@cache
def stops_of(origin: Path, *, trust_remote_code: bool) -> frozenset[int]:
    """The tokens that end a turn of this model's."""
    return ChatTemplate(open_tokenizer(origin, trust_remote_code=trust_remote_code)).stop


@cache
def _fetch_built(artifact_url: str, name: str) -> Path:
    """One copy per process and artifact, checked against its checksums."""
    folder = hashlib.sha256(name.encode()).hexdigest()[:16]
    return open_artifacts(artifact_url).get_folder(name, scratch("model") / folder)


Algorithms = PPO | GRPO | RLOO | Reinforce | LanguageWeave | DPO | KTO | RAFT | SFT | Remote


@dataclass(frozen=True)
class Resolved:
    """An experiment and its algorithm, which may be one of the user's own."""

    experiment: Experiment
    algorithm: Algorithms

    @property
    def experts(self) -> int:
        """The number of experts in the policy."""
        return self.algorithm.experts if isinstance(self.algorithm, LanguageWeave) else 1

    @property
    def model(self) -> LanguageModel:
        """The model of the first weights; one that gets experts is built from its path."""
        given = self.algorithm.model
        return given if self.experts == 1 else given.model_copy(update={"path": None})

    @property
    def temperature(self) -> float:
        """The temperature of the learner's distribution: that of sampling, or 1 for sft, which learns from others."""
        return 1.0 if isinstance(self.algorithm, SFT) else self.algorithm.sampling.temperature or 1.0

    @property
    def lends(self) -> bool:
        """True if engines read new weights in the learner's memory: they are in other processes, there is one learner,
        and they are done with each version before it steps.
        """
        experiment = self.experiment
        in_turns = experiment.rollout.publish_every == 1 and not experiment.asynchronous
        alone = self.algorithm.learners.count < 2 and in_turns
        apart = isinstance(experiment.engine, TorchEngineConfig) and experiment.rollout.runners > 0
        return experiment.placement.colocated and alone and apart

    @property
    def origin(self) -> Path:
        """The folder of the first weights, on this machine."""
        return origin_of(self.model, artifact_url=self.experiment.artifact_url, built=self.built_name)

    @cached_property
    def built_name(self) -> str:
        """Under which artifact a model without a path is stored: it follows from all that goes into it."""
        experiment = self.experiment
        algorithm = self.algorithm
        if experiment.parent is not None:
            return inherited_name(experiment.parent)
        parts = [algorithm.model, algorithm.warm_start, experiment.curriculum, *experiment.environments]
        told: list[Any] = [experiment.seed, *(part.model_dump(mode="json") for part in parts)]
        if isinstance(algorithm, LanguageWeave) and algorithm.objectives:
            told.append(algorithm.model_dump(mode="json", include={"objectives", "preference", "precision", "shown"}))
        if isinstance(algorithm, LanguageWeave) and algorithm.experts > 1:
            told.append(algorithm.model_dump(mode="json", include={"experts", "expert_rank"}))
        return f"models/{content_hash(told)[:16]}"


def inherited_name(parent: str) -> str:
    """The artifact with the whole model of a version with which runs begin."""
    return f"models/{content_hash(['parent', parent])[:16]}"


def save_policy(resolved: Resolved, weights: Weights, folder: Path) -> None:
    """The model, as `model/`."""
    model = _open_origin(resolved)
    model.load_state_dict(weights)
    save_model(model, _tokenizer(resolved), folder / "model", vision=_vision(resolved))


def save_adapter(resolved: Resolved, adapter: Adapter, folder: Path) -> None:
    """The low-rank additions, as `adapter/`, and the model's files without its weights, as `model/`.

    The base is stored once, as an artifact of its own (`loomrl.inference.merged`).
    """
    settings = resolved.algorithm.model
    artifacts = open_artifacts(resolved.experiment.artifact_url)
    name = resolved.built_name if settings.path is None else f"models/{adapter.base}"
    if not artifacts.exists(name):
        with tempfile.TemporaryDirectory(prefix="loomrl-base-") as base:
            save_model(_open_origin(resolved), None, base)
            artifacts.put_folder(name, Path(base))
    if (vision := _vision(resolved)) is not None:
        vision.save(folder / "model")
    _tokenizer(resolved).save_pretrained(folder / "model")
    base_url = str(resolved.origin) if settings.path else f"{resolved.experiment.artifact_url}/{name}"
    adapter.save(folder / "adapter", base=base_url)
    about = {"artifact": name, "identity": adapter.base, "dtype": settings.dtype}
    (folder / BASE_FILE).write_text(json.dumps(about))


def _open_origin(resolved: Resolved) -> PreTrainedModel:
    settings = resolved.algorithm.model
    return open_model(resolved.origin, dtype=settings.dtype, trust_remote_code=settings.trust_remote_code)


def _tokenizer(resolved: Resolved) -> PreTrainedTokenizerBase:
    tokenizer = open_tokenizer(resolved.origin, trust_remote_code=resolved.algorithm.model.trust_remote_code)
    if isinstance(resolved.algorithm, LanguageWeave):
        name_objectives(tokenizer, resolved.algorithm.tree.names)
    return tokenizer


def _vision(resolved: Resolved) -> Vision | None:
    return open_vision(resolved.origin, trust_remote_code=resolved.algorithm.model.trust_remote_code)
