"""Releases on record, moved by controllers on both databases."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from loomrl.errors import ConfigError, StoreError
from loomrl.release import comparison
from loomrl.release import controller as control
from loomrl.release.controller import Controller, ReleaseObserver
from loomrl.release.ledger import Release, command_release, latest
from loomrl.release.passage import Command, ReleasePhase
from loomrl.store import LoomDB
from loomrl.store.deployments import DEPLOYMENTS
from loomrl.store.endpoints import ENDPOINTS, Arm, Role, delete_endpoint, set_endpoint, show_endpoint
from loomrl.store.events import EVENTS
from loomrl.store.releases import list_releases, show_release
from loomrl.store.runs import POLICIES
from loomrl.types import Stage
from tests.release.release_support import ENDPOINT, NEW, OLD, Callers, announce, prepare, released


@pytest.fixture
def db(store: LoomDB) -> LoomDB:
    """A LoomDB with an endpoint."""
    prepare(store)
    return store


def say(db: LoomDB, command: Command, *, who: str = "ann", why: str = "") -> None:
    command_release(db, ENDPOINT, command, who=who, why=why, at=time.time())


def run(db: LoomDB, callers: Callers, *, most: int = 80, each: int = 200) -> Release:
    """Callers come until the release is over."""
    controller = Controller(db, ENDPOINT)
    for _ in range(most):
        controller.tick()
        callers.come(each)
        if not (release := latest(db, ENDPOINT)).passage.is_open:
            return release
    return latest(db, ENDPOINT)


def test_good_version_becomes_the_stable_one(db: LoomDB) -> None:
    released(db)
    announce(db, NEW)
    release = run(db, Callers(db, {OLD: 0.02, NEW: 0.02}))
    assert release.passage.phase is ReleasePhase.DONE, release.passage.reason
    assert show_endpoint(db, ENDPOINT).arms == (Arm(name="stable", policy=NEW),)
    shares = [
        [arm.share for arm in each.arms if arm.policy == NEW] for each in reversed(ENDPOINTS.latest(db, name=ENDPOINT))
    ]
    assert shares == [[], [0.0], [0.1], [0.25], [0.5], [1.0], [1.0]]
    assert (POLICIES.require(db, NEW).stage, POLICIES.require(db, OLD).stage) == (Stage.PRODUCTION, Stage.RETIRED)
    deployed = [(each.policy, each.stage, each.share) for each in reversed(DEPLOYMENTS.latest(db))]
    assert deployed[2:6] == [(NEW, Stage.CANARY, share) for share in (0.1, 0.25, 0.5, 1.0)]


def test_version_that_fails_more_often_comes_back_by_itself_with_its_evidence(db: LoomDB) -> None:
    released(db, guards=[{"metric": "error", "better": "lower", "margin": 0.05, "limit": 0.05, "waits": "always"}])
    announce(db, NEW)
    release = run(db, Callers(db, {OLD: 0.0, NEW: 0.12}), each=100)
    assert release.passage.phase is ReleasePhase.ROLLED_BACK
    assert show_endpoint(db, ENDPOINT).arms == (Arm(name="stable", policy=OLD),)
    assert (POLICIES.require(db, NEW).stage, POLICIES.require(db, OLD).stage) == (Stage.RETIRED, Stage.PRODUCTION)
    (finding,) = release.row.content["evidence"]["findings"]
    assert finding["low"] > 0
    assert "error" in release.passage.reason


def test_version_that_fails_altogether_comes_back_without_statistics(db: LoomDB) -> None:
    reward = {"metric": "reward", "better": "higher", "margin": 0.05}
    released(db, hard={"calls": 20, "seconds": 0.001}, guards=[reward])
    announce(db, NEW)
    release = run(db, Callers(db, {NEW: 1.0}), each=20)
    assert "all failed" in release.passage.reason


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_releases_that_begin_at_the_same_moment_are_one(db: LoomDB) -> None:
    def begin(_: int) -> str:
        try:
            return released(db).row.release
        except StoreError as error:
            return str(error)

    with ThreadPoolExecutor(8) as pool:
        begun = list(pool.map(begin, range(8)))
    assert begun.count("e-1") == 1
    assert [row.number for row in show_release(db, ENDPOINT)] == [1]
    assert len(ENDPOINTS.latest(db, name=ENDPOINT)) == 2


def test_two_releases_at_once_are_refused_by_name(db: LoomDB) -> None:
    with pytest.raises(StoreError, match="had no release yet"):
        latest(db, ENDPOINT)
    first = released(db)
    with pytest.raises(StoreError, match=f"release {first.row.release} is open .*release abort e"):
        released(db)
    say(db, Command.ABORT)
    assert released(db).row.release == "e-2"
    assert [row.release for row in list_releases(db)] == ["e-2", "e-1"]


def test_whoever_saw_an_older_row_decides_nothing(db: LoomDB) -> None:
    released(db)
    announce(db, NEW)
    one, other = Controller(db, ENDPOINT), Controller(db, ENDPOINT)
    stale = other._observer.look()
    assert one.tick() is not None
    other._observer.look = lambda **_: stale  # type: ignore[method-assign, assignment]
    assert other.tick() is None
    assert [row.number for row in show_release(db, ENDPOINT)] == [1, 2]


def test_hand_made_arms_are_left_alone_and_the_release_says_so(db: LoomDB) -> None:
    released(db)
    announce(db, NEW)
    controller = Controller(db, ENDPOINT)
    controller.tick()
    mine = (Arm(name="stable", policy=OLD, share=0.7), Arm(name="canary", policy=NEW, share=0.3, role=Role.CANARY))
    set_endpoint(db, ENDPOINT, mine, at=2.0, reason="I know better")
    with pytest.raises(ConfigError, match="changed meanwhile"):
        say(db, Command.PAUSE)
    moved = controller.tick()
    assert (moved.passage.phase, "I know better" in moved.passage.reason) == (ReleasePhase.STOPPED, True)
    assert show_endpoint(db, ENDPOINT).arms == mine
    with pytest.raises(ConfigError, match="is over"):
        say(db, Command.ABORT)


def test_deleted_endpoint_stops_its_release(db: LoomDB) -> None:
    released(db)
    delete_endpoint(db, ENDPOINT, at=2.0)
    moved = Controller(db, ENDPOINT).tick()
    assert (moved.passage.phase, "it is deleted" in moved.passage.reason) == (ReleasePhase.STOPPED, True)


def test_arms_without_traffic_may_come_and_go_during_a_release(db: LoomDB) -> None:
    released(db)
    announce(db, NEW)
    controller = Controller(db, ENDPOINT)
    controller.tick()
    variant = Arm(name="b", policy="run/9", share=0.0, role=Role.CANARY)
    set_endpoint(db, ENDPOINT, [*show_endpoint(db, ENDPOINT).arms, variant], at=2.0)
    release = run(db, Callers(db, {}))
    assert release.passage.phase is ReleasePhase.DONE
    assert show_endpoint(db, ENDPOINT).arms == (Arm(name="stable", policy=NEW), variant)


def test_a_persons_word_is_obeyed_at_once_and_on_record(db: LoomDB) -> None:
    released(db)
    announce(db, NEW)
    controller, callers = Controller(db, ENDPOINT), Callers(db, {})
    controller.tick()
    say(db, Command.PAUSE, why="lunch")
    callers.come(1000)
    assert controller.tick() is None
    say(db, Command.RESUME, who="bob")
    assert controller.tick() is not None
    say(db, Command.ROLLBACK, why="a bad feeling")
    assert show_endpoint(db, ENDPOINT).arms == (Arm(name="stable", policy=OLD),)
    said = [(row.who, row.reason) for row in show_release(db, ENDPOINT)]
    assert said[0][0] == "ann"
    assert said[2:4] == [("ann", "pause by ann (lunch)"), ("bob", "resume by bob")]
    assert said[-1] == ("ann", "rollback by ann (a bad feeling)")
    assert [event.data["who"] for _, event in EVENTS.read(db, kind="release.moved")] == [who for who, _ in said]


def test_finished_release_is_rolled_back_only_while_its_version_is_the_stable_one(db: LoomDB) -> None:
    released(db)
    announce(db, NEW)
    assert run(db, Callers(db, {})).passage.phase is ReleasePhase.DONE
    set_endpoint(db, ENDPOINT, [Arm(name="stable", policy="run/3")], at=2.0)
    with pytest.raises(ConfigError, match="changed meanwhile"):
        say(db, Command.ROLLBACK)
    set_endpoint(db, ENDPOINT, [Arm(name="stable", policy=NEW)], at=2.0)
    say(db, Command.ROLLBACK)
    assert show_endpoint(db, ENDPOINT).stable.policy == OLD


def clock(ahead_s: float) -> SimpleNamespace:
    """The module `time` of one that is so far ahead; nobody else's clock moves."""
    return SimpleNamespace(**{**vars(time), "time": lambda: time.time() + ahead_s})


def test_clock_that_jumps_is_noticed_and_begins_the_step_again(db: LoomDB, monkeypatch: pytest.MonkeyPatch) -> None:
    released(db, steps=[{"share": 0.5, "minutes": 60, "units": 0}, {"share": 1.0}])
    announce(db, NEW)
    controller, callers = Controller(db, ENDPOINT), Callers(db, {})
    controller.tick()
    callers.come(1000)
    for jump in (7200.0, -7200.0):
        monkeypatch.setattr(control, "time", clock(jump))
        moved = controller.tick()
        assert (moved.passage.step, "clock jumped" in moved.passage.reason) == (0, True)
        assert controller.tick() is None


def test_controller_that_starts_behind_a_clock_that_went_back_begins_the_step_again(
    db: LoomDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    released(db)
    announce(db, NEW)
    monkeypatch.setattr(control, "time", clock(-7200))
    moved = Controller(db, ENDPOINT).tick()
    assert "clock jumped" in moved.passage.reason


def test_all_who_look_find_the_same_evidence(db: LoomDB) -> None:
    released(db)
    announce(db, NEW)
    early, callers = ReleaseObserver(db, ENDPOINT), Callers(db, {NEW: 0.1})
    Controller(db, ENDPOINT).tick()
    for count in (1, 7, 300):
        callers.come(count)
        early.look()
    first, second = early.look(), ReleaseObserver(db, ENDPOINT).look()
    assert first.evidence == second.evidence
    assert first.evidence.units > 20


def test_a_controller_looks_at_all_units_only_for_the_record(db: LoomDB, monkeypatch: pytest.MonkeyPatch) -> None:
    released(db)
    announce(db, NEW)
    controller, callers = Controller(db, ENDPOINT), Callers(db, {NEW: 1.0})
    assert controller.tick() is not None
    passes = Counter[str]()
    real = comparison.least_difference
    monkeypatch.setattr(comparison, "least_difference", lambda *given: passes.update(["bounds"]) or real(*given))
    for _ in range(3):
        callers.come(1)
        assert controller.tick() is None
    assert not passes
    callers.come(400)
    moved = controller.tick()
    assert moved.passage.phase is ReleasePhase.ROLLED_BACK
    assert passes
    (finding,) = moved.row.content["evidence"]["findings"]
    assert 0 < finding["low"] < finding["difference"]
    assert f"[{finding['low']:+.4g}" in moved.passage.reason
