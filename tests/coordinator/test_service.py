"""The training service of the contract: over HTTP, and over the bus."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from loomrl.bus.bus import Message
from loomrl.bus.dead import letters
from loomrl.bus.event import MODEL_DEPLOYED, TRAINING_REQUEST, TRAINING_STATUS
from loomrl.bus.outbox import Outbox
from loomrl.bus.stored import StoredBus
from loomrl.config.loop import LoopExperiment
from loomrl.coordinator.decision import Move
from loomrl.coordinator.job import Code, JobFault, JobPhase, Priority
from loomrl.coordinator.ledger import find_job, jobs_of, move
from loomrl.coordinator.service import Inbox, ModelsQuery, TrainingService, serve_training
from loomrl.errors import ConfigError
from loomrl.http.listen import open_door
from loomrl.release.controller import Controller
from loomrl.store import LoomDB, open_store
from loomrl.store.endpoints import Arm, set_endpoint
from tests.coordinator.plans import ENDPOINT, NOW, plan
from tests.release import release_support

TOKEN = "only-for-tests"
ID = "00000000-0000-4000-8000-00000000000a"
OTHER = ID[:-1] + "b"
REQUEST: dict[str, Any] = {
    "training_job_id": ID,
    "timestamp": "2027-01-15T08:00:00Z",
    "requester": "rl-trainer",
    "trigger_reason": "manual",
    "training_config": {
        "algorithm": "dpo",
        "base_model": "r/0",
        "dataset": {"source": "local", "sample_size": 500, "filter": {"min_reward": 0.2, "task_domains": ["coding"]}},
        "hyperparameters": {"learning_rate": 2e-5, "batch_size": 8, "epochs": 2},
    },
}


def request(**changes: Any) -> dict[str, Any]:
    """The request with fields by path, `__` for a point."""
    made = deepcopy(REQUEST)
    for path, value in changes.items():
        *branch, last = path.split("__")
        part = made
        for name in branch:
            part = part.setdefault(name, {})
        part[last] = value
    return made


@pytest.fixture
def db(sqlite_url: str) -> Iterator[LoomDB]:
    with open_store(sqlite_url) as opened:
        set_endpoint(opened, ENDPOINT, [Arm(name="stable", policy="r/0")], at=1.0)
        yield opened


@pytest.fixture
def service(db: LoomDB) -> TrainingService:
    return TrainingService(db, plan(), collected=lambda: 77, clock=lambda: NOW)


@pytest.fixture
def client(service: TrainingService) -> Iterator[httpx.Client]:
    """A client of a real server."""
    door = open_door(port=0, token=TOKEN)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with serve_training(service, door) as url, httpx.Client(base_url=url, headers=headers, timeout=60) as opened:
        yield opened


def start(client: httpx.Client, body: Any) -> httpx.Response:
    return client.post("/training/start", json=body)


def test_requested_training_is_queued_with_its_settings_and_told_by_the_contract(
    client: httpx.Client, db: LoomDB
) -> None:
    assert client.get("/health").json() == {"status": "ok", "endpoint": ENDPOINT, "loop": "loop"}
    answer = start(client, REQUEST)
    assert answer.status_code == 202, answer.text
    told = answer.json()
    assert (told["job_id"], told["status"]) == (ID, "queued")
    job = find_job(db, ID)
    assert job.settings == {"algorithm.optimizer.learning_rate": 2e-5, "data.batch": 8, "data.epochs": 2}
    assert job.selection == {"limit": 500, "min_reward": 0.2, "domains": ["coding"]}
    assert (job.priority, job.seen, job.who) == (Priority.HIGH, 77, "rl-trainer")
    assert client.get(f"/training/{ID}/status").json() == told
    status = {name: value for name, value in told.items() if name not in ("job_id", "created_at")}
    TRAINING_STATUS.parse(json.dumps(status).encode())
    assert client.get("/jobs").json() == {"jobs": [told]}
    assert client.get("/jobs", params={"status": "running"}).json() == {"jobs": []}
    assert client.get("/jobs", params={"since": "2027-01-15T08:00:01Z"}).json() == {"jobs": []}
    assert len(client.get("/jobs", params={"since": str(NOW), "limit": 1}).json()["jobs"]) == 1


def test_same_request_again_is_no_second_training_and_a_reused_id_is_refused(client: httpx.Client, db: LoomDB) -> None:
    assert start(client, REQUEST).status_code == start(client, REQUEST).status_code == 202
    other = start(client, request(requester="somebody else"))
    assert (other.status_code, other.json()["error"]) == (409, "IdTaken")
    assert len(jobs_of(db, ENDPOINT)[1]) == 1


REFUSED = [
    ("training_config__algorithm", "ppo", r"algorithm='ppo': loop 'loop' trains by kto, which the contract calls dpo"),
    ("training_config__base_model", "r/9", r"base_model='r/9' is unknown. .*Did you mean 'r/0'"),
    ("training_config__dataset__source", "s3", "dataset.source='s3'"),
    (
        "training_config__dataset__stream_name",
        "OTHER",
        "stream_name='OTHER' is unknown. Known: RL_TRAJECTORIES",
    ),
    ("training_config__dataset__filter__colour", 1, "dataset.filter='colour' is unknown"),
    ("training_config__dataset__filter__exclude_subordinate_profiles", ["hacker"], "profiles are not on record"),
    ("training_config__hyperparameters__gamma", 0.9, "hyperparameters.gamma has no effect with kto"),
    ("training_config__hyperparameters__momentum", 0.9, "hyperparameters='momentum' is unknown"),
    ("training_config__hyperparameters__learning_rate", -1, "greater than 0"),
    ("training_config__compute__gpu_count", 8, "compute.gpu_count=8: trainings of loop 'loop' have 0"),
    ("training_config__checkpointing__storage_path", "/x", "checkpointing.storage_path"),
    ("evaluation__enabled", False, "nothing is released without the gate"),
    ("evaluation__benchmark_tasks", ["x"], "the loop's suite has the benchmarks"),
]


@pytest.mark.parametrize(("path", "value", "said"), REFUSED, ids=[path.rpartition("__")[2] for path, *_ in REFUSED])
def test_what_cannot_be_had_is_refused_by_name(service: TrainingService, path: str, value: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        service.start(json.dumps(request(**{path: value})).encode())
    assert jobs_of(service.db, ENDPOINT)[1] == ()


def test_settings_of_another_algorithm_reach_it(db: LoomDB) -> None:
    tree = plan().plain
    tree["training"]["algorithm"] = {"kind": "ppo"}
    loop = LoopExperiment.parse(tree)
    body = request(
        training_config__algorithm="ppo",
        training_config__hyperparameters={"clip_epsilon": 0.1, "gamma": 0.9, "gae_lambda": 0.8},
        evaluation__holdout_size=0.2,
        priority="low",
    )
    TrainingService(db, loop, clock=lambda: NOW).start(json.dumps(body).encode())
    job = find_job(db, ID)
    changed = loop.training.override(job.settings).plain["algorithm"]
    assert (changed["clip"]["low"], changed["clip"]["high"]) == (0.1, 0.1)
    assert (changed["gamma"], changed["gae_lambda"]) == (0.9, 0.8)
    assert (job.selection["holdout"], job.priority) == (0.2, Priority.LOW)


def test_bad_requests_say_what_is_wrong(client: httpx.Client) -> None:
    bare = client.post("/training/start", content=b"{", headers={"Content-Type": "application/json"})
    assert (bare.status_code, bare.json()["error"]) == (400, "EventError")
    more = start(client, REQUEST | {"colour": 1})
    assert (more.status_code, "colour" in more.json()["message"]) == (400, True)
    assert start(client, request(training_config__algorithm="ppo")).status_code == 422
    assert client.get(f"/training/{ID}/status").status_code == 404
    assert client.post("/training/no-uuid/cancel").status_code == 404
    assert "status" in client.get("/jobs", params={"status": "ended"}).json()["message"]
    assert client.get("/jobs", params={"limit": "-1"}).status_code == 422
    assert "not a time" in client.get("/jobs", params={"since": "yesterday"}).json()["message"]
    assert "colour" in client.get("/models", params={"colour": "1"}).json()["message"]
    assert client.get("/nowhere").status_code == 404


def test_nobody_asks_without_the_token_and_pages_of_other_sites_do_not_at_all(client: httpx.Client) -> None:
    assert client.get("/health", headers={"Authorization": ""}).status_code == 200
    for path in ("/jobs", "/models", f"/training/{ID}/status"):
        assert client.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert client.post("/training/start", json=REQUEST, headers={"Origin": "https://elsewhere"}).status_code == 403


def test_training_is_cancelled_and_one_that_is_over_is_not_and_a_failure_has_its_error(
    client: httpx.Client, db: LoomDB
) -> None:
    start(client, REQUEST)
    assert client.post(f"/training/{ID}/cancel").json()["status"] == "cancelled"
    again = client.post(f"/training/{ID}/cancel")
    assert (again.status_code, "is over" in again.json()["message"]) == (409, True)
    start(client, request(training_job_id=OTHER))
    failed = find_job(db, OTHER).to(JobPhase.FAILED, at=NOW, fault=JobFault(Code.DATA, "nothing is left"))
    move(db, plan(), Move(job=failed))
    assert client.get(f"/training/{OTHER}/status").json()["error"] == {"code": "DATA", "message": "nothing is left"}
    assert len(client.get("/jobs", params={"status": "failed"}).json()["jobs"]) == 1


def test_models_are_those_that_were_deployed(sqlite_url: str) -> None:
    with open_store(sqlite_url) as db:
        release_support.prepare(db)
        loop = plan(endpoint=release_support.ENDPOINT)
        release_support.released(db)
        release_support.announce(db, release_support.NEW)
        Controller(db, release_support.ENDPOINT).tick()
        service = TrainingService(db, loop)
        models = service.models(ModelsQuery())["models"]
        for model in models:
            MODEL_DEPLOYED.parse(msgspec.json.encode(model))
        shares = [(each["model_info"]["model_id"], each["deployment_config"]["traffic_percentage"]) for each in models]
        assert ("run/2", 10.0) in shares
        assert service.models(ModelsQuery(deployed_since=4e9))["models"] == []


# -- over the bus ---------------------------------------------------------------------------------------------------


def test_requests_of_others_come_over_the_bus_and_what_cannot_be_had_is_put_aside(
    service: TrainingService, db: LoomDB, sqlite_url: str
) -> None:
    with StoredBus(open_store(sqlite_url)) as bus:
        bodies = [
            (REQUEST, "good"),
            (request(training_config__algorithm="ppo", training_job_id=OTHER), "ppo"),
            (REQUEST | {"colour": 1}, "open"),
            (request(requester="x"), "reused"),
        ]
        subject = TRAINING_REQUEST.subject
        bus.publish([Message(subject=subject, id=id, payload=json.dumps(body).encode()) for body, id in bodies])
        inbox = Inbox(bus, service, clock=lambda: NOW)
        assert inbox.step() == 4
        assert inbox.step() == 0
        assert [job.id for job in jobs_of(db, ENDPOINT)[1]] == [ID]
        aside = {letter.message: letter for letter in letters(bus)}
        causes = {id: letter.cause.value for id, letter in aside.items()}
        assert causes == {"ppo": "refused", "open": "contract", "reused": "reused"}
        assert "algorithm='ppo'" in aside["ppo"].reason
        outbox = Outbox(db, sqlite_url, bus)
        outbox.step()
        outbox.close()
        published = [one for one in bus.browse("RL_TRAINING") if one.headers]
        assert [one.subject for one in published] == [TRAINING_STATUS.subject], "the request came over the bus"


def test_own_requests_do_not_come_back(service: TrainingService, db: LoomDB, sqlite_url: str) -> None:
    service.start(json.dumps(REQUEST).encode())
    with StoredBus(open_store(sqlite_url)) as bus:
        outbox = Outbox(db, sqlite_url, bus)
        assert outbox.step() == 2
        outbox.close()
        assert Inbox(bus, service).step() == 1
        assert len(jobs_of(db, ENDPOINT)[1]) == 1
        assert list(letters(bus)) == []


def test_questions_about_a_job_are_answered_or_refused_by_name(service: TrainingService, sqlite_url: str) -> None:
    service.start(json.dumps(REQUEST).encode())
    with StoredBus(open_store(sqlite_url)) as bus:
        inbox = Inbox(bus, service)
        answer = json.loads(inbox.answer(json.dumps({"job_id": ID}).encode()))
        assert (answer["training_job_id"], answer["status"]) == (ID, "queued")
        for question in (b"{", b"[]", b"{}", json.dumps({"job_id": "nobody"}).encode()):
            assert json.loads(inbox.answer(question))["message"]


@pytest.mark.slow
def test_request_and_reply_over_nats(service: TrainingService, tmp_path: Path, unused_tcp_port: int) -> None:
    """The stream of the contract takes the question, too: its acknowledgement comes first, then the answer."""
    import asyncio

    import nats

    from loomrl.bus.open import open_bus
    from tests.bus.broker_support import NatsServer
    from tests.needs import need

    need("nats-server")
    server = NatsServer(tmp_path / "nats", unused_tcp_port)
    server.start()
    service.start(json.dumps(REQUEST).encode())
    try:
        with open_bus(server.urls["trainer"]) as bus:
            inbox = Inbox(bus, service)
            with open_bus(server.url) as coordinator:
                coordinator.publish([Message(subject="agent.rl.training.status.v1", id="1", payload=b"{}")])
            inbox.step()

            async def asked() -> list[dict[str, Any]]:
                client = await nats.connect(server.url, inbox_prefix="_INBOX_coordinator")
                inbox_name = client.new_inbox()
                listening = await client.subscribe(inbox_name)
                question = json.dumps({"job_id": ID}).encode()
                await client.publish("agent.rl.training.status.request", question, reply=inbox_name)
                first = json.loads((await listening.next_msg(timeout=10)).data)
                second = json.loads((await listening.next_msg(timeout=10)).data)
                await client.close()
                return [first, second]

            answers = asyncio.run(asked())
        assert [each.get("training_job_id") for each in answers].count(ID) == 1
    finally:
        server.kill()
