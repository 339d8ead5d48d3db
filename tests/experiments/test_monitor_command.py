"""`loomrl endpoints monitor` and `free`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loomrl.errors import StoreError
from loomrl.experiments.cli import app
from loomrl.store import open_store
from loomrl.store.events import EVENTS, Event
from loomrl.store.sessions import Quarantine, record_quarantine


def told(*words: str) -> dict[str, list[dict[str, object]]]:
    result = CliRunner().invoke(app, ["endpoints", *words, "--json"], catch_exceptions=False)
    return json.loads(result.stdout)


def test_hits_are_summed_and_a_session_is_freed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/loom.db"
    hit = {"arm": "canary", "version": "r/2", "rule": "secrets", "what": "key", "then": "replace", "sessions": ["s"]}
    with open_store(url) as db:
        events = [Event(kind="monitor.hit", subject="e", data=hit | {"count": n}, created_at=1.0) for n in (3, 4)]
        EVENTS.append(db, events)
        record_quarantine(db, Quarantine(endpoint="e", session="s", held=True, rule="secrets", at=1.0))
    (row,) = told("monitor", "--store", url)["hits"]
    assert (row["rule"], row["arm"], row["count"]) == ("secrets", "canary", 7)
    assert [each["session"] for each in told("monitor", "--store", url)["quarantined"]] == ["s"]
    told("free", "s", "--who", "Ada", "--store", url)
    assert told("monitor", "--store", url)["quarantined"] == []
    with pytest.raises(StoreError, match="not in quarantine"):
        CliRunner().invoke(app, ["endpoints", "free", "s", "--store", url], catch_exceptions=False)
