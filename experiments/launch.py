"""Runs started or resumed at the console: processes of this machine that outlive it."""

import sys
from collections.abc import Sequence
from pathlib import Path

from loomrl.config import ControlExperiment, Experiment
from loomrl.coordinator.decision import WorkState
from loomrl.errors import ConfigError
from loomrl.experiments.coordinate.work import LocalWork
from loomrl.experiments.shipped import experiment_file, names, resolve
from loomrl.load import dump, read_yaml
from loomrl.store import LoomDB
from loomrl.store.runs import RUNS, load_experiment, run_id


class LocalLauncher:
    """Starts `loomrl train` with a log of its own in `folder`."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._work = LocalWork(folder)

    def experiments(self) -> Sequence[str]:
        """The shipped ones that train a policy."""
        kinds = (Experiment.defaults()["kind"], ControlExperiment.defaults()["kind"])
        return [name for name in names() if read_yaml(experiment_file(name)).get("kind", kinds[0]) in kinds]

    def start(self, db: LoomDB, words: Sequence[str], run: str | None) -> str:
        """Start a new run in this store; its id."""
        experiment = resolve([*words, f"store_url={self._url}"])
        run = run_id(run, experiment.name)
        if RUNS.find(db, run) is not None or self._is_running(run):
            raise ConfigError(f"run={run!r} is there already. Resume it, or choose another name.")
        self._launch(run, dump(experiment), [])
        return run

    def resume(self, db: LoomDB, run: str) -> None:
        """Continue a run from its newest checkpoint."""
        known = RUNS.require(db, run)
        if known.kind != "train":
            raise ConfigError(f"run {run!r} is of kind {known.kind}: only trainings are resumed.")
        if self._is_running(run):
            raise ConfigError(f"run {run!r} is being trained by a process that was started here.")
        if known.is_over:
            raise ConfigError(f"run {run!r} is over: {known.result.get('stopped', 'finished')}.")
        self._launch(run, dump(load_experiment(known)), ["--resume"])

    def log(self, run: str) -> str | None:
        """The end of what the run's latest process wrote; None if no process was started here."""
        count = self._count(run)
        return self._work.look(f"{run}/{count}").log if count else None

    def _launch(self, run: str, resolved: str, options: Sequence[str]) -> None:
        name = f"{run}/{self._count(run) + 1}"
        file = self._work.place(name) / "experiment.yaml"
        command = [sys.executable, "-P", "-m", "loomrl", "train", str(file), "--run", run, *options]
        if not self._work.start(name, command, {file.name: resolved.encode()}):
            raise ConfigError(f"run {run!r} is being started by another request.")

    def _is_running(self, run: str) -> bool:
        count = self._count(run)
        return count > 0 and self._work.look(f"{run}/{count}").work is WorkState.RUNNING

    def _count(self, run: str) -> int:
        """How many processes were started for the run."""
        place = self._folder / run_id(run, "")
        return sum(1 for folder in place.iterdir() if (folder / "started").exists()) if place.is_dir() else 0
