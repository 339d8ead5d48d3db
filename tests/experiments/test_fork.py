"""A fork: with nothing changed it equals its parent's continuation bit for bit; its bytes are its parent's."""

from pathlib import Path
from typing import Any

import pytest
import torch

from loomrl.artifacts import open_artifacts
from loomrl.checkpoints import Checkpoints
from loomrl.config import AnyExperiment, ControlExperiment
from loomrl.errors import ConfigError, StoreError
from loomrl.experiments.fork import fork
from loomrl.experiments.train import resumed, train
from loomrl.record.detail import find_run
from loomrl.run.ledger import VersionLedger
from loomrl.run.version import copied
from loomrl.store import open_store
from loomrl.store.policies import lineage
from loomrl.store.runs import POLICIES, RUNS
from loomrl.telemetry.metric import Metric
from tests.algorithms.control_support import MARKS, same
from tests.algorithms.language_support import experiment as language
from tests.experiments.runs import assert_same, history, places, weights

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("ray_cluster"), *MARKS]

SHORT = {"train.updates": 4, "train.checkpoint_every": 2, "train.keep": "all", "evaluation.episodes": 4}
ENVS = "tests.algorithms.control_envs"


def control(folder: Path, **changes: Any) -> ControlExperiment:
    base = ControlExperiment(
        name="identity",
        environment={"kind": "custom", "entry_point": f"{ENVS}:Identity"},
        algorithm={"kind": "ppo", "learning_rate": 3e-3, "minibatch_size": 64},
        rollout={"steps": 32},
        train={"steps": 1024, "checkpoint_every": 256, "keep": "all", "tell_every": 256},
        evaluation={"every": 512, "episodes": 4, "film": 0},
    )
    return base.override(places(folder) | changes)


def begin(settings: AnyExperiment, point: str, *words: str, run: str = "child") -> AnyExperiment:
    experiment, _ = fork(settings.store_url, point, list(words), run=run)
    return experiment


def steps_of(settings: AnyExperiment) -> list[int]:
    """The parent's steps that have checkpoints."""
    return Checkpoints(open_artifacts(settings.artifact_url), "parent").numbers()


def assert_goes_on_as_its_parent(settings: AnyExperiment) -> None:
    """The weights and metrics of a fork of the middle are those of the parent."""
    train(settings, run="parent")
    first, *_, step, last = steps_of(settings)
    assert first < step < last
    train(begin(settings, f"parent@{step}"), run="child")
    assert_same(settings, "child", "parent")
    rows = [row for row in history(settings, "parent") if row["step"] > step]
    assert rows
    assert history(settings, "child") == rows


def test_a_fork_of_language_without_a_change_equals_the_parent_bit_for_bit(tmp_path: Path) -> None:
    changes = {"curriculum": {"kind": "adaptive"}, "algorithm.optimizer.schedule": {"kind": "adaptive"}}
    settings = language(tmp_path, "ppo", **SHORT, **changes)
    assert_goes_on_as_its_parent(settings)
    with open_store(settings.store_url) as db:
        states = [torch.load(copied(POLICIES.require(db, id), db) / "state.pt") for id in ("parent/4", "child/4")]
    moments = [state["learner"]["optimizer"]["state"] for state in states]
    assert moments[0]
    torch.testing.assert_close(*moments, rtol=0, atol=0)
    assert states[0]["schedule"] == states[1]["schedule"]


def test_a_fork_of_control_without_a_change_equals_the_parent_bit_for_bit(tmp_path: Path) -> None:
    assert_goes_on_as_its_parent(control(tmp_path))


@pytest.mark.slow
def test_a_fork_learns_again_from_groups_in_the_hub_of_its_parent(tmp_path: Path) -> None:
    replay = {"rollout.replay": {"groups": 2, "max_age": 4}, "algorithm.optimizer.weight_decay": 0.01}
    settings = language(tmp_path, "grpo", **SHORT, **replay)
    assert_goes_on_as_its_parent(settings)
    assert all(row[Metric.REPLAY_SHARE] > 0 for row in history(settings, "child"))
    changed = begin(settings, "parent@2", "algorithm.optimizer.weight_decay=0.5", run="other")
    train(changed, run="other")
    other, parent = (weights(settings, run) for run in ("other", "parent"))
    assert not same(other, parent)
    assert {row["step"] for row in history(settings, "other")} == {3, 4}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "acts"), [("sac", "box"), ("dqn", "discrete")])
def test_a_fork_off_policy_keeps_the_replay_of_its_parent(tmp_path: Path, kind: str, acts: str) -> None:
    algorithm = {"kind": kind, "warmup": 128}
    settings = control(tmp_path, **{"algorithm": algorithm, "environment.settings.kind": acts})
    settings = settings.override({"rollout.steps": None})
    assert_goes_on_as_its_parent(settings)
    rate = "critic_rate" if kind == "sac" else "learning_rate"
    train(begin(settings, f"parent@{steps_of(settings)[1]}", f"algorithm.{rate}=0.02", run="other"), run="other")
    assert not same(weights(settings, "other"), weights(settings, "parent"))


def test_a_fork_shares_bytes_with_its_parent_and_outlives_it(tmp_path: Path) -> None:
    settings = control(tmp_path)
    train(settings, run="parent")
    step = steps_of(settings)[1]
    changed = begin(settings, f"parent@{step}", "algorithm.learning_rate=0.01")
    folder = tmp_path / "artifacts" / "runs"
    own, shared = 0, 0
    for file in (folder / "child" / f"{step:06d}").rglob("*"):
        if file.is_file() and not file.name.endswith(".json"):
            shared += file.stat().st_nlink == 2
            own += file.stat().st_nlink == 1
    assert (own, shared > 3) == (0, True)
    artifacts = open_artifacts(settings.artifact_url)
    for name in artifacts.list_names("runs/parent"):
        artifacts.delete(name)
    result = train(changed, run="child")
    with open_store(settings.store_url) as db:
        assert RUNS.require(db, "child").parent_policy == f"parent/{step}"
        assert find_run(db, "child")["changed"] == {"algorithm.learning_rate": "0.01"}
        told = [version["id"] for version in lineage(db, result.policy)["ancestors"]]
    assert told[-3:] == [f"child/{step}", f"parent/{step}", "parent/0"]


def test_a_fork_that_is_killed_anywhere_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its bytes, after its record, and before its first own checkpoint."""
    settings = control(tmp_path)
    train(settings, run="parent")
    point = f"parent@{steps_of(settings)[1]}"
    with monkeypatch.context() as patch:
        patch.setattr("loomrl.run.fork.record_fork", interrupt)
        with pytest.raises(KeyboardInterrupt):
            begin(settings, point)
    with open_store(settings.store_url) as db:
        assert RUNS.find(db, "child") is None
    begin(settings, point)
    begin(settings, point)
    experiment, run = resumed(settings, "child")
    with monkeypatch.context() as patch:
        patch.setattr(VersionLedger, "commit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(experiment, run=run)
    experiment, run = resumed(settings, "child")
    train(experiment, run=run)
    assert_same(settings, "child", "parent")


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_what_cannot_be_forked_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    settings = control(tmp_path, **{"train.steps": 256})
    train(settings, run="parent")
    first, last = steps_of(settings)
    refused = {
        ("parnt@0",): "no training 'parnt' is on record.*Did you mean 'parent'",
        ("parent",): "no training 'parent' is on record. Say RUN@STEP",
        ("parent@7",): f"no checkpoint of step '7'. Steps of parent that have one: {first}, {last}",
        ("parent@0", "algorithm.learning_rate=0.003"): "has it so already",
        ("parent@0", "algorithm.network.hidden=[8]"): r"algorithm.network.hidden.0=8, which was 64: .*parent=RUN/STEP",
        ("parent@0", "environment.settings.kind=box"): "environment.settings.kind=.*cannot change it",
        ("parent@0", "seed=5"): "seed=5, which was 0",
        ("parent@0", "algorithm.kind=sac"): "algorithm.*cannot change it",
        ("parent@0", "algorithm.lerning_rate=1"): "Did you mean 'learning_rate'",
        ("parent@0", "artifact_url=elsewhere"): "artifact_url=",
        (f"parent@{last}",): f"train.steps=256 leaves nothing to train.*above {last}",
    }
    for words, said in refused.items():
        with pytest.raises(ConfigError, match=said):
            begin(settings, *words)
    assert not (tmp_path / "artifacts" / "runs" / "child").exists()
    begin(settings, "parent@0")
    with pytest.raises(StoreError, match=r"is not this fork of parent/0\. Name another --run"):
        begin(settings, "parent@0", "algorithm.gamma=0.9")


def test_a_kl_needs_the_policy_that_the_run_began_with(tmp_path: Path) -> None:
    settings = language(tmp_path, "grpo", **SHORT, **{"algorithm.kl.watch": False})
    train(settings.override({"train.updates": 1}), run="parent")
    with pytest.raises(ConfigError, match="the policy that its run began with"):
        begin(settings, "parent@0", "algorithm.kl.coefficient=0.1")
