"""A fork: with nothing changed it equals its parent's continuation bit for bit; its bytes are its parent's."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from loomrl.artifacts import open_artifacts
from loomrl.checkpoints import Checkpoints
from loomrl.config import AnyExperiment, ControlExperiment
from loomrl.errors import ConfigError, StoreError
from loomrl.experiments.fork import fork
from loomrl.experiments.train import train
from loomrl.run.ledger import VersionLedger
from loomrl.run.version import copied
from loomrl.store import open_store
from loomrl.store.policies import lineage
from loomrl.store.runs import POLICIES, RUNS
from tests.algorithms.control_support import MARKS
from tests.algorithms.language_support import experiment as language
from tests.experiments.runs import assert_same, history, places

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("ray_cluster"), *MARKS]

ENVS = "tests.algorithms.control_envs"


def control(folder: Path, **changes: Any) -> ControlExperiment:
    base = ControlExperiment(
        name="identity",
        environment={"kind": "custom", "entry_point": f"{ENVS}:Identity"},
        algorithm={"kind": "ppo", "learning_rate": 3e-3, "minibatch_size": 64},
        rollout={"steps": 32},
        train={"steps": 1024, "checkpoint_every": 256, "keep_every": 256, "tell_every": 256},
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
    changes = {"train.updates": 4, "train.keep_every": 2, "curriculum": {"kind": "adaptive"}, "evaluation.episodes": 4}
    settings = language(tmp_path, "ppo", **changes, **{"algorithm.optimizer.schedule": {"kind": "adaptive"}})
    assert_goes_on_as_its_parent(settings)
    with open_store(settings.store_url) as db:
        states = [torch.load(copied(POLICIES.require(db, id), db) / "state.pt") for id in ("parent/4", "child/4")]
    moments = [state["learner"]["optimizer"]["state"] for state in states]
    assert moments[0]
    torch.testing.assert_close(*moments, rtol=0, atol=0)
    assert states[0]["schedule"] == states[1]["schedule"]


def test_a_fork_of_control_without_a_change_equals_the_parent_bit_for_bit(tmp_path: Path) -> None:
    assert_goes_on_as_its_parent(control(tmp_path))


@pytest.mark.parametrize(("kind", "acts"), [("sac", "box"), ("dqn", "discrete")])
def test_a_fork_off_policy_keeps_the_replay_of_its_parent(tmp_path: Path, kind: str, acts: str) -> None:
    algorithm = {"kind": kind, "warmup": 128}
    settings = control(tmp_path, **{"algorithm": algorithm, "environment.settings.kind": acts})
    assert_goes_on_as_its_parent(settings.override({"rollout.steps": None}))


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
        told = [version["id"] for version in lineage(db, result.policy)["ancestors"]]
    assert told[-3:] == [f"child/{step}", f"parent/{step}", "parent/0"]
