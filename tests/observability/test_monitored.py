"""A real service, a real training, a bus and the record, scraped by a real Prometheus: data for everything, no false
alarm, and a true one when all gateways are killed.

It lasts a minute; LOOMRL_MONITORED_S=1800 makes it half an hour:

    LOOMRL_MONITORED_S=1800 python -m pytest -m slow tests/observability/test_monitored.py
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from loomrl.config import HubConfig
from loomrl.hub.open import open_endpoint_hub
from loomrl.observability import family
from loomrl.store import open_store
from loomrl.store.replicas import ReplicaRole, live_replicas
from tests.needs import needs
from tests.observability import record_samples
from tests.observability.prometheus import Prometheus, prometheus
from tests.observability.test_dashboards import queries
from tests.serving.control_support import control_policy

SECONDS = float(os.environ.get("LOOMRL_MONITORED_S", "60"))
ENDPOINT = record_samples.ENDPOINT
OBSERVATION = [0.0, 0.0, 0.0, 0.0]
ELSEWHERE = (
    "policy_kl",
    "policy_drift",
    "policy_importance",
    "staleness",
    "length_action",
    "length_prompt",
    "groups_",
    "failures",
    "success",
    "reward_",
    "throughput_engine",
    "throughput_learner",
    "learning_rate",
    "time_publish",
    "time_hub",
    "time_checkpoint",
    "time_engine_idle",
)
"""Beginnings of metrics that a control run has not (`test_dashboards` shows those of a language run)."""
OF_WORDS = ("first_token", "tokens", "violat", "gateway_busy", "gateway_waiting", "gateway_queue")
"""Parts of the names of what only conversations have."""
pytestmark = [needs("Prometheus"), needs("HAProxy"), pytest.mark.system, pytest.mark.slow]


@contextmanager
def command(folder: Path, name: str, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A `loomrl` command in the background, until the context ends."""
    ray = tempfile.mkdtemp(prefix="loom-", dir="/tmp")  # one of its own, or it would join another's
    environment = os.environ | {"RAY_TMPDIR": ray}
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "loomrl", *words], cwd=folder, stdout=log, stderr=log, env=environment
        )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=60)
        process.kill()
        process.wait()
        shutil.rmtree(ray, ignore_errors=True)


@contextmanager
def calls(url: str) -> Iterator[list[int]]:
    """Ten sessions a second, some of them refused; yields the statuses."""
    over, seen = threading.Event(), list[int]()

    def call() -> None:
        with httpx.Client(timeout=30) as client:
            number = 0
            while not over.wait(0.05):
                number += 1
                body = {"model": ENDPOINT, "observation": OBSERVATION if number % 20 else [0.0]}
                with suppress(httpx.TransportError):
                    answer = client.post(f"{url}/v1/act", json=body, headers={"x-loomrl-session": f"s-{number}"})
                    seen.append(answer.status_code)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


@pytest.mark.timeout(1200 + 2 * int(SECONDS))
def test_what_runs_is_seen_whole_and_only_what_is_wrong_alerts(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    url, port, record = f"sqlite:///{tmp_path}/loom.db", unused_tcp_port_factory(), unused_tcp_port_factory()
    store = f"store_url={url}"
    control_policy().save(tmp_path / "pole")
    with ExitStack() as stack:
        db = stack.enter_context(open_store(url))
        serve = ("serve", "pole", store, "--endpoint", ENDPOINT, "--port", str(port), "record.idle_s=2")
        service = stack.enter_context(command(tmp_path, "serve", *serve))
        train = (
            "train",
            "control/cartpole",
            store,
            "train.steps=100000000",
            "train.stop.target=100000",
            "evaluation.every=2000",
        )
        trainer = stack.enter_context(command(tmp_path, "train", *train, "--run", "cart", "--metrics", "127.0.0.1:0"))
        stack.enter_context(command(tmp_path, "bus", "bus", "run", "--store", url, "--metrics", "127.0.0.1:0"))
        stack.enter_context(command(tmp_path, "metrics", "metrics", "--store", url, "--address", f"127.0.0.1:{record}"))
        until(lambda: answers(f"http://127.0.0.1:{port}/readyz"), 400, tmp_path / "serve.log")
        until(lambda: answers(f"http://127.0.0.1:{record}/metrics"), 200, tmp_path / "metrics.log")
        folder = tmp_path / "prometheus"
        seen = stack.enter_context(calls(f"http://127.0.0.1:{port}"))
        scraped = stack.enter_context(
            prometheus(folder, unused_tcp_port_factory(), f"127.0.0.1:{record}", pace_s=2.0 if SECONDS > 300 else 1.0)
        )
        for role, count in (("gateway", 2), ("trainer", 1), ("bus", 1)):
            assert trainer.poll() is None, (tmp_path / "train.log").read_text()[-3000:]
            scraped.wait(f'count(up{{role="{role}"}} == 1) == {count}', timeout_s=400)
        rest(url)
        began = time.monotonic()
        while time.monotonic() - began < SECONDS:
            time.sleep(5)
            assert scraped.alerts() == set()
        assert_seen(scraped, url)
        assert set(seen[20:]) == {200, 400}
        kill_gateways(db, service, scraped)


def rest(url: str) -> None:
    """What this test has no hours for: rewards, trainings of a loop, verdicts and releases, put on the record."""
    with open_store(url) as db:
        (endpoint,) = [row.version for row in live_replicas(db, role=ReplicaRole.POLICY)]
        record_samples.judge(db, ["r-0", "r-1"], version=endpoint, total=0.7)
        record_samples.train(db, "1", [record_samples.Phase.RUNNING, record_samples.Phase.COMPLETED], seconds=700.0)
        record_samples.release(db, "done")
        record_samples.check(db)


def assert_seen(scraped: Prometheus, url: str) -> None:
    """Every metric of the contract has data, every panel is drawn, and counts are the record's."""
    for each in family.CONTRACT:
        name = f"{each.name}_bucket" if each.kind == "histogram" else each.name
        assert scraped.has(name), each.name
    empty = [title for title, query in queries() if not scraped.has(query) and not is_elsewhere(query)]
    assert empty == []
    collected = 'sum(agent_rl_trajectories_collected_total{agent_type="policy"})'
    until(lambda: value(scraped, collected) >= 1, 60)
    with open_endpoint_hub(url, ENDPOINT, HubConfig()) as hub:
        there = sum(each.trajectories for each in hub.stats().environments.values())
        assert 0 < value(scraped, collected) <= there
        until(lambda: value(scraped, collected) >= there, 30)


def is_elsewhere(query: str) -> bool:
    """True for what a language policy or a rule's hit is needed for."""
    return any(f"loomrl_training_{name}" in query for name in ELSEWHERE) or any(name in query for name in OF_WORDS)


def kill_gateways(db: "record_samples.LoomDB", service: "subprocess.Popen[bytes]", scraped: Prometheus) -> None:
    """One that is killed comes back, counts from 0 and is no alert; all of them are one."""
    first = live_replicas(db, role=ReplicaRole.GATEWAY)[0]
    answered = 'sum(increase(loomrl_gateway_calls_total{outcome="answered"}[1m]))'
    before = value(scraped, answered)
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: first.pid not in {row.pid for row in live_replicas(db, role=ReplicaRole.GATEWAY, dead_s=3)}, 60)
    assert value(scraped, answered) > 0.3 * before, "not counted from 0, nor twice"
    assert "GatewayDown" not in scraped.alerts()
    service.kill()  # with everything it started
    until(lambda: "GatewayDown" in scraped.alerts(), 120)
    assert scraped.has(f'loomrl_processes{{role="gateway",endpoint="{ENDPOINT}"}} == 0')


def value(scraped: Prometheus, expression: str) -> float:
    """The value of an expression with one series; 0 without any."""
    found = scraped.query(expression)
    return float(found[0]["value"][1]) if found else 0.0


def answers(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(url, timeout=10).status_code == 200
    return False


def until(condition: Callable[[], bool], timeout_s: float, log: Path | None = None) -> None:
    limit = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < limit, log.read_text()[-3000:] if log else condition
        time.sleep(0.2)
