"""The dashboards: every query names metrics that there are, and no curve is empty after everything has happened."""

import asyncio
import json
import re
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
from loomrl.cluster.monitoring import SHIPPED
from loomrl.observability import family
from loomrl.observability.exposition import door_at, exposed, metrics_route, process_registry
from loomrl.observability.presence import present
from loomrl.store import LoomDB, open_store
from loomrl.store.replicas import ReplicaRole
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.record import record_routes
from loomrl.telemetry.sink import Exposed, read_metrics, training_family
from tests.needs import needs
from tests.observability import record_samples
from tests.observability.gateway_samples import metered, served
from tests.observability.prometheus import Prometheus, prometheus
from tests.serving.test_gateway import Slow

HISTORIES = {
    "language": Path(__file__).with_name("language_run.jsonl"),
    "control": Path(__file__).parent.parent / "telemetry/histories/ppo_cartpole.jsonl",
}
"""Metrics of real runs, by kind."""
BOARDS = [json.loads(path.read_text()) for path in sorted(SHIPPED.glob("dashboards/*.json"))]
METRIC = re.compile(r"\b(?:\w+:)?(?:loomrl|agent_rl|process)[_:][\w:]+")
CHAT = {"model": "e", "messages": [{"role": "user", "content": "Hello"}]}


def test_dashboards_are_the_three_of_the_contract_and_one_of_trainings_with_panels_in_places_of_their_own() -> None:
    titles = {board["title"] for board in BOARDS}
    assert titles == {"RL Training Overview", "Model Performance", "Deployment Health", "LoomRL Training"}
    for board in BOARDS:
        places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]}
        assert len(places) == len({panel["id"] for panel in board["panels"]}) == len(board["panels"]), board["title"]


def test_every_query_names_metrics_that_there_are() -> None:
    rules = yaml.safe_load((SHIPPED / "recording.yaml").read_text())["groups"]
    known = {rule["record"] for group in rules for rule in group["rules"]}
    known |= {training_family(metric).name for metric in Metric}
    known |= {"loomrl_training_step", "process_resident_memory_bytes", "process_cpu_seconds_total"}
    for each in family.families():
        parts = ("_bucket", "_count", "_sum") if each.kind == "histogram" else ("",)
        known |= {each.name + part for part in parts}
    named = {(title, name) for title, query in queries() for name in METRIC.findall(query)}
    assert {(title, name) for title, name in named if name not in known} == set()
    assert len(named) > 60


def test_every_family_is_on_a_dashboard_or_in_a_rule() -> None:
    shown = json.dumps(BOARDS) + "".join(path.read_text() for path in SHIPPED.glob("*.yaml"))
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
    for board in BOARDS:
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


def test_alerts_that_the_document_names_are_those_there_are() -> None:
    rules = yaml.safe_load((SHIPPED / "alerts.yaml").read_text())["groups"]
    page = (Path(__file__).parents[2] / "docs/monitoring.md").read_text()
    assert [rule["alert"] for group in rules for rule in group["rules"] if f"`{rule['alert']}`" not in page] == []
