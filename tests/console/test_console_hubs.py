"""The trajectories of training runs, each in a hub of its own beside LoomDB."""

from contextlib import closing

import pytest

from loomrl.config import HubConfig
from loomrl.console.source import Indexer, open_source
from loomrl.hub.open import open_hub
from loomrl.store import beside, open_store
from loomrl.store.runs import RunStatus, finish_run, start_run
from tests.console.console_samples import new_run
from tests.console.console_support import Browser, console
from tests.hub.hub_samples import attempts

pytestmark = pytest.mark.system


def trained(url: str, *runs: str, shards: int = 1) -> None:
    """Runs on record, with two attempts of each in its hub."""
    with open_store(url) as db:
        for id in runs:
            start_run(db, new_run(id))
            with open_hub(beside(url, id), HubConfig(shards=shards)) as hub:
                hub.append(attempts(f"group of {id}", 2))


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
def test_attempts_of_runs_are_listed_and_shown(store_url: str) -> None:
    trained(store_url, "math-1", "math-2", shards=2)
    with console(store_url) as (_, app):
        browser = Browser(app)
        assert "4 in the index" in browser.get("/trajectories").text
        (first, *_) = attempts("group of math-2", 2)
        assert browser.get(f"/trajectories/{first.id}").status_code == 200
        assert "<td>4</td>" in browser.get("/environments").text
        assert "<dt>Attempts</dt><dd>4</dd>" in browser.get(f"/environments/{first.task.environment}").text


def test_what_is_no_hub_of_a_run_on_record_is_not_opened(sqlite_url: str) -> None:
    trained(sqlite_url, "math-1")
    open_store(beside(sqlite_url, "notes")).close()
    with closing(open_source(sqlite_url)) as source:
        assert source.hubs() == ["", "math-1"]


def test_hubs_of_runs_that_are_over_are_let_go(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(sqlite_url, "math-1", "math-2")
    with open_store(sqlite_url) as db:
        finish_run(db, "math-1", status=RunStatus.FINISHED, finished_at=2.0)
    with closing(open_source(sqlite_url)) as source:
        indexer = Indexer(source)
        assert [indexer.round(), indexer.round(), indexer.round()] == [4, 0, 0]
        over, going = source.hub("math-1"), source.hub("math-2")
        assert over is not None
        assert going is not None
        assert [over.engine.pool.checkedin(), going.engine.pool.checkedin()] == [0, 1]
        for run in ("math-1", "math-2"):
            with open_hub(beside(sqlite_url, run), HubConfig()) as hub:
                hub.append(attempts(f"more of {run}", 1))
        assert indexer.round() == 1, "the one that goes on"
        monkeypatch.setattr(indexer, "_again", {})
        assert indexer.round() == 1, "the other one, later"
