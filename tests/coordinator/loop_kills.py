"""A coordinator that ticks until it is killed, and the work of its jobs, in a blink instead of in minutes.

As a program: `coordinate URL FOLDER` ticks; `train URL JOB RUN SEED` and `gate URL POLICY SEED` are the work.
"""

import random
import sys
import time
from pathlib import Path

from loomrl.config import HubConfig
from loomrl.config.loop import LoopExperiment
from loomrl.coordinator.job import TrainingJob
from loomrl.errors import StoreError
from loomrl.experiments.coordinate.loop import Coordinator
from loomrl.experiments.gate.suite import resolve_suite
from loomrl.hub.open import open_endpoint_hub
from loomrl.load import dump
from loomrl.release.controller import Controller
from loomrl.store import open_store
from loomrl.store.endpoints import show_endpoint
from loomrl.store.policies import record_policy
from loomrl.store.runs import RUNS, Run, RunStatus, finish_run, start_run
from loomrl.store.verdicts import StoredVerdict, VerdictOutcome, record_verdict
from loomrl.types import PolicyVersion
from tests.coordinator.plans import plan

ENDPOINT = "e"
ERRORS = (
    "LearnerError('out of memory')",
    "LearnerError('the loss is nan: …')",
    "ClusterError('gone')",
    "KeyError('x')",
)


def settings(url: str, folder: Path) -> LoopExperiment:
    """A loop that trains on whatever comes, and waits for nothing."""
    return plan(
        store_url=url,
        artifact_url=str(folder / "artifacts"),
        endpoint=ENDPOINT,
        triggers__count=5,
        triggers__degradation=None,
        data__min_reward=None,
        data__balance="none",
        data__suite=None,
        data__holdout=0.0,
        data__endpoints=[ENDPOINT],
        training__train__folder=str(folder / "runs"),
        patience__infra_minutes=0.0005,
        release__steps=[{"share": 0.5, "minutes": 0, "units": 5}, {"share": 1.0, "minutes": 0, "units": 0}],
        release__guards=[{"metric": "error", "better": "lower", "margin": 0.2, "waits": "always"}],
        release__strategy="canary",
        rewards=None,
    )


class Quick(Coordinator):
    """A coordinator whose jobs do work of this program."""

    def command(self, job: TrainingJob, name: str) -> list[str]:
        own, url = [sys.executable, "-P", "-m", "tests.coordinator.loop_kills"], self.plan.store_url
        if name == "train":
            return [*own, "train", url, job.id, job.run]
        return [*own, "gate", url, job.policy, self.plan.suite, f"{job.id}-{name}"]


def run_of(id: str) -> Run:
    """A run whose experiment is the loop's."""
    resolved, experiment = dump(plan().training), "0" * 64
    made = {"experiment": experiment, "resolved": resolved, "code": "c", "environments": {}}
    return Run(id=id, name="x", kind="train", started_at=time.time(), **made)


def coordinate(url: str, folder: Path) -> None:
    """Tick for ever."""
    loop = settings(url, folder)
    with open_store(url) as db, open_endpoint_hub(url, ENDPOINT, HubConfig()) as hub:
        coordinator, controller = Quick(db, loop, hubs=[hub], say=lambda text: None), Controller(db, ENDPOINT)
        print("ready", flush=True)
        while True:
            coordinator.tick()
            controller.tick()
            time.sleep(0.002)


def train(url: str, job: str, run: str) -> None:
    """A run that ends in some way, and leaves what a run leaves."""
    rng = random.Random(job)
    time.sleep(rng.random() * 0.05)
    with open_store(url) as db:
        before = RUNS.find(db, run)
        assert before is None or before.status is not RunStatus.FINISHED, "nothing is trained twice"
        start_run(db, run_of(run))
        if rng.random() < 0.35:
            finish_run(db, run, status=RunStatus.FAILED, finished_at=time.time(), result={"error": rng.choice(ERRORS)})
            sys.exit(1)
        version = PolicyVersion(id=f"{run}/1", number=1, url="1", run=run, algorithm="kto", experiment="0" * 64)
        record_policy(db, version)
        finish_run(db, run, status=RunStatus.FINISHED, finished_at=time.time(), result={"policy": version.id})


def gate(url: str, policy: str, suite: str, name: str) -> None:
    """A verdict of some kind, or none."""
    rng = random.Random(name)
    time.sleep(rng.random() * 0.05)
    if rng.random() < 0.2:
        sys.exit(2)
    outcome = rng.choice([VerdictOutcome.ALLOWED, VerdictOutcome.ALLOWED, VerdictOutcome.REFUSED, VerdictOutcome.ERROR])
    with open_store(url) as db:
        report = {"checks": [], "improvement": 0.1, "strategy": {"name": "canary", "share": 0.1}, "approvers": []}
        verdict = StoredVerdict(
            id=f"gate-{name}",
            policy=policy,
            fingerprint="",
            against=show_endpoint(db, ENDPOINT).stable.policy,
            suite="x",
            suite_hash=resolve_suite(suite).sha256,
            outcome=outcome,
            report=report,
            created_at=time.time(),
        )
        try:
            record_verdict(db, verdict)
        except StoreError as error:
            print(error, file=sys.stderr)
            raise


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "coordinate":
        coordinate(words[0], Path(words[1]))
    elif what == "train":
        train(*words)
    else:
        gate(*words)
