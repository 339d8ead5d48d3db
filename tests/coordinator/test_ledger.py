"""Jobs on record, on both databases: who was first decides, and everything leaves as events of the contracts."""

from dataclasses import replace

import pytest
from sqlalchemy import Connection

from loomrl.bus.event import TRAINING_REQUEST, TRAINING_STATUS
from loomrl.bus.outbox import EventFeed
from loomrl.coordinator.contract import ALERT
from loomrl.coordinator.decision import Alert, Move, QueueJob, decide
from loomrl.coordinator.fault import remedy
from loomrl.coordinator.job import Code, JobFault, JobPhase, Priority, TrainingJob
from loomrl.coordinator.ledger import ask_for, cancel, find_job, jobs_of, move
from loomrl.errors import ConfigError, IdTaken, StoreError
from loomrl.store import LoomDB, trainings
from loomrl.store.endpoints import Arm, set_endpoint
from loomrl.store.events import EVENTS, record
from loomrl.store.trainings import TRAININGS, list_trainings, show_log
from tests.coordinator.plans import ENDPOINT, NOW, job, plan
from tests.coordinator.plans import record as seen_as

IDS = [f"00000000-0000-4000-8000-{number:012}" for number in range(200)]


@pytest.fixture
def db(store: LoomDB) -> LoomDB:
    """A LoomDB with the endpoint."""
    set_endpoint(store, ENDPOINT, [Arm(name="stable", policy="r/0")], at=1.0)
    return store


def queued(db: LoomDB, number: int = 0, **changes: object) -> TrainingJob:
    made = ask_for(db, plan(), job(IDS[number], **changes))
    assert made is not None
    return made


def begun(db: LoomDB, before: TrainingJob, **changes: object) -> TrainingJob:
    after = before.to(JobPhase.RUNNING, at=NOW + 1, run="run-1", begun_at=NOW + 1, **changes)
    assert move(db, plan(), Move(job=after)) == after
    return after


def published(db: LoomDB) -> list[tuple[str, dict[str, object]]]:
    """The events of the contracts, none of which may be refused."""
    page = EventFeed(db, "here").read(0, now=NOW)
    assert page.skipped == []
    parse = {TRAINING_REQUEST.subject: TRAINING_REQUEST.parse, TRAINING_STATUS.subject: TRAINING_STATUS.parse}
    return [(one.subject, dict(parse[one.subject](one.payload))) for one in page.messages]


def test_job_leaves_as_request_and_status_of_the_contracts(db: LoomDB) -> None:
    running = begun(db, queued(db, reason="100 new trajectories", priority=Priority.HIGH))
    done = running.to(JobPhase.COMPLETED, at=NOW + 9, policy="run-1/4", ended_at=NOW + 9, tenths=10)
    assert move(db, plan(), Move(job=done)) is not None
    (requests, request), *statuses = published(db)
    assert requests == TRAINING_REQUEST.subject
    assert str(request["training_job_id"]) == IDS[0]
    assert request["priority"] == "high"
    assert request["training_config"]["algorithm"] == "dpo"  # type: ignore[index]
    assert request["training_config"]["variant"] == "kto"  # type: ignore[index]
    assert request["training_config"]["base_model"] == "r/0"  # type: ignore[index]
    assert [status["status"] for _, status in statuses] == ["queued", "running", "completed"]
    assert statuses[-1][1]["artifacts"] == {"final_checkpoint": "run-1/4"}
    assert statuses[-1][1]["resource_usage"] == {"total_training_time_seconds": 8.0}


def test_failure_its_retry_and_its_alert_are_one_transaction(db: LoomDB) -> None:
    running = begun(db, queued(db))
    fault = JobFault(Code.OOM, "out of memory")
    again = remedy(plan(), running, fault, broken=(), now=NOW)
    assert again is not None
    failed = running.to(JobPhase.FAILED, at=NOW, fault=fault)
    step = Move(job=failed, then=again, alerts=(Alert("jobs_failed", "three"),))

    def broken(connection: Connection) -> None:
        record(connection, "x", "y", {"nan": float("nan")}, at=NOW)

    with pytest.raises(StoreError):
        move(db, plan(), step, beside=broken)
    assert [each.phase for each in jobs_of(db, ENDPOINT)[1]] == [JobPhase.RUNNING]
    assert EVENTS.read(db, kind=ALERT) == []
    assert move(db, plan(), step) is not None
    assert move(db, plan(), step) is None
    jobs = {each.id: each for each in jobs_of(db, ENDPOINT)[1]}
    assert (jobs[failed.id].phase, jobs[again.id].phase) == (JobPhase.FAILED, JobPhase.QUEUED)
    ((_, alert),) = EVENTS.read(db, kind=ALERT)
    assert (alert.subject, alert.data["alert"], alert.data["job"]) == (ENDPOINT, "jobs_failed", failed.id)
    asked = [dict(event) for subject, event in published(db) if subject == TRAINING_REQUEST.subject]
    assert str(asked[1]["metadata"]["previous_training_job"]) == failed.id  # type: ignore[index]
    assert asked[1]["training_config"]["hyperparameters"]["batch_size"] == 16  # type: ignore[index]


def test_whoever_saw_an_older_row_moves_nothing(db: LoomDB) -> None:
    waiting = queued(db)
    begun(db, waiting)
    stale = waiting.to(JobPhase.CANCELLED, at=NOW + 2)
    assert move(db, plan(), Move(job=stale)) is None
    assert [row.state for row in show_log(db, waiting.id)] == ["queued", "running"]


def test_second_training_of_an_endpoint_cannot_begin(db: LoomDB) -> None:
    one, other = queued(db, 1), queued(db, 2)
    running = begun(db, one)
    beside = other.to(JobPhase.RUNNING, at=NOW + 2, run="run-2")
    assert move(db, plan(), Move(job=beside)) is None
    assert move(db, plan(), Move(job=running.to(JobPhase.FAILED, at=NOW + 3))) is not None
    assert move(db, plan(), Move(job=beside)) is not None


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
def test_two_who_decide_at_once_ask_for_one_job(db: LoomDB) -> None:
    position, jobs = jobs_of(db, ENDPOINT)
    steps = [decide(plan(), replace(seen_as(*jobs, collected=100), position=position), NOW + n) for n in (0, 1)]
    done = [ask_for(db, plan(), step.job, seen=position) for step in steps if isinstance(step, QueueJob)]
    assert [each is not None for each in done] == [True, False]
    assert len(jobs_of(db, ENDPOINT)[1]) == 1


def test_same_request_again_is_no_second_job_and_another_one_under_its_id_is_refused(db: LoomDB) -> None:
    first = queued(db, request={"requester": "a", "trigger_reason": "manual"})
    assert queued(db, request=first.request) == first
    begun(db, first)
    assert queued(db, request=first.request).id == first.id
    with pytest.raises(IdTaken, match=rf"training '{IDS[0]}' was asked for already, with other content"):
        queued(db, request={"requester": "b"})
    assert len(show_log(db, first.id)) == 2


def test_queue_has_an_end(db: LoomDB, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainings, "MOST_QUEUED", 3)
    for number in range(3):
        queued(db, number)
    with pytest.raises(StoreError, match="3 trainings are queued, and no more are taken"):
        queued(db, 3)


def test_a_persons_word_ends_what_waits_at_once_and_what_runs_as_soon_as_it_can(db: LoomDB) -> None:
    waiting, other = queued(db, 1), queued(db, 2)
    ended = cancel(db, waiting.id, who="ann", why="wrong data", at=NOW)
    assert (ended.phase, ended.reason) == (JobPhase.CANCELLED, "cancelled by ann (wrong data)")
    with pytest.raises(ConfigError, match=r"is over \(cancelled: cancelled by ann"):
        cancel(db, waiting.id, who="ann", why="", at=NOW)
    running = begun(db, other)
    asked = cancel(db, running.id, who="ann", why="", at=NOW)
    assert (asked.phase, asked.is_cancelled) == (JobPhase.RUNNING, True)
    assert cancel(db, running.id, who="bob", why="", at=NOW).number == asked.number
    releasing = asked.to(JobPhase.COMPLETED, at=NOW).to(JobPhase.RELEASING, at=NOW, release="policy-7")
    assert move(db, plan(), Move(job=replace(releasing, number=4))) is not None
    with pytest.raises(ConfigError, match=r"is being released .policy-7.*loomrl release abort policy"):
        cancel(db, running.id, who="ann", why="", at=NOW)


def test_jobs_are_found_by_run_by_state_and_by_their_first_letters(db: LoomDB) -> None:
    running, waiting = begun(db, queued(db, 1)), queued(db, 22)
    found = TRAININGS.newest(db, run="run-1")
    assert found.id == running.id
    assert TRAININGS.newest(db, run="nobody") is None
    assert [row.id for row in list_trainings(db, states=["queued"])] == [waiting.id]
    assert [row.id for row in list_trainings(db, since=NOW + 1)] == [running.id]
    with pytest.raises(StoreError, match="trainings has no id 'nowhere'"):
        find_job(db, "nowhere")
    assert find_job(db, running.id).id == running.id
