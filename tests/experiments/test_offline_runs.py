"""Logged data from the command line: recorded, learnt from, gone on from, judged, and asked by the gate."""

from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from loomrl.config import ControlExperiment
from loomrl.control.logged import read_minari
from loomrl.errors import ConfigError, LoomError
from loomrl.experiments.gate.judge import judge_version
from loomrl.experiments.gate.suite import resolve_suite
from loomrl.experiments.train import train
from loomrl.store import open_store
from loomrl.store.runs import POLICIES
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import metrics_file, read_metrics
from tests.algorithms.control_support import MARKS
from tests.command_line import typed_json
from tests.control.logged_support import minari_folder
from tests.experiments.runs import assert_goes_on, places
from tests.release.test_gate_control import GOOD, export
from tests.serving.control_support import control_policy

__all__ = ["minari_folder"]
pytestmark = [pytest.mark.system, *MARKS, pytest.mark.usefixtures("minari_folder")]


def recorded(folder: Path, *more: str, steps: int = 600) -> dict[str, Any]:
    """A good policy and a random one, half each."""
    good = export(folder / "good", GOOD)
    words = ["data", "record", "pole/mixed-v0", good, "--policy", "random", "--steps", str(steps)]
    return typed_json(*words, f"store_url=sqlite:///{folder}/loom.db", *more)


def experiment(folder: Path, **changes: Any) -> ControlExperiment:
    base = ControlExperiment(
        name="pole",
        environment={"id": "CartPole-v1"},
        algorithm={"kind": "iql", "network": {"hidden": [16]}, "batch": 32},
        data={"minari": "pole/mixed-v0"},
        train={"steps": 60, "checkpoint_every": 20, "tell_every": 20},
        evaluation={"every": 30, "episodes": 2},
    )
    return base.override(places(folder) | changes)


def test_a_data_set_is_recorded_with_its_probabilities_and_once(tmp_path: Path) -> None:
    made = recorded(tmp_path, "--greedy")
    good, random = made["policies"].values()
    assert made["steps"] == 600
    assert good["steps"] == random["steps"] == 300
    assert good["return"] > 3 * random["return"]
    assert made["with_logprobs"]
    with pytest.raises(LoomError, match="Raise its version"):
        typed_json("data", "record", "pole/mixed-v0", "control/cartpole")


def test_a_policy_with_a_memory_is_recorded_with_what_it_remembers_of_each_episode(tmp_path: Path) -> None:
    with closing(gymnasium.make("CartPole-v1")) as pole:
        policy = control_policy(pole.observation_space, memory="gru", seed=3)
    policy.save(tmp_path / "remembers")
    words = ["data", "record", "pole/memory-v0", str(tmp_path / "remembers"), "--greedy", "--steps", "80"]
    typed_json(*words, f"store_url=sqlite:///{tmp_path}/loom.db")
    episodes = read_minari("pole/memory-v0", policy.observation_space, policy.action_space)
    assert len(episodes) > 1
    for episode in episodes:
        state = policy.state()
        assert [int(policy.act(seen, state=state)) for seen in episode.seen[:-1]] == episode.actions.tolist()


def test_a_run_learns_from_data_counts_updates_and_names_them_on_record(tmp_path: Path) -> None:
    recorded(tmp_path)
    settings = experiment(tmp_path)
    result = train(settings, run="r")
    assert result.stopped == "all 60 updates done"
    assert (result.policy, result.updates) == ("r/60", 60)
    rows = read_metrics(metrics_file(settings.train, "r"))
    assert [Metric.RETURN_EVALUATED in row for row in rows] == [False, True, True]
    assert all(row[Metric.UPDATES_PER_S] > 0 and Metric.ENV_STEPS_PER_S not in row for row in rows)
    assert "Return" in Path(result.page).read_text()
    with open_store(settings.store_url) as db:
        last = POLICIES.latest(db, run="r")[0]
    assert (last.id, last.data) == ("r/60", {"minari": "pole/mixed-v0", "updates": 60})


@pytest.mark.parametrize("kind", ["iql", pytest.param("bc", marks=pytest.mark.slow)])
def test_a_run_that_broke_off_goes_on_as_if_it_never_had(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tmp_path, steps=200)
    assert_goes_on(experiment(tmp_path, **{"algorithm.kind": kind}), monkeypatch)


def test_a_run_goes_on_online_from_another_ones_version(tmp_path: Path) -> None:
    recorded(tmp_path, steps=200)
    train(experiment(tmp_path), run="offline")
    online = experiment(tmp_path, **{"parent": "offline", "algorithm.online": {"updates_per_step": 0.5}})
    result = train(online, run="online")
    assert result.stopped == "all 60 steps done"
    assert result.before == train(experiment(tmp_path), run="offline").after
    with open_store(online.store_url) as db:
        first = POLICIES.latest(db, run="online")[-1]
        assert (first.id, first.parent) == ("online/0", "offline/60")
    with pytest.raises(ConfigError, match=r"parent: version='oflin' is unknown.*Did you mean 'offline'"):
        train(online.override({"parent": "oflin"}), run="lost")


def test_a_policy_is_judged_by_the_log_of_another(tmp_path: Path) -> None:
    recorded(tmp_path, steps=2000)
    bad = export(tmp_path / "bad", (0.0, 0.0, -1.0, 0.0))
    words = ["data", "judge", "pole/mixed-v0", bad, "--policy", str(tmp_path / "good"), "--gamma", "0.5", "--sampled"]
    found = typed_json(*words, f"store_url=sqlite:///{tmp_path}/loom.db")["policies"]
    one = found[str(tmp_path / "good")]
    assert one["dr"]["low"] <= 2.0 <= one["dr"]["high"] + 0.2
    assert one["left_out"] == 0
    assert one["logged"]["count"] == found[bad]["logged"]["count"]


def test_the_gate_asks_the_log(tmp_path: Path) -> None:
    recorded(tmp_path, steps=1500)
    log = "logged={data: {minari: pole/mixed-v0}, gamma: 0.5, sampled: true, %s}"
    others = ["regression=null", "cost=null", "safety.forbidden=null"]
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        for asked, outcome, words in (
            ("at_least: 1.0, effective: 1", "passed", "at least 1 is proved"),
            ("at_least: 3.0, effective: 1", "failed", "at least 3 is not proved"),
            ("at_least: 1.0, effective: 100000", "error", "episodes of this policy, and 100000 are needed"),
        ):
            episodes = ["benchmarks.0.episodes=8", "benchmarks.0.at_least=null"]
            suite = resolve_suite("control_tiny", [log % asked, *episodes, *others])
            verdict = judge_version(str(tmp_path / "good"), None, suite, db)
            (check,) = [one for one in verdict.report["checks"] if one["name"] == "logged pole/mixed-v0"]
            assert check["state"] == outcome, check["reason"]
            assert words in check["reason"]
            assert ("dr" in check["figures"]) == (outcome != "error"), "a log that is worth too little gives no figure"
