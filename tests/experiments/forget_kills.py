"""A process that forgets Eve and kills itself before, or after, it has done one thing."""

from pathlib import Path
from typing import Any

from loomrl.algorithms.language.algorithm import Language
from loomrl.checkpoints import Checkpoints
from loomrl.experiments.forget import replay, retire, work
from loomrl.serving.retention import erasure
from tests.experiments.forget_support import forget
from tests.experiments.kills import Stage, die_at

STAGES: dict[str, Stage] = {
    "planned, and nothing on record": (work, "begin_forgetting", False),
    "on record": (work, "begin_forgetting", True),
    "half of the record deleted": (erasure, "keep_erasure", True),
    "the record deleted": (erasure, "finish_erasure", True),
    "begins again": (replay, "_begin_at", True),
    "an update made": (Language, "training_step", True),
    "a checkpoint staged": (Checkpoints, "put", True),
    "made again": (replay, "finish_run", True),
    "released": (work, "begin", True),
    "all of the traffic": (work, "end_trainings", False),
    "retired": (work, "retire_learners", True),
    "half of the weights deleted": (retire, "delete_checkpoint", True),
    "all weights deleted": (work, "delete_weights", True),
    "signed": (work, "finish_forgetting", False),
    "certified": (work, "finish_forgetting", True),
}


def main(folder: str, stage: str, **how: Any) -> None:
    """Die at this stage."""
    die_at(STAGES[stage])
    forget(Path(folder), "eve", **how)
