"""Settings that a run may be resumed with others of: where it runs, with how many processes, and for how long."""

from collections.abc import Sequence

from loomrl.config import AnyExperiment, ControlExperiment, ControlPPO, CosineRate, Experiment, LinearRate
from loomrl.schema import Difference

PLACES = ("store_url", "artifact_url", "train.folder", "placement")
CONTROL = (*PLACES, "learners.count", "learners.gpus")
LANGUAGE = (
    *PLACES,
    *(f"algorithm.learners.{name}" for name in ("count", "gpus", "sharding")),
    "rollout.runners",
    "engine.count",
    "engine.gpus",
)


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
