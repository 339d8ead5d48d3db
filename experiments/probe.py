"""A probe: the first updates of a training, measured in a process and in folders of its own.

As a program, it reads an experiment as JSON from standard input, and its last line of output is what it measured.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loomrl.config import AnyExperiment, ControlExperiment, Experiment, RewardModel, parse_experiment
from loomrl.errors import ConfigError, LoomError
from loomrl.process import die_with_parent, family_peak
from loomrl.store.db import copy_files
from loomrl.telemetry.metric import Metric

TRIED_S = 10.0
"""Seconds in which updates are made; one is made in any case."""
JUDGED_S = 4.0
"""Seconds for which a second evaluation is sized, by the first."""
FEW = 4
"""Held-out tasks of the first evaluation."""
LONGEST_S = 180.0
RARELY = 10**9
MOST_COPIED = 2e9
"""Bytes of records that a probe copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """Seconds, bytes and counts of a training's beginning."""

    start_s: float
    """Ray, and the processes of the run with their models."""
    begin_s: float
    """From there to the first update, and what that one took beyond a later one; without the warm start's steps."""
    warm_step_s: float
    checkpoint_s: float
    rollout_s: float
    update_s: float
    """An update without rollouts, evaluation and checkpoint."""
    judged: tuple[tuple[int, float], ...]
    """Attempts and seconds of evaluations, ascending; of control and reward models a whole one, counted as 1."""
    loss_s: float
    """The loss on held-out conversations."""
    step: float
    """Progress of one update, as `done` counts it."""
    limit: int
    """`done` at the end, as far as the data go."""
    deviation: float | None
    """Standard deviation of an evaluation's returns."""
    memory: float
    """Bytes of all processes at their peaks."""
    tokens: float
    """Tokens of an update, where they are known."""
    checkpoint_disk: float
    update_disk: float
    """Bytes that an update adds to the records."""

    def judge_s(self, attempts: int) -> float:
        """Seconds of an evaluation with so many attempts: linear through the last two that were measured."""
        if not self.judged:
            return 0.0
        count, seconds = self.judged[-1]
        fewer, less = self.judged[-2] if len(self.judged) > 1 else (0, 0.0)
        each = max(0.0, seconds - less) / (count - fewer)
        return max(seconds * min(1.0, attempts / count), seconds + each * (attempts - count))


def probe(experiment: AnyExperiment) -> Probed:
    """The beginning of this training, measured; a ConfigError with the reason if it does not come to an update."""
    with tempfile.TemporaryDirectory(prefix="loomrl-probe-") as name:
        asked = json.dumps(_in_folder(experiment, Path(name)).plain)
        command = [sys.executable, "-m", "loomrl.experiments.probe", str(os.getpid())]
        try:
            done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=LONGEST_S, check=False)
        except subprocess.TimeoutExpired:
            raise ConfigError(f"no update was made within {LONGEST_S:g} s") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise ConfigError(said[-1] if said else f"a probe ended with status {done.returncode}")
    tree = json.loads(done.stdout.splitlines()[-1])
    return Probed(**{**tree, "judged": tuple((count, seconds) for count, seconds in tree["judged"])})


def _in_folder(experiment: AnyExperiment, folder: Path) -> AnyExperiment:
    """The experiment with places of its own, and without evaluations on the way, checkpoints and reasons to stop."""
    is_on_record = experiment.parent is not None or getattr(experiment.data, "dataset", None) is not None
    made = folder / "made"
    made.mkdir()
    if "://" not in experiment.artifact_url:  # models are built or converted once, for the run as well
        models = Path(experiment.artifact_url).absolute() / "models"
        models.mkdir(parents=True, exist_ok=True)
        (made / "models").symlink_to(models)
    url = experiment.store_url
    changes: dict[str, Any] = {
        "store_url": copy_files(url, folder, most_bytes=MOST_COPIED) if is_on_record else f"sqlite:///{folder}/loom.db",
        "artifact_url": str(made),
        "train.folder": str(folder / "runs"),
        "train.stop": {},
        "train.wandb": None,
        "evaluation.every": None,
    }
    if not _has_league(experiment):  # its versions join with a checkpoint
        changes["train.checkpoint_every"] = RARELY
    if isinstance(experiment, Experiment):
        changes["evaluation.way"] = "greedy"
        if experiment.data is not None:
            changes["train.updates"] = RARELY  # so that `limit` is that of the data
    return experiment.override(changes)


def _has_league(experiment: AnyExperiment) -> bool:
    environments = experiment.environments if isinstance(experiment, Experiment) else ()
    opponents = [environment.settings.get("opponent") for environment in environments]
    return any(isinstance(opponent, Mapping) and opponent.get("kind") == "league" for opponent in opponents)


class Lap:
    """Seconds between calls."""

    def __init__(self) -> None:
        self._at = time.monotonic()

    def __call__(self) -> float:
        """Seconds since the last call."""
        before = self._at
        self._at = time.monotonic()
        return self._at - before


def measure(experiment: AnyExperiment) -> Probed:
    """Open the training, begin, make updates for some seconds, judge a few tasks."""
    from loomrl.experiments.algorithms import ray_for
    from loomrl.experiments.evaluate_control import judge_control
    from loomrl.experiments.kinds import open_training
    from loomrl.experiments.preflight import check_parts
    from loomrl.store import open_store

    lap = Lap()
    check_parts(experiment)
    with (
        ray_for(experiment, run="probe"),
        open_store(experiment.store_url) as db,
        ExitStack() as stack,
    ):
        training: Any = open_training(experiment, "probe", db, clock=time.time)
        stack.callback(training.stop)
        start_s = lap()
        steers = isinstance(experiment, ControlExperiment)
        speaks = isinstance(experiment, Experiment) and not isinstance(experiment.algorithm, RewardModel)
        warm = [(0, time.monotonic())]
        if speaks:
            training.begin(lambda done, _: warm.append((done, time.monotonic())))
        else:
            training.begin()
        begin_s = lap()
        artifacts = Path(experiment.artifact_url)
        records = _size(artifacts.parent, "*.db*")
        made = _size(artifacts)
        updates, kept_s = _make_updates(training)
        records = _size(artifacts.parent, "*.db*") - records
        lap()
        training.keep()
        checkpoint_s = lap() if training.stopped is None else kept_s
        checkpoint_disk = _size(artifacts) - made
        begin_s = max(0.0, begin_s - checkpoint_s)
        judged: list[tuple[int, float]] = []
        if not speaks:  # a policy that learns plays longer or shorter episodes
            if isinstance(experiment, ControlExperiment):
                judge_control(training.algo.policy(), experiment, name="probe")
            else:
                training.end("probed")
            judged = [(1, (begin_s + lap()) / 2)]
        warm_step_s = (warm[-1][1] - warm[1][1]) / (warm[-1][0] - warm[1][0]) if len(warm) > 2 else 0.0
        begin_s = max(0.0, begin_s - warm_step_s * warm[-1][0])
        if isinstance(experiment, Experiment) and experiment.environments:
            judged = _judge(training, experiment)
        measures = speaks and training.evaluations.measure_loss is not None
        later = updates[1:] or updates
        whole_s = statistics.fmean(seconds for seconds, _ in later)
        rollout_s = statistics.fmean(metrics.get(Metric.TIME_ROLLOUT, 0.0) for _, metrics in later)
        return Probed(
            start_s=start_s,
            begin_s=begin_s * (speaks and not measures) + max(0.0, updates[0][0] - whole_s),
            warm_step_s=warm_step_s,
            checkpoint_s=checkpoint_s,
            rollout_s=rollout_s,
            update_s=whole_s - rollout_s,
            judged=tuple(judged),
            loss_s=begin_s * measures,
            step=training.done / len(updates),
            limit=training.limit,
            deviation=training.judged["first"]["overall"].get("deviation") if steers else None,
            memory=family_peak(),
            tokens=max(map(_tokens, (metrics for _, metrics in updates))),
            checkpoint_disk=checkpoint_disk,
            update_disk=records / len(updates),
        )


def _tokens(metrics: Mapping[str, float]) -> float:
    return metrics.get(Metric.LEARNER_TOKENS_PER_S, 0.0) * metrics.get(Metric.TIME_LEARN, 0.0)


def _make_updates(training: Any) -> tuple[list[tuple[float, Mapping[str, float]]], float]:
    """Seconds without evaluation and checkpoint, and metrics, of as many updates as are made in the time; and seconds
    of the checkpoint with which a training ends that is over by then.
    """
    updates: list[tuple[float, Mapping[str, float]]] = []
    begun = told = time.monotonic()
    until = begun + TRIED_S

    def listen(done: int, metrics: Mapping[str, float]) -> None:
        nonlocal told
        told = time.monotonic()
        if done:
            updates.append((told - begun - metrics.get(Metric.TIME_EVALUATE, 0.0), metrics))

    training.listen = listen
    while training.stopped is None and (not updates or time.monotonic() < until):
        begun = time.monotonic()
        training.train()
    return updates, time.monotonic() - told


def _judge(training: Any, experiment: Experiment) -> list[tuple[int, float]]:
    """Attempts and seconds of a small evaluation and, unless that was all, of a larger one."""
    lap = Lap()
    judged: list[tuple[int, float]] = []
    wanted = FEW
    for _ in range(2):
        settings = experiment.evaluation.model_copy(update={"episodes": wanted, "attempts": 1})
        lap()
        count = len(training.trial(f"probe-{wanted}", settings))
        if judged and count <= judged[-1][0]:
            break
        judged.append((count, lap()))
        most = experiment.evaluation.episodes or 200
        wanted = min(most, max(FEW + 1, int(FEW * JUDGED_S / judged[-1][1])))
    return judged


def _size(folder: Path, pattern: str = "*") -> int:
    return sum(file.lstat().st_size for file in folder.rglob(pattern) if not file.is_symlink() and file.is_file())


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    asked = parse_experiment(json.load(sys.stdin), origin="probe")
    try:
        found = measure(asked)
    except LoomError as error:
        sys.exit(str(error))
    print("\n" + json.dumps(asdict(found)), flush=True)
