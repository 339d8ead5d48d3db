"""Work that outlives its coordinator: processes of this machine, and jobs of a Ray cluster.

Each piece of work has a name, is started once however often it is requested, and is found again by any coordinator.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loomrl.cluster.job import Jobs, settled
from loomrl.config import ControlExperiment, Experiment
from loomrl.coordinator.decision import WorkState
from loomrl.errors import ClusterError, ConfigError
from loomrl.experiments.shipped import experiment_file, names, resolve
from loomrl.files import make_private
from loomrl.load import dump, read_yaml
from loomrl.store import LoomDB
from loomrl.store.runs import RUNS, load_experiment, run_id

TAIL = 20_000
"""Bytes of a log that are looked at."""
ENDING_S = 20.0
"""Time to end in order, before it is killed."""
SCRIPT = 'echo $$ > "$0/group"; ( "$@"; echo $? > "$0/exit.new"; mv "$0/exit.new" "$0/exit" ) &'
"""The shell exits at once, so that the process needs no waiting parent. `$$` is the id of their group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkFound:
    """A piece of work as it is now."""

    work: WorkState
    exit_code: int | None = None
    """None if the exit was not seen."""
    log: str = ""
    """The end of it."""


class LocalWork:
    """Processes of this machine, with a folder for each.

    A process and its children hold a lock on their folder as long as they live: so they are started once, and nobody
    needs to know their ids.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._stopped: dict[str, float] = {}

    def place(self, name: str) -> Path:
        """The folder of this work."""
        folder = self._folder / name
        make_private(folder)
        return folder

    def start(self, name: str, command: Sequence[str], files: Mapping[str, bytes]) -> bool:
        """Run a command, with files in its folder, if this work was never started; False if it was, or is looked at."""
        folder = self.place(name)
        with _lock(folder, fcntl.LOCK_EX) as lock:
            if lock is None or (folder / "started").exists():
                return False
            for file, content in files.items():
                (folder / file).write_bytes(content)
            (folder / "started").write_text(" ".join(command))
            with (folder / "log").open("ab") as log:
                subprocess.run(
                    ["/bin/sh", "-c", SCRIPT, str(folder), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(lock,),
                    check=True,
                )
        return True

    def look(self, name: str) -> WorkFound:
        """The state of a piece of work."""
        folder = self.place(name)
        with _lock(folder, fcntl.LOCK_SH) as lock:
            if lock is None:
                return WorkFound(work=WorkState.RUNNING)
            if not (folder / "started").exists():
                return WorkFound(work=WorkState.ABSENT)
            code = folder / "exit"
            log = folder / "log"
            return WorkFound(
                work=WorkState.ENDED,
                exit_code=int(code.read_text()) if code.exists() else None,
                log=log.read_bytes()[-TAIL:].decode(errors="replace") if log.exists() else "",
            )

    def stop(self, name: str) -> None:
        """Ask it to end; if it takes too long, kill it."""
        group = self.place(name) / "group"
        if self.look(name).work is not WorkState.RUNNING or not group.exists():
            return
        first = self._stopped.setdefault(name, time.monotonic())
        is_overdue = time.monotonic() > first + ENDING_S
        try:
            os.killpg(int(group.read_text()), signal.SIGKILL if is_overdue else signal.SIGTERM)
        except ProcessLookupError:  # just gone
            return


@contextmanager
def _lock(folder: Path, how: int) -> Iterator[int | None]:
    """The descriptor of the folder's lock; None if another process has it."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield lock
    finally:
        os.close(lock)


class ClusterWork:
    """Jobs with our ids: the cluster refuses a repeated id, so that each job is started once."""

    def __init__(self, address: str | None) -> None:
        self._address = address
        self._jobs: Jobs | None = None

    def start(self, name: str, experiment: Experiment, run: str) -> bool:
        """Submit a training, unless it was. A ClusterError if the cluster does not answer."""
        jobs = self._cluster()
        jobs.submit(settled(experiment, jobs), run, id=name)
        return True

    def look(self, name: str) -> WorkFound:
        """The state of a piece of work."""
        jobs = self._cluster()
        if name not in {job.id for job in jobs.list()}:
            return WorkFound(work=WorkState.ABSENT)
        job = jobs.show(name)
        if not job.is_over:
            return WorkFound(work=WorkState.RUNNING)
        return WorkFound(work=WorkState.ENDED, exit_code=job.exit_code, log=_log(jobs, name))

    def stop(self, name: str) -> None:
        """Ask it to end."""
        if self.look(name).work is WorkState.RUNNING:
            self._cluster().stop(name)

    def _cluster(self) -> Jobs:
        """The connection; a new one after an error, as the cluster may be another one then."""
        if self._jobs is None:
            self._jobs = Jobs(self._address)
        return self._jobs

    def forget(self) -> None:
        """Connect anew the next time."""
        self._jobs = None


def _log(jobs: Jobs, name: str) -> str:
    try:
        return jobs.logs(name)[-TAIL:]
    except ClusterError as error:  # the node that had it is gone
        return str(error)


class LocalLauncher:
    """Runs started or resumed at the console: `loomrl train` with a log of its own in `folder`."""

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
