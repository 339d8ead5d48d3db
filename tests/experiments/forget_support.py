"""A policy that was served, people who spoke with it, and trainings on what was served with and without one of them."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import insert

from loomrl.config import DataSelection, Experiment
from loomrl.config.release import ReleasePlan
from loomrl.experiments.algorithms import open_algorithm
from loomrl.experiments.data import settled
from loomrl.experiments.forget.work import Wish, forget_weights
from loomrl.feedback.dataset import freeze
from loomrl.run.version import hashes_of
from loomrl.store import LoomDB, open_store
from loomrl.store.forgettings import Forgetting
from loomrl.store.replicas import Replica, ReplicaRole, ReplicaState, beat
from loomrl.store.runs import POLICIES
from loomrl.store.sessions import participants, person_hash
from tests.algorithms.language_support import ASCII, build, experiment
from tests.algorithms.language_support import train as make_updates
from tests.feedback.served_support import ENDPOINT, as_served, asked, reward, serve, store, thumbs, url

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
AT_ONCE = ReleasePlan.parse({"strategy": "canary", "steps": [{"share": 1.0, "minutes": 0.0, "units": 0}]})


def produce(folder: Path, *, count: int = 48, of: dict[str, Sequence[int]]) -> list[str]:
    """Serve version r/0, have people judge `count` answers, and say who spoke in which sessions; the sessions."""
    algo = build(folder)
    algo.begin()
    algo.stop()
    played = asked(folder, experiment(folder), "r/0", count, group=2)
    share = {one.id: one.reward.total for one in played}
    store(folder, ENDPOINT, [as_served(one, "r/0") for one in played])
    with open_store(url(folder)) as db:
        serve(db, "r/0")
        reward(db, share)
        thumbs(db, {id: float(number % 2) for number, id in enumerate(share)})
        for name, sessions in of.items():
            speak(db, name, [played[at].id for at in sessions])
    return list(share)


def speak(db: LoomDB, name: str, sessions: Sequence[str]) -> None:
    """Put on record that this person spoke in these sessions."""
    person = person_hash(ENDPOINT, name)
    rows = [{"endpoint": ENDPOINT, "session": id, "person": person} for id in sessions]
    with db.write() as connection:
        connection.execute(insert(participants), rows)


def frozen(folder: Path, **selection: Any) -> str:
    """The id of a data set of all sessions."""
    with open_store(url(folder)) as db:
        parsed = DataSelection.parse({"endpoints": [ENDPOINT], "holdout": 0.0, "parent": "r/0", **selection})
        return freeze(db, url(folder), parsed, now=time.time()).id


def settings(folder: Path, kind: str, dataset: str, **changes: Any) -> Experiment:
    """Updates of 8 trajectories, two passes."""
    tree = experiment(folder).plain
    shared = ("warm_start", "learners", "sampling", "optimizer")
    algorithm = {"kind": kind, "model": {"context": 128}, **{name: tree["algorithm"][name] for name in shared}}
    plain = tree | {"algorithm": algorithm, "data": {"dataset": dataset, "batch": 8, "epochs": 2}}
    own = {
        "hub.max_staleness": 40,
        "rollout.group_size": 2,
        "train.updates": 40,
        "algorithm.optimizer.learning_rate": 3e-3,
    }
    found = settled(Experiment.parse(plain).override(own | changes))
    assert isinstance(found, Experiment)
    return found


def learn(folder: Path, kind: str, dataset: str, *, run: str, **changes: Any) -> str:
    """Train to the end; the last version."""
    algo = open_algorithm(settings(folder, kind, dataset, **changes), run=run).build_algo()
    algo.begin()
    make_updates(algo)
    algo.stop()
    return f"{run}/{algo.done}"


def forget(
    folder: Path,
    *names: str,
    no_gate: str | None = "a test",
    suite: str | None = None,
    also: Callable[[str], None] = lambda line: None,
) -> Forgetting:
    """Forget people of the endpoint, with a service that is up at once; `also` is told of every stage."""
    with open_store(url(folder)) as db:

        def say(line: str) -> None:
            also(line)
            for version in POLICIES.latest(db, limit=100):
                announce(db, version.id)

        wish = Wish(
            endpoint=ENDPOINT, names=names, key=KEY, plan=AT_ONCE, suite=suite, no_gate=no_gate, who="ann", say=say
        )
        return forget_weights(db, url(folder), wish)


def announce(db: LoomDB, policy: str, endpoint: str = ENDPOINT) -> None:
    """A replica of the policy, alive for some seconds."""
    row = Replica(
        id=f"r-{policy}-{endpoint}",
        role=ReplicaRole.POLICY,
        policy=policy,
        endpoint=endpoint,
        address="x",
        node="n",
        pid=1,
        state=ReplicaState.READY,
    )
    beat(db, row)


def bytes_of(folder: Path, version: str) -> dict[str, str]:
    """The hashes of a version's files of weights."""
    with open_store(url(folder)) as db:
        found = hashes_of(POLICIES.require(db, version), db)
    assert found
    return found


def suite(folder: Path, *, regression: object, at_least: float | None = None) -> str:
    tree = {
        "name": "small",
        "version": "1.0.0",
        "kind": "language",
        "benchmarks": [{"environment": {"id": ASCII}, "levels": [1], "episodes": 32, "at_least": at_least}],
        "regression": regression,
        "provenance": {"unknown": "accept", "clean": False},
    }
    file = folder / "suite.yaml"
    file.write_text(yaml.safe_dump(tree))
    return str(file)


@contextmanager
def service(folder: Path) -> Iterator[None]:
    """Replicas of every version, alive until the end."""
    ended = threading.Event()

    def beats() -> None:
        with open_store(url(folder)) as db:
            while not ended.wait(0.3):
                for version in POLICIES.latest(db, limit=100):
                    for endpoint in (ENDPOINT, "second"):
                        announce(db, version.id, endpoint)

    thread = threading.Thread(target=beats)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
