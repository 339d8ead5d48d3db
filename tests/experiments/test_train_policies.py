"""A run of several policies: from its file to its evaluations, its folder and its end."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from loomrl.config import ControlExperiment
from loomrl.control.policy import ControlPolicy
from loomrl.control.team_policy import TeamPolicy
from loomrl.errors import ArtifactError, ConfigError
from loomrl.experiments.card import write_card
from loomrl.experiments.evaluate_control import as_result, evaluate_control, render
from loomrl.experiments.policies import exported
from loomrl.experiments.train import train
from loomrl.experiments.watch import watch
from loomrl.serving.acting import ControlServedPolicy
from loomrl.store import open_store
from loomrl.store.runs import POLICIES
from loomrl.telemetry.sink import metrics_file, read_metrics
from tests.algorithms.control_support import MARKS
from tests.experiments.runs import assert_goes_on, places

pytestmark = [pytest.mark.system, *MARKS]
SIGNAL = "tests.algorithms.control_envs:Signal"
POLICIES_OF = {"speaks": ["speaker"], "listens": ["listener"]}


def experiment(folder: Path, **changes: Any) -> ControlExperiment:
    base = ControlExperiment(
        name="signal",
        environment={"kind": "custom", "entry_point": SIGNAL, "policies": POLICIES_OF},
        algorithm={"kind": "ppo", "minibatch_size": 64, "network": {"hidden": [16]}},
        rollout={"environments": 4, "steps": 22},
        train={"steps": 480, "checkpoint_every": 160, "tell_every": 160},
        evaluation={"every": 160, "episodes": 4},
    )
    return base.override(places(folder) | changes)


def test_a_run_of_several_policies_is_evaluated_by_policy_and_leaves_them_all(tmp_path: Path) -> None:
    settings = experiment(tmp_path)
    assert train(settings, run="r").policy == "r/480"
    history = read_metrics(metrics_file(settings.train, "r"))
    assert {"return/training/speaks", "return/training/listens"} <= {name for row in history for name in row}
    with open_store(settings.store_url) as db:
        version = exported("r", db, tmp_path / "out", onnx=True)
        assert version == POLICIES.latest(db, run="r", limit=1)[0].id
        write_card(version, db, tmp_path / "out")
    assert "TeamPolicy.load" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert {*TeamPolicy.load(tmp_path / "out").policies} == {*POLICIES_OF}
    assert (tmp_path / "out" / "listens" / "policy.onnx").is_file()
    assert ControlPolicy.load(tmp_path / "out" / "speaks").act(2) in (0, 1, 2)
    found = evaluate_control(settings, ["r", str(tmp_path / "out"), "random"])
    ours, folder, _ = (report.as_dict() for report in found.reports)
    assert {name: score["episodes"] for name, score in ours["policies"].items()} == dict.fromkeys(POLICIES_OF, 4)
    assert (ours["policies"], ours["overall"]) == (folder["policies"], folder["overall"])
    assert ours["policies"]["speaks"]["reward"]["mean"] == ours["overall"]["reward"]["mean"]  # both are paid alike
    assert as_result(found)["policies"]["r"] == ours
    with Console(record=True, width=120) as console:
        render(found, console)
    assert console.export_text().count("  listens") == 3
    with pytest.raises(ConfigError, match="a film is of one policy, and this run has several: speaks, listens"):
        watch(settings, "r", episodes=1)
    with pytest.raises(ArtifactError, match="has several policies, each in a folder of its name"):
        ControlServedPolicy.open(tmp_path / "out", version="r", number=1)


def test_a_run_of_several_policies_that_broke_off_goes_on_as_if_it_never_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_goes_on(experiment(tmp_path), monkeypatch)


def test_what_cannot_have_several_policies_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"environment.policies=.*: sac learns one policy"):
        experiment(tmp_path, algorithm={"kind": "sac"})
    with pytest.raises(ConfigError, match="default_policy is RLlib's name"):
        experiment(tmp_path, **{"environment.policies": {"default_policy": ["speaker", "listener"]}})
    with pytest.raises(ConfigError, match="give every agent one policy"):
        train(experiment(tmp_path, **{"environment.policies.speaks": ["speaker", "nobody"]}), run="r")
