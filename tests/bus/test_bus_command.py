import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from broker_support import until
from event_samples import foreign_event, message
from typer.testing import CliRunner

from loomrl.bus.open import open_bus
from loomrl.bus.sink import Sink
from loomrl.errors import BusAway, BusError, ClusterError, EventError
from loomrl.experiments.cli import app
from loomrl.store import open_store
from tests.needs import needs


def run(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def run_json(*words: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(run(*words, "--json").splitlines()[-1])
    return result


def test_schema_prints_the_contract() -> None:
    assert json.loads(run("bus", "show", "agent.rl.reward.v1"))["$id"] == "agent.rl.reward.v1"
    with pytest.raises(EventError, match=r"Did you mean 'agent\.rl\.reward\.v1'"):
        run("bus", "show", "agent.rl.rewards.v1")


def test_status_and_letters_tell_what_was_taken_in_and_what_was_put_aside(sqlite_url: str) -> None:
    with open_store(sqlite_url) as db, open_bus(sqlite_url) as bus:
        bus.publish([message(foreign_event()), message(foreign_event(further=1)), message(foreign_event(extra=1))])
        sink = Sink(db, sqlite_url, bus)
        sink.step(wait_s=0)
        sink.close()
    where = ("--store", sqlite_url)
    status = run_json("bus", *where)
    assert (status["agents"], status["rejected"]) == ({"zero": "agent-zero"}, {"contract": 2})
    assert {one["name"]: one["messages"] for one in status["streams"]} == {"RL_TRAJECTORIES": 3, "RL_DEAD": 2}
    assert status["behind"] > 0
    assert "RL_DEAD" in run("bus", *where)
    first, last = run_json("bus", "dead", *where)["letters"]
    assert first["cause"] == last["cause"] == "contract"
    assert "further: Extra inputs" in run("bus", "dead", *where)
    assert run_json("bus", "dead", "--cause", "reused", *where)["letters"] == []
    with pytest.raises(BusError, match="name letters"):
        run("bus", "dead", "--replay", *where)
    assert run_json("bus", "dead", "--replay", first["id"][:10], *where)["replayed"] == [first["id"]]
    assert run_json("bus", "dead", "--replay", "--all", *where)["replayed"] == [last["id"]]
    assert "No dead letters" in run("bus", "dead", *where)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "loomrl", *words]


@pytest.mark.system
def test_the_service_runs_on_loomdb_alone_and_ends_in_order(sqlite_url: str) -> None:
    with open_bus(sqlite_url) as bus:
        bus.publish([message(foreign_event())])
        environment = {name: value for name, value in os.environ.items() if name != "NATS_URL"}
        service = subprocess.Popen(
            command("bus", "run", "--store", sqlite_url), stderr=subprocess.PIPE, text=True, env=environment
        )
        try:
            until(lambda: any(c.unacked + c.waiting == 0 for s in bus.stats() for c in s.consumers), seconds=120)
        finally:
            service.send_signal(signal.SIGTERM)
            _, said = service.communicate(timeout=120)
    assert "and back; Ctrl-C ends it" in said
    assert "Traceback" not in said


def test_a_machine_without_the_server_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("loomrl.cluster.nats.shutil.which", lambda *_, **__: None)
    with pytest.raises(ClusterError, match="apt-get install nats-server"):
        run("bus", "broker", "--folder", str(tmp_path))


@pytest.mark.system
@needs("nats-server")
def test_a_server_for_a_laptop_starts_with_accounts_and_ends_with_the_command(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    words = ["bus", "broker", "--folder", str(tmp_path / "nats"), "--port", str(unused_tcp_port)]
    with (tmp_path / "said").open("wb") as said:
        server = subprocess.Popen(command(*words), stderr=said)

    def lines() -> list[str]:
        return (tmp_path / "said").read_text().splitlines()

    try:
        until(lambda: any("Server is ready" in line for line in lines()), seconds=120)
        urls = dict(line.split(": ") for line in lines()[:3])
        with open_bus(urls["coordinator"]) as bus:
            assert bus.publish([message(foreign_event())]) == [True]
        with pytest.raises(ClusterError, match=rf"127\.0\.0\.1:{unused_tcp_port} cannot be used.*--port"):
            run(*words)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    assert (tmp_path / "nats/passwords.json").stat().st_mode & 0o777 == 0o600
    assert {urlsplit(url).hostname for url in urls.values()} == {"127.0.0.1"}
    with open_bus(urls["coordinator"]) as bus, pytest.raises(BusAway):
        bus.publish([message(foreign_event())])
