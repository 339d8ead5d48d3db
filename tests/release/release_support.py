"""An endpoint with two versions of a run, and observations as gateways would have written them."""

import random
import signal
import subprocess
import time
from collections.abc import Mapping

from loomrl.config.release import ReleasePlan
from loomrl.release.ledger import Release, ReleaseDraft, begin_release
from loomrl.serving.split import choose_arm, uniform
from loomrl.store import LoomDB
from loomrl.store.endpoints import Arm, set_endpoint, show_endpoint
from loomrl.store.observations import Observation, append_observations
from loomrl.store.policies import record_policy
from loomrl.store.replicas import Replica, ReplicaRole, ReplicaState, beat
from loomrl.store.runs import Run, start_run
from loomrl.types import PolicyVersion, Verdict

ENDPOINT = "e"
OLD, NEW = "run/1", "run/2"
FAST = {
    "strategy": "canary",
    "steps": [{"share": share, "minutes": 0.0, "units": 20} for share in (0.1, 0.25, 0.5)]
    + [{"share": 1.0, "minutes": 0.0, "units": 0}],
    "guards": [{"metric": "error", "better": "lower", "margin": 0.2, "waits": "always"}],
}
ALLOWED = Verdict(True, ("tests",))


def prepare(db: LoomDB) -> None:
    """A run with two versions, and an endpoint that serves the first."""
    made = {"experiment": "0" * 64, "code": "c"}
    run = Run(id="run", name="x", kind="train", resolved="{}", environments={}, started_at=1.0, **made)
    start_run(db, run)
    for number in (1, 2):
        record_policy(
            db,
            PolicyVersion(
                id=f"run/{number}", number=number, url=f"{number}", run="run", algorithm="grpo", experiment="0" * 64
            ),
        )
    set_endpoint(db, ENDPOINT, [Arm(name="stable", policy=OLD)], at=1.0)


def announce(db: LoomDB, policy: str) -> None:
    """A replica of the policy, alive for some seconds."""
    row = Replica(
        id=f"r-{policy}", role=ReplicaRole.POLICY, policy=policy, endpoint=ENDPOINT, address="x", node="n", pid=1,
        state=ReplicaState.READY,
    )  # fmt: skip
    beat(db, row)


def released(db: LoomDB, *, version: str = NEW, **changes: object) -> Release:
    """A release of a version."""
    plan = ReleasePlan.parse(FAST | changes)
    wish = ReleaseDraft(endpoint=ENDPOINT, challenger=version, plan=plan, verdict=ALLOWED, who="ann")
    return begin_release(db, wish, at=time.time())


class Callers:
    """Units that come to the endpoint, are divided as its gateways do it, and fail as often as their arm says."""

    def __init__(self, db: LoomDB, errors: Mapping[str, float], *, seed: int = 0) -> None:
        self._db, self._errors = db, errors
        self._rng = random.Random(seed)
        self.count = 0

    def come(self, count: int) -> None:
        """So many new units, on record in one row."""
        endpoint = show_endpoint(self._db, ENDPOINT)
        now = time.time()
        rows = []
        for _ in range(count):
            self.count += 1
            name = f"unit-{self.count}"
            arm = choose_arm(ENDPOINT, endpoint.arms, name)
            failed = self._rng.random() < self._errors.get(arm.policy, 0.0)
            unit = int(uniform(name) * 2**63)
            rows.append(observed(arm.name, unit, "error", failed, revision=endpoint.revision, at=now))
        append_observations(self._db, ENDPOINT, "gateway", rows, now)


def observed(
    arm: str, unit: int, metric: str, value: float, *, revision: int = 1, at: float = 0.0, test: str = ""
) -> Observation:
    return Observation(revision=revision, arm=arm, unit=unit, metric=metric, value=float(value), at=at, test=test)


def kill_at_work(process: subprocess.Popen[str], *, after_s: float) -> None:
    """SIGKILL for a process that says `ready`, so long after it did: one that only begins has nothing to lose."""
    assert process.stdout.readline() == "ready\n"
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    process.communicate()
