"""The columns on a server, by URL: fed, asked, refused; one feeder by a lease."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loomrl.analytics import feeding
from loomrl.analytics.feeding import Feeding, sole_feeder
from loomrl.analytics.place import StoreLocation, place_of
from loomrl.errors import AnalyticsError
from loomrl.store.notes import Notes
from tests.analytics.world import World

pytestmark = pytest.mark.system


@pytest.fixture
def served(small: World, tmp_path: Path, unused_tcp_port_factory: Callable[[], int]) -> Iterator[World]:
    """A world whose columns are on a server."""
    port, folder = unused_tcp_port_factory(), tmp_path / "server"
    script = Path(__file__).with_name("clickhouse_http.py")
    with subprocess.Popen([sys.executable, str(script), str(port), str(folder)]) as process:
        try:
            until = time.monotonic() + 60
            while not (folder / "ready").exists():
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.05)
            small.place = place_of(f"http://127.0.0.1:{port}/mine?compress=false", small.url)
            yield small
        finally:
            process.kill()


def test_a_server_is_fed_asked_and_made_anew(served: World) -> None:
    served.fill()
    every = {"trajectories": 19, "rewards": 13, "feedback": 4, "exposures": 11}
    assert served.feed().loaded == every
    assert served.feed().total == 0
    assert served.value("SELECT count() FROM judged") == 10
    assert {row["task"] for row in served.ask("SELECT * FROM baselines")} >= {"talk/session/1"}
    for sql in ("DROP TABLE rewards", "SELECT file('/etc/passwd')", "SELECT 1 SETTINGS readonly = 0", "SELEC"):
        with pytest.raises(AnalyticsError):
            served.ask(sql)
    assert served.feed(anew=True).loaded == every


def test_a_server_has_one_feeder(served: World, monkeypatch: pytest.MonkeyPatch) -> None:
    notes, key = Notes(served.db), f"analytics/{served.place.name}"
    notes.keep(key, json.dumps({"who": "elsewhere:7", "until": time.time() + 50}))
    with pytest.raises(AnalyticsError, match="is fed by elsewhere:7 already"):
        served.feed()
    notes.keep(key, json.dumps({"who": "elsewhere:7", "until": time.time() - 1}))
    assert served.feed().total == 0
    assert notes.find(key) == "{}"
    monkeypatch.setattr(feeding, "LEASE_S", 0.0)
    with Feeding(served.url, served.place) as late:
        notes.keep(key, json.dumps({"who": "elsewhere:7", "until": time.time() + 50}))
        with pytest.raises(AnalyticsError, match="is fed by elsewhere:7"):
            late.round()
    assert "elsewhere:7" in (notes.find(key) or ""), "what is another's is not given back"


def test_the_lease_of_a_dead_process_of_this_machine_is_taken_over(small: World) -> None:
    place = StoreLocation(url="http://127.0.0.1:9")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    who = f"{socket.gethostname()}:{dead.pid}"
    Notes(small.db).keep(f"analytics/{place.name}", json.dumps({"who": who, "until": time.time() + 50}))
    with sole_feeder(small.db, place):
        pass


def test_a_server_that_is_not_there_is_said_so(small: World) -> None:
    small.place = StoreLocation(url="http://127.0.0.1:9")
    with pytest.raises(AnalyticsError, match=r"http://127.0.0.1:9/loomrl: Connection refused\. Is the server there"):
        small.feed()
