"""A process that forks a run, trains the fork, and kills itself before, or after, it has done one thing."""

from pathlib import Path

from loomrl.artifacts import Artifacts
from loomrl.checkpoints import Checkpoints
from loomrl.config import parse_experiment
from loomrl.experiments.fork import fork
from loomrl.experiments.train import train
from loomrl.load import parse_yaml
from loomrl.run import fork as forking
from loomrl.run.ledger import VersionLedger
from tests.experiments.kills import Stage, die_at

STAGES: dict[str, Stage] = {
    "nothing written": (Artifacts, "derive", False),
    "one file shared": (Artifacts, "_link", True),
    "all files, and no marker": (Artifacts, "_complete", False),
    "all bytes": (forking, "record_fork", False),
    "on record": (forking, "record_fork", True),
    "an own checkpoint staged": (Checkpoints, "put", True),
    "an own version": (VersionLedger, "commit", True),
}


def main(experiment: str, point: str, stage: str) -> None:
    """Die at this stage."""
    settings = parse_experiment(parse_yaml(Path(experiment).read_text(), origin="a file"), origin="a file")
    die_at(STAGES[stage])
    forked, run = fork(settings.store_url, point, [], run="child")
    train(forked, run=run)
