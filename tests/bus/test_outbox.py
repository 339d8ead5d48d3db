import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from loomrl.bus.agent import STORE, origin_of
from loomrl.bus.event import CONTRACTS
from loomrl.bus.outbox import SKIPPED, Outbox
from loomrl.bus.outgoing import deployment_event, is_told, request_event
from loomrl.bus.stored import StoredBus
from loomrl.config import ControlExperiment, HubConfig
from loomrl.hub.open import open_endpoint_hub
from loomrl.load import dump
from loomrl.store import LoomDB, open_store
from loomrl.store.deployments import Deployment, deploy
from loomrl.store.endpoints import Arm, set_endpoint
from loomrl.store.events import EVENTS, Event
from loomrl.store.policies import record_policy
from loomrl.store.rewards import store_rewards
from loomrl.store.runs import Run, start_run
from loomrl.store.verdicts import StoredVerdict, VerdictOutcome, record_verdict
from loomrl.types import End, Message, PolicyVersion, Reward, Source, Stage, Task, Trajectory, Turn, Verdict
from tests.feedback.test_reward_event import judged

NOW = time.time()
DATASET = {"source": "local", "sample_size": 10, "filter": None}
CONFIG = {"algorithm": "grpo", "base_model": "m", "dataset": DATASET, "hyperparameters": {"learning_rate": 1e-5}}
ASKED = {"requester": "rl-trainer", "trigger_reason": "threshold_reached", "training_config": CONFIG, "metadata": None}


@pytest.fixture
def outbox(db: LoomDB, url: str, bus: StoredBus) -> Iterator[Outbox]:
    outbox = Outbox(db, url, bus)
    yield outbox
    outbox.close()


def published(bus: StoredBus, stream: str) -> list[dict[str, Any]]:
    """The events of a stream; each validates."""
    given = bus.browse(stream)
    for one in given:
        CONTRACTS[one.subject].parse(one.payload)
    return [msgspec.json.decode(one.payload) for one in given]


def record(db: LoomDB, kind: str, subject: str, data: dict[str, Any], *, at: float = NOW) -> None:
    EVENTS.append(db, [Event(kind=kind, subject=subject, data=data, created_at=at)])


def served(id: str, text: str = "Hello.", **changes: Any) -> Trajectory:
    made = Trajectory(
        id=id,
        task=Task("shop", "run/1", "session", 1, 0),
        turns=(Turn((Message("system", "Be kind."), Message("user", "Hi")), text),),
        end=End.TERMINATED,
        reward=Reward(),
        group=id,
        source=Source.PRODUCTION,
        started_at=NOW - 60,
        finished_at=NOW,
    )
    return replace(made, **changes)


def test_a_training_that_is_asked_for_and_its_states_are_told_in_order(
    db: LoomDB, bus: StoredBus, outbox: Outbox
) -> None:
    record(db, "training.requested", "job-1", ASKED)
    record(db, "training.moved", "job-1", {"status": "queued"})
    record(db, "training.moved", "job-1", {"status": "finished", "progress": {"percent_complete": 100.0}})
    record(db, "run.started", "run", {})
    assert outbox.step() == 3
    asked, queued, done = published(bus, "RL_TRAINING")
    job = str(uuid.uuid5(uuid.NAMESPACE_URL, "loomrl:job-1"))
    assert asked["training_job_id"] == queued["training_job_id"] == done["training_job_id"] == job
    assert (asked["training_config"]["algorithm"], "metadata" in asked) == ("grpo", False)
    assert (queued["status"], done["status"], done["progress"]) == ("queued", "completed", {"percent_complete": 100.0})
    assert [dict(given.headers) for given in bus.browse("RL_TRAINING")] == [{STORE: origin_of(db)}] * 3


@pytest.mark.parametrize(("ours", "theirs"), [("raft", "reinforce"), ("kto", "dpo")])
def test_an_algorithm_without_a_name_in_the_contract_is_told_as_the_one_it_is_a_variant_of(
    ours: str, theirs: str
) -> None:
    event = request_event("j", ASKED | {"training_config": CONFIG | {"algorithm": ours}}, at=NOW)
    assert (event["training_config"]["algorithm"], event["training_config"]["variant"]) == (theirs, ours)
    CONTRACTS["agent.rl.training.request.v1"].encode(event)


def test_rewards_are_told_with_their_components(db: LoomDB, bus: StoredBus, outbox: Outbox) -> None:
    reward = replace(judged(success=1.0), created_at=NOW)
    store_rewards(db, [reward])
    assert outbox.step() == 1
    (event,) = published(bus, "RL_REWARDS")
    assert (event["reward_id"], event["session_id"], event["total_reward"]) == (reward.id, "s-1", reward.total)
    assert event["reward_components"]["task_completion"]["score"] == 1.0


def test_what_was_served_is_told_once_it_is_a_trajectory(db: LoomDB, url: str, bus: StoredBus, outbox: Outbox) -> None:
    set_endpoint(db, "shop", [Arm(name="stable", policy="run/1")], at=NOW)
    with open_endpoint_hub(url, "shop", HubConfig()) as hub:
        hub.append([served(f"s{number}") for number in range(100)])
        hub.append([served("of a training", source=Source.ROLLOUT), served("control", turns=())])
        assert [outbox.step() for _ in range(3)] == [1 + 64, 36, 0]  # the deployment first
        hub.append([served("later")])
        assert outbox.step() == 1
    events = published(bus, "RL_TRAJECTORIES") + [
        msgspec.json.decode(given.payload) for given in bus.browse("RL_TRAJECTORIES", after=101)
    ]
    assert [event["session_id"] for event in events] == [*(f"s{number}" for number in range(100)), "later"]
    first = events[0]
    assert (first["agent_id"], first["metadata"]["model"]) == ("shop", "run/1")
    assert first["task_context"]["instructions"] == "Be kind."
    assert first["turns"][0]["observation"] == {"type": "user_message", "content": "Hi"}
    assert first["turns"][0]["action"] == {"type": "response", "raw_response": "Hello."}


def test_cursors_are_on_record_and_another_bus_has_its_own(
    db: LoomDB, url: str, bus: StoredBus, outbox: Outbox, postgres_url: str
) -> None:
    record(db, "training.moved", "j", {"status": "queued"})
    assert outbox.step() == 1
    again = Outbox(db, url, bus)
    assert (again.step(), again.cursors()) == (0, outbox.cursors())
    again.close()
    with StoredBus(open_store(postgres_url)) as elsewhere:
        other = Outbox(db, url, elsewhere)
        assert other.step() == 1
        other.close()
        assert len(published(elsewhere, "RL_TRAINING")) == 1


def test_two_outboxes_publish_each_record_once_and_the_cursor_never_goes_back(
    db: LoomDB, url: str, bus: StoredBus
) -> None:
    one, other = Outbox(db, url, bus), Outbox(db, url, bus)
    for number in range(10):
        record(db, "training.moved", f"j{number}", {"status": "queued"})
        one.step()
        other.step()
    assert len(published(bus, "RL_TRAINING")) == 10
    assert one.step() == other.step() == 0
    one.close()
    other.close()


def test_a_cursor_moves_only_once_the_bus_has_the_page(
    db: LoomDB, bus: StoredBus, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(db, "training.moved", "j", {"status": "queued"})

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("loomrl.bus.outbox.put_note", killed)
        with pytest.raises(KeyboardInterrupt):
            outbox.step()
    assert outbox.cursors() == {"events": 0}
    outbox.step()
    assert len(published(bus, "RL_TRAINING")) == 1


def test_what_no_contract_allows_or_is_too_large_is_skipped_by_name_and_stops_nothing(
    db: LoomDB, url: str, bus: StoredBus, outbox: Outbox
) -> None:
    record(db, "training.requested", "j", {"requester": "nobody said why"})
    record(db, "training.requested", "k", {"training_config": ["no", "object"]})
    record(db, "reward.made", "of a trajectory that was deleted", {})
    record(db, "training.moved", "j", {"status": "queued"})
    set_endpoint(db, "shop", [Arm(name="stable", policy="run/1")], at=NOW)
    with open_endpoint_hub(url, "shop", HubConfig()) as hub:
        hub.append([served("huge", "x" * 1_100_000), served("small")])
    assert outbox.step() == 3
    assert [event["session_id"] for event in published(bus, "RL_TRAJECTORIES")] == ["small"]
    reasons = [event.data["reason"] for _, event in EVENTS.read(db, kind=SKIPPED)]
    assert len(reasons) == 3
    assert "trigger_reason: Field required" in reasons[0]
    assert "training.requested k: AttributeError" in reasons[1]
    assert "a message has at most 1048576" in reasons[2]
    assert outbox.step() == 0


def test_records_older_than_the_bus_would_keep_are_left_out(db: LoomDB, bus: StoredBus, outbox: Outbox) -> None:
    record(db, "training.moved", "old", {"status": "queued"}, at=NOW - 8 * 86_400)
    record(db, "training.moved", "a clock that is a day ahead", {"status": "queued"}, at=NOW + 86_400)
    assert outbox.step() == 1
    assert len(published(bus, "RL_TRAINING")) == 1


def deploy_on_record(db: LoomDB, id: str, *, stage: Stage, share: float) -> None:
    made = Deployment(
        id=id, policy="r/1", stage=stage, endpoint="shop", share=share, verdict=Verdict(True), created_at=NOW
    )
    with db.write() as connection:
        deploy(connection, made)


def test_deployments_are_told_with_the_findings_of_the_gate(db: LoomDB, bus: StoredBus, outbox: Outbox) -> None:
    experiment = ControlExperiment.parse(ControlExperiment.defaults() | {"name": "x"}, origin="x")
    start_run(
        db,
        Run(
            id="r",
            name="x",
            kind="train",
            experiment=experiment.sha256,
            resolved=dump(experiment),
            code="",
            environments={},
            started_at=NOW,
        ),
    )
    record_policy(
        db,
        PolicyVersion(
            id="r/1", number=1, url="runs/r/1", run="r", algorithm="ppo", experiment="e" * 64, created_at=NOW
        ),
    )
    deploy_on_record(db, "shop-1/1/r/1", stage=Stage.CANARY, share=0.1)
    checks = [
        {"name": "benchmark Math", "state": "passed", "figures": {"success": {"mean": 0.75}}},
        {"name": "safety.secrets", "state": "failed", "figures": {}},
        {"name": "regression", "state": "failed", "figures": {}},
    ]
    record_verdict(
        db,
        StoredVerdict(
            id="v",
            policy="r/1",
            fingerprint="",
            against=None,
            suite="s@1",
            suite_hash="h",
            outcome=VerdictOutcome.REFUSED,
            report={"checks": checks},
            created_at=NOW,
        ),
    )
    deploy_on_record(db, "shop-1/2/r/1", stage=Stage.PRODUCTION, share=1.0)
    deploy_on_record(db, "shop-1/3/r/1", stage=Stage.RETIRED, share=0.0)
    assert outbox.step() == 2
    canary, whole = published(bus, "RL_MODELS")
    assert canary["model_info"]["model_id"] == whole["model_info"]["model_id"] == "r/1"
    assert (canary["deployment_config"]["traffic_percentage"], whole["deployment_config"]["traffic_percentage"]) == (
        10.0,
        100.0,
    )
    assert canary["deployment_config"]["endpoint"] == "urn:loomrl:endpoint:shop"
    assert whole["validation_results"] == {
        "benchmark_passed": True,
        "safety_checks_passed": False,
        "performance_regression": True,
        "benchmark_scores": {"Math": 0.75},
    }


def test_a_version_that_no_gate_has_seen_passed_nothing() -> None:
    event = deployment_event(
        {"id": "d", "endpoint": "shop", "share": 0.25, "created_at": NOW},
        policy={"id": "r/1", "run": "r", "job": "r", "url": "u", "base_model": "m", "created_at": NOW},
        endpoint_url="http://127.0.0.1:8000",
        release={"strategy": "canary", "who": "ann", "baseline": "r/0"},
        verdict=None,
    )
    CONTRACTS["agent.rl.model.deployed.v1"].encode(event)
    found = event["validation_results"]
    assert (found["benchmark_passed"], found["safety_checks_passed"], found["gate"]) == (False, False, "none")
    assert event["metadata"] == {
        "deployed_by": "ann",
        "approval_status": "emergency_override",
        "previous_model": "r/0",
    }
    assert event["deployment_config"]["rollout_strategy"] == "canary"
    assert not is_told({"stage": "candidate", "share": 1.0})
