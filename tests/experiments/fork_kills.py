"""A process that forks a run, trains the fork, and kills itself before, or after, it has done one thing."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loomrl.artifacts import Artifacts
from loomrl.checkpoints import Checkpoints
from loomrl.config import parse_experiment
from loomrl.experiments.fork import fork
from loomrl.experiments.train import train
from loomrl.load import parse_yaml
from loomrl.run import fork as forking
from loomrl.run.ledger import VersionLedger

STAGES: dict[str, tuple[Any, str, bool]] = {
    "nothing written": (Artifacts, "derive", False),
    "one file shared": (Artifacts, "_link", True),
    "all files, and no marker": (Artifacts, "_complete", False),
    "all bytes": (forking, "record_fork", False),
    "on record": (forking, "record_fork", True),
    "an own checkpoint staged": (Checkpoints, "put", True),
    "an own version": (VersionLedger, "commit", True),
}
"""Stage → where its function is, and whether it dies after it."""


def main(experiment: str, point: str, stage: str) -> None:
    """Die at this stage."""
    settings = parse_experiment(parse_yaml(Path(experiment).read_text(), origin="a file"), origin="a file")
    place, name, is_after = STAGES[stage]
    done: Callable[..., Any] = getattr(place, name)

    def dies(*args: Any, **named: Any) -> Any:
        found = done(*args, **named) if is_after else None
        os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(place, name, dies)
    forked, run = fork(settings.store_url, point, [], run="child")
    train(forked, run=run)
