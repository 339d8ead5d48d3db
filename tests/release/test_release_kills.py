"""Controllers that die at any instant: histories stay legal, and nothing is decided twice."""

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from loomrl.errors import ConfigError
from loomrl.release.ledger import command_release, latest
from loomrl.release.passage import Command, ReleasePhase
from loomrl.store import LoomDB, open_store
from loomrl.store.deployments import DEPLOYMENTS
from loomrl.store.endpoints import ENDPOINTS, Role
from loomrl.store.events import EVENTS
from loomrl.store.releases import list_releases, read_release
from loomrl.store.runs import POLICIES
from loomrl.types import Stage
from tests.forks import FORKS
from tests.release import release_kills
from tests.release.release_support import ENDPOINT, NEW, OLD, Callers, announce, prepare, released

ROOT = Path(__file__).parent.parent.parent


class Working:
    """A process that controls the endpoint."""

    def __init__(self, url: str) -> None:
        self._ready = FORKS.Event()
        self._process = FORKS.Process(target=release_kills.main, args=(url, 0.002, self._ready.set))
        self._process.start()

    def kill(self, *, after_s: float = 0.0) -> None:
        """SIGKILL, so long after it began to work: before that it has nothing to lose."""
        assert self._ready.wait(60)
        time.sleep(after_s)
        self._process.kill()
        self._process.join()


@contextmanager
def controllers(url: str, count: int) -> Iterator[list[Working]]:
    running = [Working(url) for _ in range(count)]
    try:
        yield running
    finally:
        for each in running:
            each.kill()


def legal(db: LoomDB) -> None:
    """Whatever happened: histories are legal ones, and on record once."""
    legal_history(db, ENDPOINT)
    _legal_stages(db)


def legal_history(db: LoomDB, endpoint: str) -> None:
    """Of an endpoint and its releases; folders that are served have no stages."""
    moved = [event for _, event in EVENTS.read(db, kind="release.moved", limit=100_000)]
    made = [event for _, event in EVENTS.read(db, kind="deployment.made", limit=100_000)]
    assert len(moved) == len({(event.subject, event.data["number"]) for event in moved})
    assert len(made) == len({event.subject for event in made}) == len(DEPLOYMENTS.latest(db, limit=100_000))
    for each in list_releases(db, limit=1000):
        rows = read_release(db, each.release)
        assert [row.number for row in rows] == list(range(1, len(rows) + 1))
        for before, after in pairwise(rows):
            assert before.state == "open" or (before.state, after.state) == ("done", "rolled_back")
            assert after.content["passage"]["step"] - before.content["passage"]["step"] in (0, 1)
            assert after.revision - before.revision in (0, 1)
    revisions = ENDPOINTS.latest(db, name=endpoint, limit=100_000)
    assert [each.revision for each in revisions] == list(range(len(revisions), 0, -1))
    for each in revisions:
        assert sum(arm.share for arm in each.arms if arm.role is not Role.SHADOW) == pytest.approx(1.0)
        assert len({arm.policy for arm in each.arms}) == len(each.arms)


def _legal_stages(db: LoomDB) -> None:
    """After every decision one version is in production, and one more at most in canary."""
    stages: dict[str, str] = {}

    def check() -> None:
        count = Counter(stages.values())
        assert count[Stage.PRODUCTION] == 1, stages
        assert count[Stage.CANARY] <= 1, stages

    for _, event in EVENTS.read(db, limit=100_000):
        if event.kind == "policy.moved":
            assert event.data["from"] == stages.get(event.subject, Stage.CANDIDATE)
            stages[event.subject] = event.data["to"]
        elif event.kind == "release.moved" and stages:  # what moves with a decision comes after its event
            check()
    check()
    assert {policy.id: policy.stage.value for policy in POLICIES.latest(db) if policy.id in stages} == stages


def killed(url: str, kills: int, *, seed: int) -> Counter[str]:
    """Releases, good ones and bad ones and those that a person ends, under controllers that are killed."""
    rng, ends = random.Random(seed), Counter[str]()
    with open_store(url) as db, controllers(url, 2) as running:
        prepare(db)
        while kills > 0 or not {"done", "rolled_back"} <= ends.keys():
            new = NEW if ENDPOINTS.latest(db, name=ENDPOINT, limit=1)[0].stable.policy == OLD else OLD
            is_bad = len(ends) % 2 == 1 if sum(ends.values()) < 2 else rng.random() < 0.5
            released(db, version=new)
            callers = Callers(db, {new: 0.6 if is_bad else 0.0}, seed=rng.randrange(1 << 30))
            callers.count = rng.randrange(1 << 40)
            deadline = time.monotonic() + 120
            while latest(db, ENDPOINT).passage.is_open:
                assert time.monotonic() < deadline, latest(db, ENDPOINT).row
                announce(db, new)
                callers.come(60)
                if kills > 0 and rng.random() < 0.3:
                    at = rng.randrange(len(running))
                    running[at].kill(after_s=rng.random() * 0.02)
                    running[at] = Working(url)
                    kills -= 1
                if rng.random() < 0.02:
                    with suppress(ConfigError):  # it is over just now
                        command_release(db, ENDPOINT, Command.ABORT, who="ann", why="", at=time.time())
            end = latest(db, ENDPOINT).passage.phase
            assert end in (
                (ReleasePhase.ROLLED_BACK, ReleasePhase.ABORTED)
                if is_bad
                else (ReleasePhase.DONE, ReleasePhase.ABORTED)
            ), end
            ends[end.value] += 1
        legal(db)
    return ends


def test_kills_of_controllers_leave_legal_histories(store_url: str) -> None:
    ends = killed(store_url, 3, seed=1)
    assert ends["done"]
    assert ends["rolled_back"]


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.slow
def test_a_hundred_kills_of_controllers_leave_legal_histories(store_url: str) -> None:
    killed(store_url, 100, seed=2)
