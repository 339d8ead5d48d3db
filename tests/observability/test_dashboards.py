"""The dashboards: as their source says, and every curve has data where everything there is to see has happened."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client import CollectorRegistry

from loomrl.bus.service import Meter
from loomrl.bus.sink import Taken
from loomrl.cluster.monitoring.board import BOARDS, texts
from loomrl.cluster.monitoring.folder import SHIPPED
from loomrl.observability import family
from loomrl.observability.exposition import door_at, exposed, metrics_route, process_registry
from loomrl.observability.presence import present
from loomrl.store import LoomDB, open_store
from loomrl.store.replicas import ReplicaRole
from loomrl.telemetry.record import record_routes
from loomrl.telemetry.sink import Exposed, read_metrics
from tests.needs import needs
from tests.observability import document, record_samples
from tests.observability.gateway_samples import metered, served
from tests.observability.prometheus import Prometheus, prometheus
from tests.serving.test_gateway import Slow

HISTORIES = {
    "language": Path(__file__).with_name("language_run.jsonl"),
    "control": Path(__file__).parent.parent / "telemetry/histories/ppo_cartpole.jsonl",
}
"""Metrics of real runs, by kind."""
CHAT = {"model": "e", "messages": [{"role": "user", "content": "Hello"}]}


def test_files_are_what_their_source_writes() -> None:
    folder = next(iter(texts())).parent
    assert {path: path.read_text() for path in folder.glob("*.json")} == texts(), (
        "python -P -m loomrl.cluster.monitoring.board"
    )


def test_dashboards_are_the_three_of_the_contract_and_one_of_trainings() -> None:
    titles = [board.title for board in BOARDS]
    assert titles == ["RL Training Overview", "Model Performance", "Deployment Health", "LoomRL Training"]


def test_every_family_is_on_a_dashboard_or_in_a_rule() -> None:
    shown = "".join(texts().values()) + "".join(path.read_text() for path in SHIPPED.glob("*.yaml"))
    missing = {each.name for each in family.families() if each.name not in shown}
    assert missing == set()


@contextmanager
def gateway(db: LoomDB) -> Iterator[None]:
    """A gateway in a thread, with calls that were answered, refused and failed a moment ago, and more to come."""
    over, ready = threading.Event(), threading.Event()

    async def run() -> None:
        async with metered(served({"stable": Slow(tokens=3)})) as good:
            url = good.client.base_url
            with present(db, ReplicaRole.GATEWAY, address=f"{url.host}:{url.port}", endpoint="e"):
                while not over.is_set():
                    answer = await good.client.post("/v1/chat/completions", json=CHAT)
                    assert answer.status_code == 200
                    wrong = await good.client.post("/v1/chat/completions", json={})
                    assert wrong.status_code == 400
                    ready.set()
                    await asyncio.sleep(0.1)

    thread = threading.Thread(target=asyncio.run, args=[run()])
    thread.start()
    try:
        assert ready.wait(30)
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def beside(db: LoomDB, registry: CollectorRegistry, role: ReplicaRole, run: str = "") -> Iterator[None]:
    """A process of this role whose metrics are in the registry."""
    door = door_at("127.0.0.1:0")
    with (
        exposed(door, [metrics_route(registry)]),
        present(db, role, address=f"{door.host}:{door.port}", run=run),
    ):
        yield


@contextmanager
def everything(url: str) -> Iterator[str]:
    """A record with everything, and a process of each kind; yields where the record is scraped."""
    with open_store(url) as db, ExitStack() as stack:
        record_samples.plant(db, url)
        stack.enter_context(gateway(db))
        registry = process_registry()
        meter = Meter(registry)
        meter.published.inc(7)
        meter.took(Taken(stored=3))
        stack.enter_context(beside(db, registry, ReplicaRole.BUS))
        for run, history in HISTORIES.items():
            registry = process_registry()
            sink = Exposed(registry, run=run)
            for row in read_metrics(history):
                sink.write(int(row["step"]), row)
            stack.enter_context(beside(db, registry, ReplicaRole.TRAINER, run))
        routes = stack.enter_context(record_routes(db, url))
        yield stack.enter_context(exposed(door_at("127.0.0.1:0"), routes)).removeprefix("http://")


@needs("Prometheus")
@pytest.mark.slow
@pytest.mark.system
def test_no_panel_is_empty(sqlite_url: str, tmp_path: Path, unused_tcp_port: int) -> None:
    folder = tmp_path / "prometheus"
    with everything(sqlite_url) as record, prometheus(folder, unused_tcp_port, record, pace_s=0.5) as scraped:
        for role in ("gateway", "bus", "trainer"):
            scraped.wait(f'up{{role="{role}"}} == 1')
        scraped.wait("endpoint_arm:loomrl_gateway_errors:ratio5m")
        scraped.wait("rate(loomrl_bus_published_total[5m])")
        scraped.wait("run:loomrl_training_seconds:sum")
        scraped.wait("agent_rl_trajectory_reward_count")
        record_samples.go_on(sqlite_url)
        scraped.wait("loomrl_bus_behind")
        scraped.wait("increase(agent_rl_training_samples_count[1h]) > 0")
        scraped.wait("loomrl:trajectories_tried:1h > 0")
        empty = [f"{title}: {query}" for title, query in queries() if not scraped.has(query)]
        assert empty == []
        assert_exact(scraped)
        assert {"BusGone"} <= scraped.alerts()


def queries() -> Iterator[tuple[str, str]]:
    """Every query of every panel, with all that a variable may be."""
    for text in texts().values():
        board = json.loads(text)
        for panel in board["panels"]:
            for target in panel["targets"]:
                yield (
                    f"{board['title']}, {panel['title']}",
                    target["expr"].replace("$endpoint", ".*").replace("$run", ".*"),
                )


def assert_exact(scraped: Prometheus) -> None:
    """What Prometheus has is what was planted, whoever was asked however often."""
    collected = scraped.query("sum(agent_rl_trajectories_collected_total)")
    assert [series["value"][1] for series in collected] == ["10"]
    labels = httpx.get(f"{scraped.url}/api/v1/label/__name__/values", timeout=30).json()["data"]
    missing = {each.name for each in family.CONTRACT if not any(name.startswith(each.name) for name in labels)}
    assert missing == set()


def test_tables_of_the_document_are_those_of_the_code() -> None:
    page = document.PAGE.read_text()
    assert document.told(page) == page, "python -m tests.observability.document"
    assert all(f"`{each.name}`" in page for each in family.families())


def test_alerts_that_the_document_names_are_those_there_are() -> None:
    rules = yaml.safe_load((SHIPPED / "alerts.yaml").read_text())["groups"]
    page = document.PAGE.read_text()
    assert [rule["alert"] for group in rules for rule in group["rules"] if f"`{rule['alert']}`" not in page] == []
