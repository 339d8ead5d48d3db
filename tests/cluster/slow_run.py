"""A small run whose environment takes its time, and what must be true of it after anything that can happen."""

from collections import Counter
from pathlib import Path
from typing import Any

from loomrl.config import Experiment
from loomrl.hub import EVERYTHING, open_hub
from loomrl.store import beside, open_store
from loomrl.store.runs import POLICIES
from loomrl.types import End
from tests.algorithms.language_support import experiment

SLOW = "tests.cluster.slow_env:SlowEnvironment"
GROUPS, SIZE = 4, 4


def small(folder: Path, updates: int, **changes: Any) -> Experiment:
    """GRPO with two runners, each on a node for rollouts, and a checkpoint an update."""
    wanted = {
        "environments": [{"id": SLOW}],
        "rollout": {"runners": 2, "groups_per_update": GROUPS, "group_size": SIZE, "concurrency": 2},
        "placement.runner.resources": {"rollout": 1},
        "train.updates": updates,
        "train.checkpoint_every": 1,
        "evaluation.episodes": 4,
    }
    return experiment(folder, "grpo", **wanted | changes)


def assert_each_attempt_counts_once(experiment: Experiment, run: str, *, store_url: str | None = None) -> None:
    """Every attempt that was planned is stored once, and not failed; every group was trained once, by one lease.

    `store_url`: as this machine reaches the LoomDB.
    """
    updates, store_url = experiment.train.updates, store_url or experiment.store_url
    planned = {f"{run}/{u}/{g}/{s}" for u in range(updates) for g in range(GROUPS) for s in range(SIZE)}
    hub_url = beside(store_url, run)
    with open_hub(hub_url, experiment.hub, groups_per_update=GROUPS, environments=experiment.environments) as hub:
        found = [attempt for _, attempt in hub.replay(selection=EVERYTHING)]
        stats = hub.stats()
    failures = {attempt.id: attempt.failure for attempt in found if attempt.end is End.FAILED}
    assert not failures, failures
    counts = Counter(attempt.id for attempt in found)
    missing, other = sorted(planned - counts.keys()), {id: n for id, n in counts.items() if n > 1 or id not in planned}
    assert (missing, other) == ([], {}), (missing, other)
    assert sum(line.acked for line in stats.environments.values()) == updates * GROUPS
    with open_store(store_url) as db:
        versions = POLICIES.latest(db, run=run, limit=updates + 2)
    assert sorted(version.number for version in versions) == list(range(updates + 1))
    leases = Counter(lease for version in versions for lease in version.data["leases"])
    assert len(leases) == updates
    assert set(leases.values()) == {1}
