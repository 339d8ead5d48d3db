"""The memory of a training's processes, from settings and the model's configuration: before any weights are loaded."""

import json
import logging
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import ray
import torch
from transformers import AutoConfig, LlamaConfig

from loomrl.algorithms.language.begin import wants_reference
from loomrl.algorithms.language.peak import learner_bytes
from loomrl.algorithms.language.resolved import Resolved
from loomrl.algorithms.language.sequence import refuse_unshared
from loomrl.config import Architecture, TorchEngineConfig, VllmEngineConfig
from loomrl.config.language import AUTO, MOST_ON_GPU, MOST_TOKENS
from loomrl.errors import ConfigError
from loomrl.inference.footprint import BYTES, ModelShape
from loomrl.inference.gguf import model_folder
from loomrl.inference.model import config_of
from loomrl.process import free_memory
from loomrl.run.version import configuration_of
from loomrl.store import LoomDB
from loomrl.store.runs import POLICIES

_log = logging.getLogger(__name__)

GB = 1e9
PROCESS = 0.75 * GB
"""Python with torch, transformers and Ray."""
LEAST_TOKENS = 256
SPARED = 0.9
"""Share of the free memory that `auto` may fill."""
REMEDIES: tuple[tuple[str, Any], ...] = (
    ("algorithm.kl.watch", False),
    ("placement.colocated", True),
    ("rollout.concurrency", 16),
    ("algorithm.model.recompute", "selective"),
    ("algorithm.model.recompute", "full"),
    ("algorithm.optimizer.states", "8bit"),
    ("algorithm.model.lora", {}),
    ("algorithm.model.dtype", "bfloat16"),
)
"""Settings that lower the memory, the least change first."""
STEP_OR_CACHE = "learner's step or engine's cache"
STEP_OR_ENGINE = "learner's step or engine"
"""Memory that is used by turns: by a learner for its activations and gradients, or by engines."""
FILLED = 0.5
"""Share of the context that an attempt fills on average; the engine's cache takes memory as it is filled."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Peak bytes of a training on one machine, by part."""

    parts: Mapping[str, float]

    @property
    def total(self) -> float:
        """Bytes of all parts."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        return ", ".join(f"{name} {size / GB:.1f}" for name, size in self.parts.items())


def footprint(resolved: Resolved, shape: ModelShape, tokens: int, *, machines: int = 1) -> Footprint:
    """A machine's peak, with forward passes of `tokens`, where processes are spread over so many machines."""
    experiment = resolved.experiment
    learners = -(-max(1, resolved.algorithm.learners.count) // machines)
    runners = -(-max(1, experiment.rollout.runners) // machines)
    processes = 1 + resolved.algorithm.learners.count + experiment.rollout.runners
    parts = {f"learner's {name}": learners * size for name, size in learner_parts(resolved, shape, tokens).items()}
    parts["processes"] = PROCESS * -(-processes // machines)
    if experiment.placement.colocated and isinstance(experiment.engine, VllmEngineConfig):
        awake = shape.parameters * BYTES[resolved.algorithm.model.dtype] + (experiment.engine.memory_gb or 0) * 2**30
        parts[STEP_OR_ENGINE] = max(_pop_step(parts), awake)
    if experiment.environments and isinstance(experiment.engine, TorchEngineConfig):
        open_attempts = min(
            experiment.rollout.concurrency,
            -(-experiment.rollout.groups_per_update * experiment.rollout.group_size // runners),
        )
        dtype = resolved.algorithm.model.dtype
        # on a GPU the whole cache is taken at once
        rows = experiment.rollout.concurrency if experiment.placement.runner.gpus else FILLED * open_attempts
        cache = runners * shape.cache_bytes(resolved.algorithm.model.context, dtype) * rows
        parts["engine's weights"] = runners * shape.engine_bytes(dtype)
        if experiment.placement.colocated:
            loan = _loan_bytes(resolved, shape)
            parts[STEP_OR_CACHE] = max(_pop_step(parts), cache + loan)
        else:
            parts["engine's cache"] = cache
    return Footprint(parts)


def _pop_step(parts: dict[str, float]) -> float:
    """Bytes that a learner needs while it steps, taken out of its parts."""
    return parts.pop("learner's activations") + parts.pop("learner's gradients")


def bound_memory(resolved: Resolved, *, learns: bool) -> None:
    """Let this process take no more of a GPU than the others leave it, where learner and engines take turns. Then the
    process that needs more than was planned is the one that fails.
    """
    if resolved.experiment.placement.colocated:
        shape = ModelShape.of(config_of(resolved.origin, trust_remote_code=resolved.model.trust_remote_code))
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(
            max(0.0, 1 - resident_bytes(resolved, shape, by_learner=not learns) / total)
        )


def resident_bytes(resolved: Resolved, shape: ModelShape, *, by_learner: bool) -> float:
    """Bytes that learners, or engines, hold while the others are at work."""
    by_turns = ("processes", STEP_OR_CACHE, STEP_OR_ENGINE)
    parts = footprint(resolved, shape, LEAST_TOKENS).parts.items()
    return sum(size for name, size in parts if name not in by_turns and name.startswith("learner's") == by_learner)


def _loan_bytes(resolved: Resolved, shape: ModelShape) -> float:
    """Bytes of the published weights that a learner keeps for engines until its next step."""
    if not resolved.lends:
        return 0.0
    model = resolved.algorithm.model
    adapted = 0 if model.lora is None else shape.adapted * model.lora.rank
    return 4.0 * adapted if adapted else shape.parameters * BYTES[model.dtype]


def shape_of(resolved: Resolved, db: LoomDB) -> ModelShape:
    """The shape of the model that the run begins with, which need not be built yet."""
    trusts = resolved.model.trust_remote_code
    config = _configuration(resolved, db)
    refuse_unshared(config, resolved.algorithm.learners.sequence_parallel)
    return ModelShape.of(config, trust_remote_code=trusts)


def _configuration(resolved: Resolved, db: LoomDB) -> Any:
    experiment = resolved.experiment
    model = resolved.algorithm.model
    if experiment.parent is not None:
        said = configuration_of(POLICIES.require(db, experiment.parent), db)
        if said is None:
            raise ConfigError(f"parent={experiment.parent!r}: there is no checkpoint of it any more.")
        return AutoConfig.for_model(**json.loads(said))
    if model.path is not None:
        folder = model_folder(model.path, experiment.artifact_url)
        return config_of(folder, trust_remote_code=model.trust_remote_code)
    built = model.build or Architecture()
    return LlamaConfig(
        vocab_size=built.vocabulary,
        hidden_size=built.hidden_size,
        intermediate_size=built.intermediate_size,
        num_hidden_layers=built.layers,
        num_attention_heads=built.heads,
        tie_word_embeddings=True,
    )


def learner_parts(resolved: Resolved, shape: ModelShape, tokens: int) -> dict[str, float]:
    """The peak of one learner, by part."""
    return learner_bytes(resolved.algorithm, shape, tokens, reference=wants_reference(resolved))


def fitting_tokens(resolved: Resolved, shape: ModelShape, free: float | None = None) -> int:
    """The tokens of a forward pass: as the settings say, or as many as fit into the free memory, by default this
    machine's.

    A ConfigError if the training does not fit, with what would. `free` is a GPU's if learners have one. Of memory that
    cannot be seen from here, that of GPUs on other machines, nothing is judged.
    """
    asked = resolved.algorithm.optimizer.micro_batch_tokens
    gpus = resolved.algorithm.learners.gpus
    most = MOST_TOKENS * resolved.algorithm.learners.sequence_parallel
    if free is None and gpus and not torch.cuda.is_available():
        return most if asked == AUTO else asked
    if free is None:
        free = torch.cuda.mem_get_info()[0] if gpus else free_memory()
    if gpus and not resolved.experiment.placement.colocated:
        free *= gpus
    if asked != AUTO:
        _refuse_larger(resolved, shape, asked, free)
        return asked
    # coarse on CPUs, whose free memory depends on other processes: the same seed should learn the same again
    doubled = [LEAST_TOKENS << n for n in range((most // LEAST_TOKENS).bit_length())]
    sizes = range(LEAST_TOKENS, MOST_ON_GPU * most // MOST_TOKENS + 1, LEAST_TOKENS) if gpus else doubled
    fitting = bisect_right(sizes, SPARED * free, key=lambda tokens: _needed(resolved, shape, tokens))
    tokens = sizes[max(0, fitting - 1)]
    _refuse_larger(resolved, shape, tokens, free)
    _log.log(
        logging.INFO if tokens >= most else logging.WARNING,
        "optimizer.micro_batch_tokens=%d, as fits into %.1f GB of free memory",
        tokens,
        free / GB,
    )
    return tokens


def _needed(resolved: Resolved, shape: ModelShape, tokens: int) -> float:
    if resolved.algorithm.learners.gpus and resolved.experiment.placement.colocated:
        both = footprint(resolved, shape, tokens)
        return both.total - both.parts["processes"]
    if resolved.algorithm.learners.gpus:
        return sum(learner_parts(resolved, shape, tokens).values())
    machines = sum(node["Alive"] for node in ray.nodes()) if ray.is_initialized() else 1
    return footprint(resolved, shape, tokens, machines=machines).total


def _refuse_larger(resolved: Resolved, shape: ModelShape, tokens: int, free: float) -> None:
    """A ConfigError if a pass of so many tokens needs more than there is."""
    needed = _needed(resolved, shape, tokens)
    if needed <= free:
        return
    where = "the GPU" if resolved.algorithm.learners.gpus else "this machine"
    parts = f"{footprint(resolved, shape, tokens)}; optimizer.micro_batch_tokens={tokens}"
    raise ConfigError(
        f"this training needs {needed / GB:.1f} GB, and {free / GB:.1f} GB of memory are free on {where} (in GB: "
        f"{parts}). {_remedy(resolved, shape, free)}"
    )


def _remedy(resolved: Resolved, shape: ModelShape, free: float) -> str:
    """The settings with which it fits, added one by one until it does."""
    is_auto = resolved.algorithm.optimizer.micro_batch_tokens == AUTO
    said: dict[str, Any] = {} if is_auto else {"algorithm.optimizer.micro_batch_tokens": AUTO}
    changed = resolved
    for path, value in REMEDIES:
        if said and _needed(changed, shape, LEAST_TOKENS) <= SPARED * free:
            break
        smaller = _with(changed, path, value)
        if smaller is not None and _needed(smaller, shape, LEAST_TOKENS) < _needed(changed, shape, LEAST_TOKENS):
            changed = smaller
            said[path] = str(value).lower() if isinstance(value, bool) else value
    settings = " ".join(f"{path}={value}" for path, value in said.items())
    if said and _needed(changed, shape, LEAST_TOKENS) <= free:
        return f"It fits with {settings}."
    return f"Take a smaller model or a larger machine: with {settings or 'any setting'} it does not fit either."


def _with(resolved: Resolved, path: str, value: Any) -> Resolved | None:
    """The training with another setting; None if its algorithm has none of that name, or does not take it."""
    part, _, own = path.partition(".")
    try:
        if part == "algorithm":
            return replace(resolved, algorithm=resolved.algorithm.override({own: value}))
        return replace(resolved, experiment=resolved.experiment.override({path: value}))
    except ConfigError:
        return None
