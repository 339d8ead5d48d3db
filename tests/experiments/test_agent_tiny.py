"""Somebody else's agent learns: as a program that knows nothing of LoomRL, and only because of the rewards."""

import ast
import sys
from pathlib import Path
from typing import Any

import pytest

import loomrl.experiments.agents.market as market
from loomrl.algorithms.language import lesson as language
from loomrl.experiments.evaluate import evaluate_policies
from loomrl.experiments.shipped import resolve
from loomrl.experiments.train import TrainResult, train
from tests.algorithms.language_support import QUIET, shuffled
from tests.experiments.runs import places
from tests.needs import CLIENTS, needs

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(sys.platform != "linux", reason="agents need Linux"),
    QUIET,
]
AGENTS = Path(market.__file__).parent
ENVIRONMENT = "environments.0.settings"


def run(folder: Path, **changes: Any) -> TrainResult:
    return train(resolve(["language/agent_tiny"]).override(places(folder) | changes), run="r")


SHORT = {
    "algorithm.warm_start.steps": 5,
    "algorithm.warm_start.tasks": 8,
    "rollout.groups_per_update": 2,
    "train.updates": 2,
    "train.checkpoint_every": 2,
    "evaluation.episodes": 4,
}


@pytest.mark.parametrize("name", ["shop.py", "shop_sdk.py"])
def test_the_agents_are_short_and_import_nothing_of_ours(name: str) -> None:
    text = (AGENTS / name).read_text()
    imported = {
        name
        for node in ast.walk(ast.parse(text))
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else
                     [node.module or ""] if isinstance(node, ast.ImportFrom) else [])
    }  # fmt: skip
    assert imported <= {"json", "os", "typing", "openai", "agents"}
    assert text.count("\n") < 60


@pytest.mark.slow
def test_attempts_of_an_agent_are_played_while_the_learner_works(tmp_path: Path) -> None:
    overlap = {"rollout.runners": 1, "hub.max_staleness": 2, "rollout.concurrency": 8}
    assert run(tmp_path, **(SHORT | overlap)).updates == 2


@pytest.mark.parametrize(
    "agent",
    ["shop", pytest.param("shop_sdk", marks=[pytest.mark.slow, needs("the clients")])],
)
def test_an_oracle_is_evaluated_through_either_agent(tmp_path: Path, agent: str) -> None:
    changes = {
        f"{ENVIRONMENT}.agent.python": f"loomrl.experiments.agents.{agent}",
        f"{ENVIRONMENT}.agent.interpreter": str(CLIENTS) if agent == "shop_sdk" else "",
        "evaluation.episodes": 2,
    }
    experiment = resolve(["language/agent_tiny"]).override(places(tmp_path) | changes)
    (report,) = evaluate_policies(experiment, ["oracle"]).reports
    assert (report.overall.success.mean, report.overall.failures) == (1.0, 0)


@pytest.mark.slow
def test_reinforcement_alone_teaches_the_agent(tmp_path: Path) -> None:
    result = run(tmp_path, seed=2)
    print(f"seed 2: {result.seconds} s, {dict(result.before)}, {dict(result.after)}")
    assert result.before["sampled"] <= 0.45
    assert result.after["sampled"] >= 0.85


@pytest.mark.slow
def test_with_shuffled_rewards_it_only_drifts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "samples_of", shuffled(language.samples_of))
    result = run(tmp_path, seed=1)
    print(f"shuffled: {result.seconds} s, {dict(result.before)}, {dict(result.after)}")
    assert result.after["sampled"] <= 0.5, (
        "it drifts between the formats of its demonstrations, and learns none of them"
    )
