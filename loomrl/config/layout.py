"""Settings that say where a training runs and with how many processes. A run may be resumed with others."""

from collections.abc import Sequence

from loomrl.config import AnyExperiment, ControlExperiment
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


def otherwise(changed: Sequence[Difference], experiment: AnyExperiment) -> list[Difference]:
    """The differences in other settings."""
    free = CONTROL if isinstance(experiment, ControlExperiment) else LANGUAGE
    return [each for each in changed if not any(each[0] == path or each[0].startswith(f"{path}.") for path in free)]
