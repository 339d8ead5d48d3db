"""Streams of what is committed, over a real server."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from loomrl.config import HubConfig
from loomrl.console.source import RecordSource
from loomrl.hub import open_hub
from loomrl.store.events import EVENTS, Event
from loomrl.store.keys import revoke_key
from loomrl.store.view.metrics import append_metrics
from loomrl.telemetry.sink import new_metrics
from tests.console.console_support import console, key
from tests.hub.hub_samples import attempts, served

pytestmark = pytest.mark.system


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[RecordSource, Starlette, str]]:
    with console(f"sqlite:///{tmp_path}/loom.db") as (source, app), served(app, ending=app.state.feed.end) as address:
        port = address.rpartition(":")[2]
        yield source, app, f"http://localhost:{port}"


class Watcher:
    """A browser's stream, read in a thread."""

    def __init__(self, url: str, cookies: dict[str, str] | None = None) -> None:
        self.news: list[dict[str, str]] = []
        self.status, self.ended, self.ready = 0, threading.Event(), threading.Event()
        self._url, self._cookies = url, cookies or {}
        threading.Thread(target=self._read, daemon=True).start()
        assert self.ready.wait(20)

    def _read(self) -> None:
        with httpx.Client(cookies=self._cookies, timeout=30) as client, client.stream("GET", self._url) as stream:
            self.status = stream.status_code
            for line in stream.iter_lines():
                if line == ": live":
                    self.ready.set()
                if line.startswith("data: "):
                    self.news.append(json.loads(line.removeprefix("data: ")))
        self.ready.set()
        self.ended.set()

    def wait_for(self, count: int) -> list[tuple[str, str]]:
        deadline = time.monotonic() + 20
        while len(self.news) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        return [(each["kind"], each["subject"]) for each in self.news]


def test_commits_arrive_in_order_and_only_where_they_are_wanted(live: tuple[RecordSource, Starlette, str]) -> None:
    source, _, address = live
    EVENTS.append(source.db, [Event(kind="run.started", subject="before", created_at=1.0)])
    page = EVENTS.last(source.db)
    EVENTS.append(source.db, [Event(kind="run.started", subject="missed", created_at=1.0)])
    every, runs, one = (
        Watcher(f"{address}/live?{query}") for query in (f"after={page}", "kind=run", "kind=metrics&subject=a")
    )
    EVENTS.append(source.db, [Event(kind=kind, subject="a", created_at=1.0) for kind in ("run.failed", "key.created")])
    append_metrics(source.db, new_metrics("b", 1, {"x": 1.0}), at=1.0)
    append_metrics(source.db, new_metrics("a", 1, {"x": 1.0}), at=1.0)
    assert ("metrics", "a") in one.wait_for(1)
    events = [("run.started", "missed"), ("run.failed", "a"), ("key.created", "a")]
    assert every.wait_for(5) == [*events, ("metrics", "b"), ("metrics", "a")]
    assert runs.wait_for(1) == [("run.failed", "a")]
    assert len(one.news) == 1


def test_new_trajectories_are_told_of_once_they_are_in_the_index(live: tuple[RecordSource, Starlette, str]) -> None:
    source, _, address = live
    watcher = Watcher(f"{address}/live?kind=trajectories")
    with open_hub(source.url, HubConfig()) as hub:
        hub.append(attempts("g", 2))
    assert watcher.wait_for(1) == [("trajectories", "")]
    listed = httpx.get(f"{address}/trajectories", headers={"accept": "text/html"}).text
    assert 'href="/trajectories/g/1"' in listed


def test_a_stream_ends_with_its_session(
    live: tuple[RecordSource, Starlette, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, app, address = live
    monkeypatch.setattr("loomrl.console.live.BEAT_S", 0.1)
    plain, id = key(source, "view")
    app.state.sessions.forget()
    assert httpx.get(f"{address}/live").status_code == 401
    cookie = app.state.sessions.sign_in(plain, before=None, address="x")
    watcher = Watcher(f"{address}/live", {"loomrl_console": cookie})
    assert watcher.status == 200
    revoke_key(source.db, id, at=time.time())
    assert watcher.ended.wait(20)


def test_too_many_streams_are_refused_in_a_sentence(
    live: tuple[RecordSource, Starlette, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, address = live
    monkeypatch.setattr("loomrl.console.live.MOST_STREAMS", 2)
    for _ in range(2):
        Watcher(f"{address}/live")
    answer = httpx.get(f"{address}/live")
    assert answer.status_code == 503
    assert answer.json()["error"].startswith("2 pages are live already")
    assert httpx.get(f"{address}/runs", headers={"accept": "text/html"}).status_code == 200
