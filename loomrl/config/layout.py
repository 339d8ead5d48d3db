"""Settings that may change in the middle of a run: those that a resumed run may have others of, and those of a fork."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from loomrl.config import (
    AnyExperiment,
    ControlExperiment,
    ControlPPO,
    CosineRate,
    Experiment,
    LanguageAlgorithm,
    LinearRate,
)
from loomrl.errors import ConfigError
from loomrl.schema import Difference

PLACES = ("store_url", "artifact_url", "train.folder", "train.keep", "placement")
CONTROL = (*PLACES, "learners.count", "learners.gpus")
LANGUAGE = (
    *PLACES,
    *(f"algorithm.learners.{name}" for name in ("count", "gpus", "sharding")),
    "rollout.runners",
    "engine.count",
    "engine.gpus",
)

SHAPES = ("kind", "parent", "algorithm.kind", "algorithm.entry_point", "algorithm.objectives", "algorithm.preference")
CONTROL_SHAPES = (
    *SHAPES,
    *("environment", "curriculum", "seed", "rollout.environments", "rollout.runners", "data"),
    *(f"algorithm.{name}" for name in ("network", "normalize_observations", "normalize_rewards", "replay", "n_step")),
    *(f"algorithm.{name}" for name in ("curiosity", "quantiles", "dueling", "online")),
    *(f"algorithm.{name}" for name in ("initial_temperature", "warmup")),
)
LANGUAGE_SHAPES = (
    *SHAPES,
    *("environments.*.id", "environments.*.version", "environments.*.families", "rewards.parts"),
    *("curriculum.kind", "curriculum.stages", "curriculum.start_level"),
    *("data.dataset", "data.file", "data.batch", "data.held_out", "data.held_out_file"),
    *(f"algorithm.{name}" for name in ("model", "warm_start", "optimizer.states", "kl.teacher")),
    *(f"algorithm.{name}" for name in ("experts", "expert_rank", "critics", "shown")),
)
"""Settings that fix the shape of a checkpoint's state, or are read only when a run begins."""
BUILT_FROM = ("seed", "curriculum", "environments")
"""Settings, beside `algorithm`, from which a new model is built."""
FREE = ("algorithm.model.recompute", "algorithm.curiosity.coefficient", "rewards.parts.*.weight")
"""Below a shape, but free."""


def refuse_shapes(changed: Sequence[Difference], experiment: AnyExperiment) -> None:
    """A ConfigError for a setting that a fork cannot change."""
    kept = _shapes(experiment)
    refused = [each for each in changed if _is_below(each[0], kept) and not _is_below(each[0], FREE)]
    if not refused:
        return
    path, then, now = next((each for each in refused if each[2] is not None), refused[0])
    raise ConfigError(
        f"{path}={now}, which was {then}: the checkpoint was made with it, or only the beginning of a run reads it, so "
        "a fork cannot change it. Leave it out, or begin a run with the version's weights: "
        "`loomrl train EXPERIMENT parent=RUN/STEP`."
    )


def _shapes(experiment: AnyExperiment) -> tuple[str, ...]:
    if isinstance(experiment, ControlExperiment):
        return (*PLACES[:2], *CONTROL_SHAPES)
    algorithm = experiment.algorithm
    is_built = isinstance(algorithm, LanguageAlgorithm) and algorithm.model.path is None and experiment.parent is None
    return (*PLACES[:2], *LANGUAGE_SHAPES, *(BUILT_FROM if is_built else ()))


def _is_below(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}.*") for pattern in patterns)


def length(experiment: AnyExperiment) -> str:
    """The setting that says how long the training is."""
    return "train.steps" if isinstance(experiment, ControlExperiment) else "train.updates"


def otherwise(changed: Sequence[Difference], experiment: AnyExperiment) -> list[Difference]:
    """The differences in other settings; the length is one if what is learnt on the way depends on it."""
    free = CONTROL if isinstance(experiment, ControlExperiment) else LANGUAGE
    free = free if _goes_by_length(experiment) else (*free, length(experiment))
    return [each for each in changed if not any(each[0] == path or each[0].startswith(f"{path}.") for path in free)]


def _goes_by_length(experiment: AnyExperiment) -> bool:
    algorithm = experiment.algorithm
    optimizer = getattr(algorithm, "optimizer", algorithm)
    falls = isinstance(getattr(optimizer, "schedule", None), LinearRate | CosineRate)
    ends = isinstance(algorithm, ControlPPO) and algorithm.entropy_floor is not None
    return falls or ends or (isinstance(experiment, Experiment) and experiment.data is not None)
