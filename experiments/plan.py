"""`loomrl show EXPERIMENT --plan`: what a training needs, and what its evaluation can show, before it begins."""

import asyncio
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import NormalDist
from typing import Any

from rich.console import Console

from loomrl.algorithms.language.footprint import GB, LEAST_TOKENS, fitting_tokens, footprint, shape_of
from loomrl.algorithms.language.peak import STATES
from loomrl.algorithms.language.resolved import Resolved, origin_of
from loomrl.config import AnyExperiment, ControlExperiment, CustomAlgorithm, Experiment, RewardModel
from loomrl.config.language import AUTO
from loomrl.errors import ConfigError, LoomError
from loomrl.experiments.algorithms import open_algorithm
from loomrl.experiments.commands.output import table
from loomrl.experiments.data import settled
from loomrl.experiments.planned import earlier_errors, keep_plan, kind_of
from loomrl.experiments.probe import TRIED_S, Probed, probe
from loomrl.gym.held_out import draw_held_out
from loomrl.gym.task_mixture import gather
from loomrl.inference.footprint import BYTES, ModelShape
from loomrl.inference.model import config_of
from loomrl.process import free_memory
from loomrl.record.word import lasting
from loomrl.store import open_store

KEPT = 3
"""Checkpoints of a run that are there at once: the first, the best and the last."""
POWER = 0.8
FLOPS = 4e10
"""Operations a second, for the size of a probe alone."""
PROMPT = 64
"""Tokens of a prompt, for the same."""
WARM = 40
"""Steps of a warm start in a probe."""
APART = {"seconds": 0.25, "memory_gb": 0.15}
"""Half of an interval, in relation to its figure, until three runs here say more."""


@dataclass(frozen=True, slots=True)
class PlannedFigure:
    """A planned figure with an interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A training's needs, and the smallest difference that its evaluation shows."""

    memory: Mapping[str, float]
    """GB at the peak, by part."""
    needed: PlannedFigure
    free: float
    micro_batch_tokens: int | None = None
    refusal: str | None = None
    """Why it cannot begin, with a remedy; None if it can."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By part; empty if no probe was made."""
    updates: int | None = None
    update_s: float | None = None
    run: PlannedFigure | None = None
    """Seconds of the run, unless a rule stops it earlier."""
    unprobed: str | None = None
    """Why seconds are not known."""
    corrected_by: int = 0
    """Runs of the same kind on this machine by whose errors it is corrected."""
    disk: float | None = None
    """GB of the checkpoints that exist at once, and of records."""
    tasks: int = 0
    improvement: float | None = None
    measure: str = "success"

    def render(self, console: Console) -> None:
        """The plan as a page."""
        rows = [(name, f"{size:.2f}") for name, size in self.memory.items()]
        needed = self.needed
        total = [("together", f"{needed.value:.2f}"), ("", f"{needed.low:.2f} to {needed.high:.2f}")]
        console.print(table("Memory at the peak", ("", "GB>"), [*rows, ("",), *total, ("free", f"{self.free:.2f}")]))
        say = partial(console.print, highlight=False, markup=False)
        if self.refusal is not None:
            console.print(f"\n{self.refusal}", style="yellow", markup=False, highlight=False)
        elif self.micro_batch_tokens is not None:
            say(f"\noptimizer.micro_batch_tokens={self.micro_batch_tokens}")
        if self.run is not None:
            run = self.run
            rows = [(name, f"{seconds:.1f}") for name, seconds in self.seconds.items()]
            said = [("together", f"{run.value:.0f}"), ("", f"{run.low:.0f} to {run.high:.0f}")]
            console.print()
            console.print(table("Time", ("", "s>"), [*rows, ("",), *said]))
            say(f"\nat most {lasting(run.value)}: {self.updates} updates of {self.update_s:.3g} s")
            if self.corrected_by:
                say(f"corrected by {self.corrected_by} earlier runs of its kind on this machine")
        if self.unprobed is not None:
            say(f"seconds are not known: {self.unprobed}")
        if self.disk is not None:
            say(f"checkpoints and records: {self.disk:.2f} GB of disk")
        if self.improvement is not None:
            say(
                f"evaluation: {self.tasks} held-out tasks show a gain in {self.measure} of {self.improvement:.2g} in "
                f"{POWER:.0%} of cases; evaluation.episodes={4 * self.tasks} half of that"
            )


def plan_run(experiment: Any, *, memory_gb: float | None = None) -> RunPlan:
    """The plan of a training. With `memory_gb` it is about the memory of a machine with so much free; else about this
    machine, where a probe measures its beginning, and it is on record for the run of this experiment.
    """
    if not isinstance(experiment, Experiment | ControlExperiment):
        raise ConfigError(f"--plan: {experiment.name} is of kind {experiment.kind}, which is not trained.")
    asked = experiment
    experiment = settled(experiment)
    free = free_memory() if memory_gb is None else memory_gb * GB
    resolved: Any = _resolved(experiment)
    kind = kind_of(experiment)
    if resolved is None and memory_gb is not None:
        raise ConfigError(
            f"--memory={memory_gb:g}: the memory of {kind} is measured by a probe, not calculated. Leave it out."
        )
    shape: Any = _shape(experiment, resolved)
    tokens, refusal, parts = (None, None, {}) if resolved is None else _fit(resolved, shape, free)
    tasks = _tasks(experiment)
    confidence = experiment.evaluation.confidence
    plan: dict[str, Any] = {"free": free / GB, "micro_batch_tokens": tokens, "refusal": refusal, "tasks": tasks}
    if tasks:
        plan["improvement"] = smallest_improvement(tasks, confidence=confidence)
    found = None
    algorithm = experiment.algorithm if resolved is None else resolved.algorithm
    smaller, share = _smaller(experiment, algorithm, shape)
    if memory_gb is None and refusal is None:
        try:
            found = probe(smaller)
        except LoomError as error:
            plan["unprobed"] = str(error)
    if found is None:
        needed = _around(sum(parts.values()), [], "memory_gb")
        disk = None if resolved is None else KEPT * _checkpoint(resolved, shape) / GB
        return RunPlan(memory=parts, needed=needed, disk=disk, **plan)
    memory = found.memory / GB
    if tokens is not None and share < 1:
        passes = [min(tokens, found.tokens / each) for each in (share, 1.0)]
        more, less = (footprint(resolved, shape, max(1, round(each))).total for each in passes)
        memory += (more - less) / GB
    if parts:
        beyond = memory - sum(parts.values())
        parts["less in the probe" if beyond < 0 else "more in the probe"] = beyond
    else:
        parts["all processes"] = memory
    updates = _updates(experiment, found, share)
    warm = getattr(algorithm, "warm_start", None)
    seconds = _seconds(experiment, found, updates, share=share, tasks=tasks)
    seconds["beginning"] += 0 if warm is None else warm.steps * found.warm_step_s
    raw = {"seconds": sum(seconds.values()), "memory_gb": memory}
    with open_store(experiment.store_url) as db:
        errors = earlier_errors(db, kind)
        keep_plan(db, asked, raw)
    if found.deviation is not None:
        count = experiment.evaluation.episodes
        gain = 2 * found.deviation * smallest_improvement(count, confidence=confidence)  # success deviates by 1/2
        plan |= {"tasks": count, "measure": "return", "improvement": gain}
    return RunPlan(
        memory=parts,
        needed=_around(memory, [each["memory_gb"] for each in errors], "memory_gb"),
        seconds=seconds,
        updates=updates,
        update_s=seconds["updates"] / updates,
        run=_around(raw["seconds"], [each["seconds"] for each in errors], "seconds"),
        corrected_by=len(errors),
        disk=(KEPT * found.checkpoint_disk + updates * found.update_disk / share) / GB,
        **plan,
    )


def _around(value: float, errors: Any, name: str) -> PlannedFigure:
    """The figure, corrected by the median of earlier errors; its interval is theirs once there are three."""
    middle = statistics.median(errors) if errors else 1.0
    many = len(errors) > 2
    low = min(errors) if many else (1 - APART[name]) * middle
    high = max(errors) if many else (1 + APART[name]) * middle
    return PlannedFigure(value * middle, value * low, value * high)


# -- seconds ----------------------------------------------------------------------------------------------------------


def _smaller(experiment: Any, algorithm: Any, shape: ModelShape | None) -> tuple[Any, float]:
    """The experiment with updates that a probe has time for, and their share of whole ones."""
    if shape is None:
        return experiment, 1.0
    changes: dict[str, Any] = {}
    warm = getattr(algorithm, "warm_start", None)
    if warm is not None and warm.steps > WARM:
        own = "algorithm.settings" if isinstance(experiment.algorithm, CustomAlgorithm) else "algorithm"
        changes[f"{own}.warm_start.steps"] = WARM
    if experiment.data is None:
        path = "rollout.groups_per_update"
        whole = experiment.rollout.groups_per_update
        each = experiment.rollout.group_size * (algorithm.sampling.max_tokens + PROMPT)
    else:
        path = "data.batch"
        whole = experiment.data.batch
        each = algorithm.model.context // 2
    is_on_gpu = bool(getattr(getattr(algorithm, "learners", None), "gpus", 0))
    most = whole if is_on_gpu else max(1, int(TRIED_S * FLOPS / (8 * shape.parameters * each)))
    if most < whole:
        changes[path] = most
    return experiment.override(changes), min(most, whole) / whole


def _updates(experiment: Any, found: Probed, share: float) -> int:
    if isinstance(experiment, ControlExperiment):
        return math.ceil(found.limit / found.step)
    by_data = math.inf if experiment.data is None else math.ceil(found.limit * share)
    return int(min(experiment.train.updates, by_data))


def _seconds(experiment: Any, found: Probed, updates: int, *, share: float, tasks: int) -> dict[str, float]:
    """Seconds of a run by part."""
    rollout_s = found.rollout_s
    if share < 1 and rollout_s:
        size = experiment.rollout.group_size
        groups = experiment.rollout.groups_per_update
        rollout_s *= found.judge_s(size * groups) / found.judge_s(round(size * groups * share))
    settings = experiment.evaluation
    every = settings.every
    between = 0 if every is None else max(0, math.ceil(updates * found.step / every) - 1)
    if tasks:
        several = found.judge_s(tasks * settings.attempts)
        evaluations = 2 * (found.judge_s(tasks) + several)
        evaluations += between * (several if settings.way == "sampled" else found.judge_s(tasks))
    else:
        evaluations = (2 + between) * found.judge_s(1)
    # an evaluation keeps what is the best so far, mostly where a checkpoint is due anyway
    kept = 2 + max(between, math.ceil(updates * found.step / experiment.train.checkpoint_every) - 1)
    return {
        "start": found.start_s,
        "beginning": found.begin_s,
        "updates": updates * (rollout_s + found.update_s / share),
        "evaluations": evaluations + (2 + between) * found.loss_s,
        "checkpoints": kept * found.checkpoint_s,
    }


def _tasks(experiment: AnyExperiment) -> int:
    """Held-out tasks of an evaluation in environments of words."""
    if not isinstance(experiment, Experiment) or not experiment.environments:
        return 0
    mixture = gather(experiment.environments, experiment.templates, lambda id: (id, ""))
    try:
        return len(draw_held_out(mixture, experiment.evaluation))
    finally:
        for member in mixture.members.values():
            asyncio.run(member.environment.close())


def smallest_improvement(tasks: int, *, confidence: float, power: float = POWER) -> float:
    """The difference between two success rates near one half, each of so many tasks, that is found with this power."""
    quantile = NormalDist().inv_cdf
    return (quantile((1 + confidence) / 2) + quantile(power)) * math.sqrt(2 * 0.25 / tasks)


# -- memory -----------------------------------------------------------------------------------------------------------


def _fit(resolved: Resolved, shape: Any, free: float) -> tuple[int | None, str | None, dict[str, float]]:
    """The tokens of a pass that fits, or why none does; and GB by part."""
    refusal = tokens = None
    try:
        tokens = fitting_tokens(resolved, shape, free)
    except ConfigError as error:
        refusal = str(error)
    given = resolved.algorithm.optimizer.micro_batch_tokens
    need = footprint(resolved, shape, tokens or (LEAST_TOKENS if given == AUTO else given))
    return tokens, refusal, {name: size / GB for name, size in need.parts.items()}


def _resolved(experiment: AnyExperiment) -> Resolved | None:
    """The settings of a language policy's training, of which memory is calculated; None of others."""
    if isinstance(experiment, ControlExperiment) or isinstance(experiment.algorithm, RewardModel):
        return None
    config = open_algorithm(experiment)
    config.validate()
    resolved: Resolved = config.resolved
    return resolved


def _shape(experiment: AnyExperiment, resolved: Resolved | None) -> ModelShape | None:
    """The shape of the model that the run begins with, which need not be built yet."""
    if resolved is not None:
        with open_store(experiment.store_url) as db:
            return shape_of(resolved, db)
    if isinstance(experiment, Experiment) and isinstance(experiment.algorithm, RewardModel):
        origin = origin_of(experiment.algorithm.model, artifact_url=experiment.artifact_url, built="")
        return ModelShape.of(config_of(origin))
    return None


def _checkpoint(resolved: Resolved, shape: ModelShape) -> float:
    """Bytes of a checkpoint: the policy, the learner's weights, and AdamW's averages."""
    model = resolved.algorithm.model
    trained = shape.parameters if model.lora is None else shape.adapted * model.lora.rank
    held = 4 if model.lora is None else BYTES[model.dtype]
    averages = STATES[resolved.algorithm.optimizer.states] * trained
    return shape.parameters * (BYTES[model.dtype] + held) + averages
