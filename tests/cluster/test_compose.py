"""The compose file, as far as it can be checked without Docker: its form, what it mounts, builds and runs."""

import json
import logging
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
import yaml
from pydantic import BaseModel, ConfigDict, Field

from loomrl.experiments.cli import app
from loomrl.experiments.shipped import names
from loomrl.observability.log import JsonFormatter
from loomrl.store import open_store
from loomrl.store.events import EVENTS, Event
from tests.cluster.cluster_support import assert_parses

FILE = Path(__file__).parent.parent.parent / "cluster/compose.yaml"
Text = Annotated[str, Field(min_length=1)]


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Build(Closed):
    context: Text
    dockerfile: Text
    args: dict[str, str]


class Health(Closed):
    test: list[Text]
    interval: Text
    retries: int


class Condition(Closed):
    condition: Literal["service_started", "service_healthy", "service_completed_successfully"]


class Service(Closed):
    """The keys of the compose specification that we use."""

    image: Annotated[str, Field(pattern=r"^[a-z0-9./-]+:[A-Za-z0-9._-]+$")]
    build: Build | None = None
    command: list[Text]
    environment: dict[str, str] = {}
    volumes: list[Text] = []
    ports: list[Annotated[str, Field(pattern=r"^127\.0\.0\.1:\d+:\d+$")]] = []
    network_mode: Literal["service:pod"] | None = None
    depends_on: dict[str, Condition] = {}
    healthcheck: Health | None = None
    restart: Literal["unless-stopped"]
    working_dir: str | None = None
    init: bool = False
    shm_size: str | None = None


class Optional(Service):
    command: list[Text] = []


class Compose(Closed):
    name: Text
    services: dict[str, Optional]
    volumes: dict[str, None]
    loomrl: Any = Field(alias="x-loomrl")


@pytest.fixture(scope="module")
def compose() -> Compose:
    return Compose.model_validate(yaml.safe_load(FILE.read_text()))


def filled(text: str) -> str:
    """With the defaults of its variables."""
    return re.sub(r"\$\{\w+(?::?[-?]([^}]*))?\}", r"\1", text)


def test_every_other_service_lives_in_the_network_of_the_pod(compose: Compose) -> None:
    assert {name for name, each in compose.services.items() if each.network_mode is None} == {"pod"}
    assert {name for name, each in compose.services.items() if each.ports} == {"pod"}


def test_what_is_mounted_and_built_is_there(compose: Compose) -> None:
    for name, service in compose.services.items():
        if service.build is not None:
            context = FILE.parent / service.build.context
            assert (context / service.build.dockerfile).is_file(), name
            assert {"TORCH", "EXTRAS"} == service.build.args.keys()
        for volume in service.volumes:
            source = filled(volume).split(":")[0]
            if source.startswith("."):
                assert (FILE.parent / source).exists(), volume
            elif "/" not in source and " " not in source:
                assert source in compose.volumes, volume


def test_extras_that_are_built_in_are_ours(compose: Compose) -> None:
    import tomllib

    known = tomllib.loads((FILE.parent.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for service in compose.services.values():
        if service.build is not None:
            assert set(service.build.args["EXTRAS"].split(",")) <= known.keys()


def test_whom_a_service_waits_for_is_there_and_has_a_health(compose: Compose) -> None:
    for service in compose.services.values():
        for name, waited in service.depends_on.items():
            assert waited.condition == "service_healthy"
            assert compose.services[name].healthcheck is not None


def test_commands_are_commands_with_options_that_exist(compose: Compose) -> None:
    found = 0
    for service in compose.services.values():
        if service.command[:1] != ["loomrl"]:
            continue
        assert_parses([filled(word) or "x" for word in service.command[1:]])
        found += 1
    assert found == 5


def test_every_secret_must_be_given_and_none_is_in_the_file(compose: Compose) -> None:
    text = FILE.read_text()
    for name in ("POSTGRES_PASSWORD", "GRAFANA_PASSWORD", "LOOMRL_COORDINATOR_TOKEN", "NATS_AGENT_PASSWORD"):
        assert f"${{{name}:?" in text


def test_ports_and_paths_are_those_of_the_monitoring_files(compose: Compose) -> None:
    folder = FILE.parent / "monitoring"
    source = yaml.safe_load((folder / "grafana/datasource.yaml").read_text())["datasources"][0]
    assert source["url"] == "http://127.0.0.1:9090"
    assert "127.0.0.1:9090:9090" in compose.services["pod"].ports
    provider = yaml.safe_load((folder / "grafana/provider.yaml").read_text())["providers"][0]
    mounted = [volume.split(":")[1] for volume in compose.services["grafana"].volumes]
    assert provider["options"]["path"] in mounted
    assert "--config.file=/etc/loomrl/prometheus.yaml" in compose.services["prometheus"].command


def test_loop_that_is_coordinated_by_default_is_shipped(compose: Compose) -> None:
    assert filled(compose.services["coordinate"].command[2]) in names()


def test_logs_go_to_loki_and_are_kept_for_30_days(compose: Compose) -> None:
    """As far as it can be seen without Docker, Loki and Alloy: addresses and names agree."""
    folder = FILE.parent / "monitoring"
    loki = yaml.safe_load((folder / "loki.yaml").read_text())
    assert loki["limits_config"]["retention_period"] == f"{30 * 24}h"
    assert loki["compactor"]["retention_enabled"]
    assert loki["compactor"]["delete_request_store"] == loki["schema_config"]["configs"][0]["object_store"]
    address = f"http://{loki['server']['http_listen_address']}:{loki['server']['http_listen_port']}"
    assert yaml.safe_load((folder / "grafana/loki.yaml").read_text())["datasources"][0]["url"] == address
    agent = (folder / "logs.alloy").read_text()
    assert f"{address}/loki/api/v1/push" in agent
    assert [agent.count(mark) for mark in "{["] == [agent.count(mark) for mark in "}]"]
    assert any(
        volume.startswith("loki:" + loki["common"]["path_prefix"]) for volume in compose.services["loki"].volumes
    )
    targets = re.findall(r'"__path__" = "([^"*]+)/', agent)
    mounted = [filled(volume).split(":")[1] for volume in compose.services["alloy"].volumes]
    assert set(targets) <= set(mounted)


def test_the_agent_reads_what_our_lines_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = (FILE.parent / "monitoring/logs.alloy").read_text()
    log = json.loads(JsonFormatter().format(logging.makeLogRecord({"name": "loomrl.bus", "msg": "up"})))
    url = f"sqlite:///{tmp_path}/loom.db"
    with open_store(url) as db:
        EVENTS.append(db, [Event(kind="job.moved", subject="1", created_at=1.0)])
    typer.main.get_command(app)(["events", "--after", "0", "--store", url], standalone_mode=False)
    audit = json.loads(capsys.readouterr().out)
    (read,) = re.findall(r"expressions\s+= \{(.*)\}", agent)
    names = set(re.findall(r'"(\w+)" = ""', read))
    assert names & log.keys() == {"logger", "level", "time"}
    assert names & audit.keys() == {"kind", "at"}
