import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from loomrl.config import ServingExperiment
from loomrl.errors import ConfigError
from loomrl.load import parse_yaml
from loomrl.serving.deployment.source import source_of, version_to_follow
from loomrl.serving.deployment.station import Station
from loomrl.store import open_store
from loomrl.store.endpoints import Arm, Role, delete_endpoint, drain_endpoint, set_endpoint
from loomrl.store.events import EVENTS
from loomrl.store.feedback import FEEDBACK
from loomrl.store.keys import create_key
from loomrl.store.replicas import live_replicas
from loomrl.store.sessions import read_calls
from tests.inference.sample_models import tiny_model, tiny_tokenizer
from tests.needs import needs
from tests.serving.service_support import Service, record, service, start
from tests.serving.waiting import until

pytestmark = [needs("HAProxy"), pytest.mark.usefixtures("one_thread")]
ASK = {"model": "policy", "messages": [{"role": "user", "content": "ab"}], "max_tokens": 12}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A LoomDB with a run of two versions."""
    tiny = tiny_model()
    tiny.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        experiment = start(db, tmp_path)
        record(db, experiment, 0)
        record(db, experiment, 1)
    return tmp_path


async def ask(url: str, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=60) as client:
        return await client.post(f"{url}/v1/chat/completions", json=ASK, headers=headers)


async def answers(served: Service, *wanted: int | str, **headers: str) -> None:
    """Calls until each of these versions or statuses has answered one."""
    left = set(wanted)
    async with asyncio.timeout(30):
        while left:
            answer = await ask(served.url, **headers)
            left -= {answer.status_code, answer.headers.get("x-loomrl-version")}


Serve = Callable[..., AbstractAsyncContextManager[Service]]


@pytest.fixture
def serve(folder: Path, unused_tcp_port_factory: Callable[[], int]) -> Serve:
    """A service of that run whose gateways are known to the front."""

    @asynccontextmanager
    async def opened(what: str = "run", **settings: Any) -> AsyncIterator[Service]:
        arms = [{"what": "run", "follow": "newest"}] if what == "newest" else [{"what": what}]
        async with service(folder, unused_tcp_port_factory, arms=arms, **settings) as served:
            await until(lambda: served.front.front is not None and len(served.front.front.gateways) == 2)
            yield served

    return opened


async def test_a_run_is_served_recorded_and_ended_in_order(folder: Path, serve: Serve) -> None:
    async with serve() as served:
        answer = await ask(served.url)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-loomrl-version"] == "run/1"
        assert answer.headers["x-loomrl-recorded"] == "true"
        session = answer.headers["x-loomrl-trajectory"]
        with open_store(f"sqlite:///{folder}/loom.db") as db:
            roles = Counter(row.role.value for row in live_replicas(db, endpoint="policy"))
            assert roles == {"policy": 1, "gateway": 2, "front": 1}
            _, calls = read_calls(db, session)
            assert len(calls) == 1
            async with httpx.AsyncClient(timeout=60) as client:
                told = {"call": answer.json()["id"], "thumb": "up"}
                given = await client.post(f"{served.url}/v1/feedback", json=told)
            assert given.status_code == 200, given.text
            assert [one.trajectory for _, one in FEEDBACK.read(db)] == [session]
    with open_store(f"sqlite:///{folder}/loom.db") as db:
        assert live_replicas(db) == []
        told = [event for _, event in EVENTS.read(db, subject="policy") if event.kind.startswith("service.")]
    assert [event.kind for event in told] == ["service.started", "service.ended"]
    assert {event.data["experiment"] for event in told} == {served.station.experiment.sha256}
    resolved = parse_yaml(told[0].data["resolved"], origin="service.started")
    assert ServingExperiment.parse(resolved) == served.station.experiment
    with pytest.raises(httpx.ConnectError):
        await ask(served.url)


async def test_followers_swap_weights_under_load_without_a_failed_call(folder: Path, serve: Serve) -> None:
    async with serve("newest", record={"mode": "off"}) as served:
        seen: list[tuple[int, str]] = []
        is_over = False

        async def calls() -> None:
            while not is_over:
                answer = await ask(served.url)
                seen.append((answer.status_code, answer.headers.get("x-loomrl-version", "")))

        tasks = [asyncio.create_task(calls()) for _ in range(2)]
        with open_store(f"sqlite:///{folder}/loom.db") as db:
            experiment = start(db, folder)
            for number in (2, 3):
                newest = await asyncio.to_thread(record, db, experiment, number)
                await until(lambda newest=newest: (200, newest) in seen)
            is_over = True
            await asyncio.gather(*tasks)
            await until(lambda: [row.version for row in live_replicas(db, policies=["run@newest"])] == ["run/3"])
        assert {status for status, _ in seen} == {200}
        assert {version for _, version in seen} >= {"run/2", "run/3"}


async def test_a_version_that_cannot_be_loaded_is_refused_and_the_one_before_stays(
    folder: Path, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve("newest") as served:
        with open_store(f"sqlite:///{folder}/loom.db") as db:
            experiment = start(db, folder)
            record(db, experiment, 2)
            (weights,) = folder.glob(  # noqa: ASYNC240
                "artifacts/runs/run/000002/.files-*/model/model.safetensors"
            )
            whole = weights.read_bytes()
            weights.write_bytes(whole[:-8] + b"\x00\x11\x22\x33\x44\x55\x66\x77")
            await until(lambda: "cannot be followed" in caplog.text or "was refused" in caplog.text)
            answer = await ask(served.url)
            assert (answer.status_code, answer.headers["x-loomrl-version"]) == (200, "run/1")
            weights.write_bytes(whole)
            record(db, experiment, 3)
            await answers(served, "run/3")


def test_best_follows_the_best_version_and_newest_the_last(folder: Path) -> None:
    with open_store(f"sqlite:///{folder}/loom.db") as db:
        experiment = start(db, folder)
        record(db, experiment, 2, best=1)
        assert version_to_follow("run", "newest", db).id == "run/2"
        assert version_to_follow("run", "best", db).id == "run/1"


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("rum", "Did you mean 'run'"),
        ("run/7", "no id 'run/7'"),
        ("rum@newest", "Did you mean 'run'"),
        ("empty", "neither config.json.*nor policy.json"),
    ],
)
def test_what_cannot_be_served_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch, what: str, said: str) -> None:
    monkeypatch.chdir(folder)
    (folder / "empty").mkdir()
    with open_store(f"sqlite:///{folder}/loom.db") as db, pytest.raises(Exception, match=said):
        source_of(what, db)


async def test_arms_follow_the_endpoint_while_it_serves_those_with_a_key(folder: Path, serve: Serve) -> None:
    async with serve("run/0", keys="required", record={"mode": "off"}) as served:
        await served.add("run/1")
        with open_store(f"sqlite:///{folder}/loom.db") as db:
            plain, _ = create_key(db, "app", at=1.0)
            mine = {"authorization": f"Bearer {plain}"}
            arms = [
                Arm(name="stable", policy="run/0", share=0.5),
                Arm(name="canary", policy="run/1", share=0.5, role=Role.CANARY),
            ]
            set_endpoint(db, "policy", arms, at=1.0)
            assert (await ask(served.url)).status_code == 401
            await answers(served, "run/0", "run/1", **mine)
            drain_endpoint(db, "policy", at=2.0)
            await answers(served, 503, **mine)
            delete_endpoint(db, "policy", at=3.0)
            await answers(served, 404, **mine)


async def test_pages_of_other_sites_are_refused_unless_they_are_named(serve: Serve) -> None:
    friend = "https://chat.example.org"
    async with serve(origins=[friend], record={"mode": "off"}) as served:
        assert (await ask(served.url, origin="https://evil.example")).status_code == 403
        assert (await ask(served.url, host="evil.example")).status_code == 403
        answer = await ask(served.url, origin=friend)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, friend)
        async with httpx.AsyncClient() as client:
            asks = {"origin": friend, "access-control-request-method": "POST"}
            assert (await client.options(f"{served.url}/v1/chat/completions", headers=asks)).status_code == 200


def test_a_run_without_a_version_can_be_neither_served_nor_followed(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        start(db, tmp_path, "young")
        for name in ("young", "young@newest"):
            with pytest.raises(ConfigError, match="no version yet"):
                source_of(name, db)


@pytest.mark.parametrize(
    ("head", "host", "tls", "url"),
    [
        ("127.0.0.1", "127.0.0.1", None, "http://127.0.0.1:8000"),
        ("127.0.0.1", "0.0.0.0", None, "http://127.0.0.1:8000"),
        ("127.0.0.1", "::", None, "http://[::1]:8000"),
        ("10.7.0.1", "0.0.0.0", None, "http://10.7.0.1:8000"),
        ("10.7.0.1", "::", None, "http://10.7.0.1:8000"),
        ("10.7.0.1", "10.9.0.1", {"certificate": "c.pem", "key": "k.pem"}, "https://10.9.0.1:8000"),
    ],
)
def test_callers_are_told_an_address_that_reaches_the_front(head: str, host: str, tls: Any, url: str) -> None:
    tree = {"name": "talk", "arms": [{"what": "talk"}], "host": host, "tls": tls}
    assert Station(experiment=ServingExperiment.parse(tree), token="t", head=head).url == url
