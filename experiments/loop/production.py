"""A production in a folder: `loomrl serve` and `loomrl loop` as programs, with the record between them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loomrl.config import Experiment, LoopExperiment
from loomrl.coordinator.job import TrainingJob
from loomrl.coordinator.ledger import cancel, jobs_of
from loomrl.errors import LoomError
from loomrl.experiments.shipped import resolve, resolve_loop
from loomrl.store import LoomDB

BASE = "language/loop_tiny"
RUN = "base"
LOOP = "loop/tiny"
SERVED = "serving/language_tiny"
COORDINATE = ("loop",)
START_S = 600.0
END_S = 60.0


class ProductionError(LoomError):
    """A program of the production that did not start, or died."""

    boundary = "loop"


@dataclass(frozen=True, slots=True)
class Production:
    """The folder in which everything is."""

    folder: Path

    @property
    def store_url(self) -> str:
        """URL of its LoomDB."""
        return f"sqlite:///{self.folder}/loom.db"

    @property
    def _places(self) -> dict[str, str]:
        return {"store_url": self.store_url, "artifact_url": str(self.folder / "artifacts")}

    def plan(self, changes: dict[str, Any]) -> LoopExperiment:
        """The shipped loop, here. No schedule starts it, and its trainings are in this folder."""
        runs = {"training.train.folder": str(self.folder / "runs"), "triggers.schedule": None}
        words = [f"{path}={json.dumps(value)}" for path, value in {**self._places, **runs, **changes}.items()]
        return resolve_loop([LOOP, *words])

    def base(self, seed: int) -> Experiment:
        """The shipped policy that it begins with."""
        experiment = resolve([BASE]).override({**self._places, "train.folder": str(self.folder / "runs"), "seed": seed})
        assert isinstance(experiment, Experiment)
        return experiment

    def train_base(self, seed: int, changes: dict[str, Any]) -> None:
        """Train it, as run RUN."""
        settings = {**self._places, "train.folder": str(self.folder / "runs"), "seed": seed, **changes}
        words = [f"{path}={json.dumps(value)}" for path, value in settings.items()]
        with (self.folder / "base.log").open("wb") as log:
            command = [*_OWN, "train", BASE, *words, "--run", RUN]
            done = subprocess.run(command, stdout=log, stderr=log, env=_environment(), check=False)
        if done.returncode:
            raise ProductionError(f"training {RUN}: exit {done.returncode}. Its log is {self.folder / 'base.log'}.")

    @contextmanager
    def serving(self, endpoint: str) -> Iterator[str]:
        """The address at which RUN is served."""
        words = [f"{path}={json.dumps(value)}" for path, value in self._places.items()]
        with self._program(
            "serve", ["serve", SERVED, RUN, *words, "--endpoint", endpoint, "--port", "0", "--json"]
        ) as (
            program,
            log,
        ):
            deadline = time.monotonic() + START_S
            while time.monotonic() < deadline and program.poll() is None:
                for line in log.read_text(errors="replace").splitlines():
                    if line.startswith("{"):
                        yield str(json.loads(line)["url"])
                        return
                time.sleep(0.2)
            raise ProductionError(f"serving {RUN}: no answer. Its log is {log}.")

    @contextmanager
    def coordinating(self, plan: LoopExperiment, db: LoomDB) -> Iterator[Callable[[], None]]:
        """A coordinator at work, and a check that raises once it has died. At the end no training is left."""
        file = self.folder / "loop.yaml"
        from loomrl.load import dump

        file.write_text(dump(plan))
        with self._program("coordinate", [*COORDINATE, str(file), "--no-http"]) as (program, log):

            def check() -> None:
                if program.poll() is not None:
                    raise ProductionError(f"the coordinator ended by itself. Its log is {log}.")

            try:
                yield check
            finally:
                deadline = time.monotonic() + END_S
                for job in _open(db, plan.endpoint):
                    _cancel(db, job)
                while _open(db, plan.endpoint) and time.monotonic() < deadline:
                    time.sleep(0.2)

    def command(self, *words: str) -> dict[str, Any]:
        """The JSON answer of a command beside the programs; a ProductionError with its last words if it fails."""
        done = subprocess.run(
            [*_OWN, "--json", "--store", self.store_url, *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env=_environment(),
            check=False,
        )
        if done.returncode:
            said = (done.stderr + done.stdout)[-1000:]  # a refusal may be its answer
            raise ProductionError(f"loomrl {' '.join(words)}: exit {done.returncode}: {said}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    @contextmanager
    def _program(self, name: str, words: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        log = self.folder / f"{name}.log"
        with log.open("wb") as out:
            program = subprocess.Popen([*_OWN, *words], stdout=out, stderr=out, env=_environment())
        try:
            yield program, log
        finally:
            program.send_signal(signal.SIGTERM)
            try:
                program.wait(END_S)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()


def copy_production(production: Production, folder: Path) -> Production:
    """The same before anybody was served, in another folder: what its records name is in the first one still."""
    shutil.copytree(production.folder, folder, dirs_exist_ok=True)
    return Production(folder)


_OWN = [sys.executable, "-P", "-m", "loomrl"]


def _environment() -> dict[str, str]:
    return {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}


def _open(db: LoomDB, endpoint: str) -> list[TrainingJob]:
    return [job for job in jobs_of(db, endpoint)[1] if job.is_open]


def _cancel(db: LoomDB, job: TrainingJob) -> None:
    try:
        cancel(db, job.id, who="loop", why="the demonstration is over", at=time.time())
    except LoomError:  # it is being released, or just over
        return
