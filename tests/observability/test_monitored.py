"""A real service, a real training, a bus and the record, scraped by a real Prometheus: all are seen, no false
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
from loomrl.store import LoomDB, open_store
from loomrl.store.replicas import ReplicaRole, live_replicas
from tests.needs import needs
from tests.observability.prometheus import Prometheus, prometheus
from tests.serving.control_support import control_policy

SECONDS = float(os.environ.get("LOOMRL_MONITORED_S", "60"))
ENDPOINT = "policy"
OBSERVATION = [0.0, 0.0, 0.0, 0.0]
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
        began = time.monotonic()
        while time.monotonic() - began < SECONDS:
            time.sleep(5)
            assert scraped.alerts() == set()
        assert_seen(scraped, url)
        assert set(seen[20:]) == {200, 400}
        kill_gateways(db, service, scraped)


def assert_seen(scraped: Prometheus, url: str) -> None:
    """Counts are the record's."""
    collected = 'sum(agent_rl_trajectories_collected_total{agent_type="policy"})'
    until(lambda: value(scraped, collected) >= 1, 60)
    with open_endpoint_hub(url, ENDPOINT, HubConfig()) as hub:
        there = sum(each.trajectories for each in hub.stats().environments.values())
        assert 0 < value(scraped, collected) <= there
        until(lambda: value(scraped, collected) >= there, 30)


def kill_gateways(db: LoomDB, service: "subprocess.Popen[bytes]", scraped: Prometheus) -> None:
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
