"""Every way in which a policy comes to answer callers leaves a deployment on record and an event for the bus."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from loomrl.bus.outbox import is_told
from loomrl.bus.outgoing import deployment_event, deployment_on_record
from loomrl.config import ServingExperiment
from loomrl.config.release import ReleasePlan
from loomrl.experiments.arms import parse_arms
from loomrl.experiments.release import ReleaseRequest, begin
from loomrl.release.ledger import command_release, latest, move
from loomrl.release.passage import Command, ReleasePhase
from loomrl.serving.deployment.station import arms_of, set_arms
from loomrl.store import LoomDB
from loomrl.store.ab_tests import start_test, stop_test
from loomrl.store.deployments import DEPLOYMENTS
from loomrl.store.endpoints import Arm, Role, delete_endpoint, set_endpoint, show_endpoint
from loomrl.store.events import EVENTS
from loomrl.types import Stage
from tests.release.release_support import NEW, OLD, announce, prepare
from tests.release.test_ab import TEST

PLAN = ReleasePlan.parse({"strategy": "canary"})


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two exported policies."""
    made = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": name}))
        made.append(folder)
    return made[0], made[1]


def logged(db: LoomDB, endpoint: str = "shop") -> list[tuple[str, Stage, float]]:
    """The deployments of an endpoint, oldest first; each has one event and can be told to the bus."""
    made = list(reversed(DEPLOYMENTS.latest(db, endpoint=endpoint)))
    events = [event for _, event in EVENTS.read(db, kind="deployment.made")]
    assert sorted(event.subject for event in events) == sorted(each.id for each in DEPLOYMENTS.latest(db))
    for event in events:
        told = deployment_event(**deployment_on_record(db, event))
        assert told["deployment_config"]["traffic_percentage"] == pytest.approx(100 * event.data["share"])
        assert is_told(event.data) == (event.data["share"] > 0 and event.data["stage"] != "retired")
    return [(each.policy, each.stage, each.share) for each in made]


def named(folder: Path) -> str:
    """The folder as a deployment has it, whatever its content."""
    return f"{folder}@sha256:"


def test_the_first_version_that_is_served_is_a_deployment(store: LoomDB, folders: tuple[Path, Path]) -> None:
    experiment = ServingExperiment.parse(
        {"kind": "serving", "name": "x", "endpoint": "shop", "arms": [{"what": str(folders[0])}]}, origin="x"
    )
    set_arms(store, "shop", arms_of(experiment, store))
    set_arms(store, "shop", arms_of(experiment, store))
    ((policy, stage, share),) = logged(store)
    assert (policy.startswith(named(folders[0])), stage, share) == (True, Stage.PRODUCTION, 1.0)


def test_a_folder_with_other_content_is_another_deployment(store: LoomDB, folders: tuple[Path, Path]) -> None:
    set_endpoint(store, "shop", parse_arms([f"stable={folders[0]}"], store), at=1.0)
    (folders[0] / "config.json").write_text("{}")
    set_endpoint(store, "shop", parse_arms([f"stable={folders[0]}"], store), at=2.0)
    (first, *_), *later = logged(store)
    assert {(policy == first, stage, share) for policy, stage, share in later} == {
        (True, Stage.RETIRED, 0.0),
        (False, Stage.PRODUCTION, 1.0),
    }


def test_arms_that_are_set_by_hand_are_deployments_and_those_that_go_are_retired(store: LoomDB) -> None:
    prepare(store)
    arms = [
        Arm(name="stable", policy=OLD, share=0.9),
        Arm(name="canary", policy=NEW, share=0.1, role=Role.CANARY),
        Arm(name="shadow", policy=NEW, share=1.0, role=Role.SHADOW),
    ]
    set_endpoint(store, "shop", arms, at=2.0, reason="by ann")
    set_endpoint(store, "shop", [Arm(name="stable", policy=NEW)], at=3.0)
    delete_endpoint(store, "shop", at=4.0)
    assert logged(store) == [
        (NEW, Stage.CANARY, 0.1),
        (OLD, Stage.PRODUCTION, 0.9),
        (OLD, Stage.RETIRED, 0.0),
        (NEW, Stage.PRODUCTION, 1.0),
        (NEW, Stage.RETIRED, 0.0),
    ]
    reasons = [each.verdict.reasons for each in DEPLOYMENTS.latest(store, endpoint="shop")]
    assert reasons[-1] == ("endpoint shop, revision 1: by ann",)


def test_a_run_that_is_followed_is_told_as_its_newest_version(store: LoomDB) -> None:
    prepare(store)
    set_endpoint(store, "shop", [Arm(name="stable", policy="run@newest")], at=2.0)
    assert logged(store) == [("run@newest", Stage.PRODUCTION, 1.0)]
    ((_, event),) = [each for each in EVENTS.read(store, kind="deployment.made") if each[1].subject.startswith("shop")]
    told = deployment_event(**deployment_on_record(store, event))
    assert (told["model_info"]["model_id"], told["model_info"]["checkpoint_path"]) == (NEW, "2")


def test_a_release_of_an_exported_folder_is_a_deployment_in_each_step(
    store: LoomDB, folders: tuple[Path, Path]
) -> None:
    set_endpoint(store, "shop", parse_arms([f"stable={folders[0]}"], store), at=1.0)
    asked = ReleaseRequest(
        version=str(folders[1]), endpoint="shop", plan=PLAN, suite=None, no_gate="a test", who="ann", why=""
    )
    begun = begin(asked, store)
    announce(store, begun.challenger)
    step_on(store)
    command_release(store, "shop", Command.ROLLBACK, who="ann", why="no", at=4.0)
    old, new = named(folders[0]), named(folders[1])
    found = [
        (policy[: len(old)] if policy.startswith(old) else policy[: len(new)], *rest) for policy, *rest in logged(store)
    ]
    assert found == [
        (old, Stage.PRODUCTION, 1.0),
        (old, Stage.PRODUCTION, 1.0),
        (new, Stage.CANARY, 0.1),
        (new, Stage.RETIRED, 0.0),
        (old, Stage.PRODUCTION, 1.0),
    ]
    (made, *_) = DEPLOYMENTS.latest(store, endpoint="shop", limit=1)
    assert len(made.policy.partition("@sha256:")[2]) == 64
    assert show_endpoint(store, "shop").stable.identity == made.policy


def step_on(db: LoomDB) -> None:
    """The first step of the open release, whose replica is up."""
    held, present = latest(db, "shop"), show_endpoint(db, "shop")
    assert held.passage.phase is ReleasePhase.OPEN
    assert held.touched(present) == ""
    passage = replace(held.passage, step=0, reason="step 1")
    assert move(db, held, passage, present, held.next_row(passage, None, who="", at=3.0)) is not None


def test_the_arms_of_an_ab_test_are_deployments_with_their_share_of_all_units(store: LoomDB) -> None:
    prepare(store)
    start_test(store, TEST, [Arm(name="new", policy=NEW)])
    stop_test(store, "x", at=13.0)
    assert logged(store, "e")[1:] == [(NEW, Stage.CANARY, 0.0), (NEW, Stage.CANARY, 0.25), (NEW, Stage.RETIRED, 0.0)]
    start_test(store, TEST, [Arm(name="new", policy=NEW)])
    stop_test(store, "x", at=15.0, keep="new")
    assert logged(store, "e")[-2:] == [(OLD, Stage.RETIRED, 0.0), (NEW, Stage.PRODUCTION, 1.0)]
