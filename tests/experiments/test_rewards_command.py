"""`loomrl rewards`: run once, show, list and alarms."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loomrl.bus.agent import open_agent_hub, record_agent
from loomrl.config import HubConfig
from loomrl.errors import ConfigError, StoreError
from loomrl.experiments.cli import app
from loomrl.hub.open import open_endpoint_hub
from loomrl.store import open_store
from loomrl.store.endpoints import Arm, set_endpoint
from loomrl.store.events import EVENTS, Event
from loomrl.store.feedback import append_feedback
from loomrl.types import Source
from tests.feedback.support import said, served


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A LoomDB with an endpoint that served two trajectories."""
    url = f"sqlite:///{tmp_path}/loom.db"
    with open_store(url) as db, open_endpoint_hub(url, "talk", HubConfig()) as hub:
        set_endpoint(db, "talk", [Arm(name="stable", policy="math-1/4")], at=1.0)
        hub.append([served("t0", success=1.0), served("t1")])
        append_feedback(db, [said("f0", "t0", value=0.0)])
    return url


def told(*words: str) -> Any:
    return json.loads(CliRunner().invoke(app, ["rewards", *words, "--json"], catch_exceptions=False).stdout)


def shown(*words: str) -> str:
    return CliRunner().invoke(app, ["rewards", *words], catch_exceptions=False).stdout


def test_what_was_served_is_judged_once_and_shown_with_its_evidence(url: str) -> None:
    assert told("run", "talk", "--once", "--store", url)["rewards"] == 2
    assert told("run", "talk", "--once", "--store", url)["rewards"] == 0
    (reward,) = told("show", "t0", "--store", url)["rewards"]
    assert reward["content"]["components"]["user_feedback"]["value"] == 0.0
    assert reward["total"] == pytest.approx(0.4 + 0.1 + 0.075)
    text = shown("show", "t0", "--store", url)
    for part in ("the caller said at its end that success is 1", "people said: thumb 0", "f0", "no Python code"):
        assert part in text
    assert [one["trajectory"] for one in told("list", "--store", url)["rewards"]] == ["t1", "t0"]
    assert "task_completion 1.00, user_feedback 0.00" in shown("list", "--endpoint", "talk", "--store", url)


def test_settings_come_from_words_and_from_an_experiment_of_serving(url: str, tmp_path: Path) -> None:
    weights = [f"weights.{name}=0" for name in ("task_completion", "efficiency", "code_quality")]
    told("run", "talk", *weights, "--once", "--store", url)
    assert told("show", "t0", "--store", url)["rewards"][-1]["total"] == 0.0
    file = tmp_path / "talk.yaml"
    file.write_text("kind: serving\nname: talk\narms: [{what: m}]\nrewards: {weights: {user_feedback: 0}}\n")
    told("run", "talk", "--experiment", str(file), "--once", "--again", "--store", url)
    rewards = told("show", "t0", "--store", url)["rewards"]
    assert [one["content"]["components"]["user_feedback"]["weight"] for one in rewards] == [1.0, 0.0]
    with pytest.raises(ConfigError, match="trains a policy"):
        told("run", "talk", "--experiment", "math", "--once", "--store", url)
    with pytest.raises(ConfigError, match=r"weights.feedback=1.*Did you mean 'user_feedback'"):
        told("run", "talk", "weights.feedback=1", "--once", "--store", url)


def test_what_is_not_there_is_named(url: str) -> None:
    with pytest.raises(StoreError, match=r"'tak'.*Did you mean 'talk'"):
        told("run", "tak", "--once", "--store", url)
    with pytest.raises(StoreError, match="'t9' has no reward"):
        told("show", "t9", "--store", url)
    assert "No rewards" in shown("list", "--endpoint", "nobody", "--store", url)


def test_somebody_elses_agent_is_judged_by_its_own_hub(url: str) -> None:
    with open_store(url) as db, open_agent_hub(url, "zero", HubConfig()) as hub:
        record_agent(db, "zero", at=1.0)
        turns = [{"success": True, "action": "response"}]
        hub.append([served("f0", source=Source.FOREIGN, extra={"foreign": {"turns": turns, "metadata": {}}})])
    assert told("run", "zero", "--agent", "--once", "--store", url)["rewards"] == 1
    (reward,) = told("show", "f0", "--store", url)["rewards"]
    assert reward["endpoint"] == "agent-zero"
    assert reward["first"] == {"task_completion": 1.0}
    with pytest.raises(ConfigError, match=r"'zer0'.*Did you mean 'zero'"):
        told("run", "zer0", "--agent", "--once", "--store", url)


def test_alarms_are_listed(url: str) -> None:
    with open_store(url) as db:
        data = {"window": 3, "reason": "user_feedback falls"}
        EVENTS.append(db, [Event(kind="reward.alarm", subject="talk", data=data, created_at=1.0)])
    words = ["events", "--kind", "reward.alarm", "--subject", "talk", "--store", url]
    (event,) = json.loads(CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False).stdout)["events"]
    assert event["data"]["window"] == 3
    assert "user_feedback falls" in CliRunner().invoke(app, words, catch_exceptions=False).stdout
