"""`loomrl show EXPERIMENT --plan`: what a training needs, and what its evaluation can show, before it begins."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from rich.console import Console
from transformers import AutoConfig, LlamaConfig

from loomrl.algorithms.language.footprint import GB, fitting_tokens, footprint
from loomrl.algorithms.language.resolved import Resolved
from loomrl.config import AnyRoot, Architecture, Experiment
from loomrl.errors import ConfigError
from loomrl.experiments.algorithms import open_algorithm
from loomrl.experiments.commands.output import table
from loomrl.experiments.data import settled
from loomrl.inference.footprint import BYTES, ModelShape
from loomrl.inference.model import config_of
from loomrl.process import free_memory
from loomrl.run.version import file_of
from loomrl.store import open_store
from loomrl.store.runs import POLICIES

KEPT = 3
"""Checkpoints of a run that are there at once: the first, the best and the last."""
EPISODES = 200
"""Held-out tasks, unless the settings say how many."""
POWER = 0.8


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A training's needs in GB, and the smallest difference in success that its evaluation shows."""

    memory: Mapping[str, float]
    needed: float
    free: float
    micro_batch_tokens: int | None
    refusal: str | None
    """Why it cannot begin, with a remedy; None if it can."""
    disk: float
    """Of the checkpoints that are there at once."""
    tasks: int
    improvement: float

    def render(self, console: Console) -> None:
        """The plan as a page."""
        rows = [(name, f"{size:.2f}") for name, size in self.memory.items()]
        total = [("together", f"{self.needed:.2f}"), ("free", f"{self.free:.2f}")]
        console.print(table("Memory at the peak", ("", "GB>"), [*rows, ("",), *total]))
        if self.refusal is not None:
            console.print(f"\n{self.refusal}", style="yellow", markup=False, highlight=False)
        else:
            console.print(f"\noptimizer.micro_batch_tokens={self.micro_batch_tokens}", highlight=False)
        console.print(f"checkpoints: {self.disk:.2f} GB of disk", highlight=False)
        console.print(
            f"evaluation: {self.tasks} held-out tasks show a gain in success of {self.improvement:.2f} in "
            f"{POWER:.0%} of cases; evaluation.episodes={4 * self.tasks} half of that",
            highlight=False,
        )


def plan_run(experiment: AnyRoot, *, memory_gb: float | None = None) -> RunPlan:
    """The plan of a language training, for a machine with so much free memory, or for this one."""
    if not isinstance(experiment, Experiment):
        raise ConfigError(f"--plan: {experiment.name} trains no language policy, whose memory would be known.")
    experiment = settled(experiment)
    config = open_algorithm(experiment)
    config.validate()
    resolved: Resolved = config.resolved
    shape = _shape(resolved)
    free = free_memory() if memory_gb is None else memory_gb * GB
    refusal = None
    tokens = None
    try:
        tokens = fitting_tokens(resolved, shape, free)
    except ConfigError as error:
        refusal = str(error)
    asked = resolved.algorithm.optimizer.micro_batch_tokens
    need = footprint(resolved, shape, tokens or (256 if asked == "auto" else asked))
    settings = experiment.evaluation
    tasks = settings.episodes or EPISODES
    return RunPlan(
        memory={name: size / GB for name, size in need.parts.items()},
        needed=need.total / GB,
        free=free / GB,
        micro_batch_tokens=tokens,
        refusal=refusal,
        disk=KEPT * _checkpoint(resolved, shape) / GB,
        tasks=tasks,
        improvement=smallest_improvement(tasks, confidence=settings.confidence),
    )


def smallest_improvement(tasks: int, *, confidence: float, power: float = POWER) -> float:
    """The difference between two success rates near one half, each of so many tasks, that is found with this power."""
    quantile = NormalDist().inv_cdf
    return (quantile((1 + confidence) / 2) + quantile(power)) * math.sqrt(2 * 0.25 / tasks)


def _shape(resolved: Resolved) -> ModelShape:
    """The shape of the model that the run begins with, which need not be built yet."""
    trusts = resolved.model.trust_remote_code
    return ModelShape.of(_configuration(resolved), trust_remote_code=trusts)


def _configuration(resolved: Resolved) -> Any:
    experiment = resolved.experiment
    model = resolved.algorithm.model
    if experiment.parent is not None:
        with open_store(experiment.store_url) as db:
            said = file_of(POLICIES.require(db, experiment.parent), db, "model/config.json")
        if said is None:
            raise ConfigError(f"parent={experiment.parent!r}: there is no checkpoint of it any more.")
        tree = json.loads(said)
        return AutoConfig.for_model(**tree)
    if resolved.model.path is not None:
        return config_of(resolved.origin, trust_remote_code=model.trust_remote_code)
    built = model.build or Architecture()
    return LlamaConfig(
        vocab_size=built.vocabulary,
        hidden_size=built.hidden_size,
        intermediate_size=built.intermediate_size,
        num_hidden_layers=built.layers,
        num_attention_heads=built.heads,
        tie_word_embeddings=True,
    )


def _checkpoint(resolved: Resolved, shape: ModelShape) -> float:
    """Bytes of a checkpoint: the policy, the learner's weights, and AdamW's averages."""
    model = resolved.algorithm.model
    trained = shape.parameters if model.lora is None else shape.adapted * model.lora.rank
    held = 4 if model.lora is None else BYTES[model.dtype]
    return shape.parameters * (BYTES[model.dtype] + held) + 8 * trained
