"""A fork: with nothing changed it equals its parent's continuation bit for bit; its bytes are its parent's."""

import signal
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
from loomrl.hub import Selection, open_hub
from loomrl.load import dump
from loomrl.record.detail import find_run
from loomrl.run.ledger import VersionLedger
from loomrl.run.version import copied
from loomrl.store import beside, open_store
from loomrl.store.policies import lineage
from loomrl.store.runs import POLICIES, RUNS
from loomrl.telemetry.metric import Metric
from tests.algorithms.control_support import MARKS, same
from tests.algorithms.language_support import experiment as language
from tests.algorithms.test_control_league import GAME
from tests.algorithms.test_language_league import DUEL
from tests.algorithms.test_sft import chats
from tests.algorithms.test_sft import settings as conversations
from tests.experiments.forget_support import frozen, produce
from tests.experiments.forget_support import settings as served
from tests.experiments.fork_kills import STAGES
from tests.experiments.fork_kills import main as kill_at
from tests.experiments.runs import assert_same, history, places, weights
from tests.forks import FORKS

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
    own, theirs = (_without_publication(history(settings, run)) for run in ("child", "parent"))
    assert own == [row for row in theirs if row["step"] > step] != []


def _without_publication(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """A run's first publication to its engines is measured, and the fork's is another one than its parent's."""
    return [{name: value for name, value in row.items() if not name.startswith("publish/")} for row in rows]


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


@pytest.mark.slow
def test_a_fork_of_a_league_meets_the_opponents_of_its_parent(tmp_path: Path) -> None:
    settings = language(tmp_path, "ppo", **SHORT | DUEL | {"train.updates": 6})
    assert_goes_on_as_its_parent(settings)
    assert max(row["league/members"] for row in history(settings, "child")) == 2


@pytest.mark.slow
def test_a_fork_of_games_keeps_the_opponents_of_its_parent_and_begins_new_games(tmp_path: Path) -> None:
    environment = {
        "kind": "custom",
        "entry_point": "loomrl.control.turns:TurnVector",
        "settings": {"game": GAME, "opponent": {"kind": "league", "every": 2, "members": 2}},
    }
    settings = control(tmp_path, environment=environment, evaluation={"every": 2048, "episodes": 4, "film": 0})
    train(settings, run="parent")
    step = steps_of(settings)[-2]
    for run in ("child", "other"):
        train(begin(settings, f"parent@{step}", run=run), run=run)
    assert same(weights(settings, f"child/{step}"), weights(settings, f"parent/{step}"))
    assert_same(settings, "child", "other")
    assert history(settings, "child") == history(settings, "other")
    assert all(row["step"] > step and row["league/members"] == 2 for row in history(settings, "child"))


@pytest.mark.slow
def test_a_fork_of_conversations_goes_on_in_the_same_order(tmp_path: Path) -> None:
    short = {name: value for name, value in SHORT.items() if name != "evaluation.episodes"}
    changes = {**short, "data.epochs": 2, "data.held_out": 0.2, "train.checkpoint_every": 1}
    assert_goes_on_as_its_parent(conversations(tmp_path, chats(12), **changes))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kto", "raft"])
def test_a_fork_of_what_was_served_goes_on_in_the_same_order(tmp_path: Path, kind: str) -> None:
    produce(tmp_path, count=32, of={})
    short = {name: value for name, value in SHORT.items() if name != "evaluation.episodes"}
    assert_goes_on_as_its_parent(served(tmp_path, kind, frozen(tmp_path), **short))


@pytest.mark.slow
def test_a_fork_of_an_asynchronous_run_plays_anew_what_was_under_way(tmp_path: Path) -> None:
    """It begins with its parent's weights, counts on, and learns from no attempt of an older version."""
    settings = language(tmp_path, "ppo", **SHORT, **{"hub.max_staleness": 1, "rollout.runners": 1})
    train(settings, run="parent")
    child = begin(settings, "parent@2")
    train(child, run="child")
    assert same(weights(settings, "child/2"), weights(settings, "parent/2"))
    assert [row["step"] for row in history(settings, "child")] == [3, 4]
    with open_hub(beside(settings.store_url, "child"), child.hub) as hub:
        learnt = [attempt for _, attempt in hub.replay(selection=Selection(run="child", acked=True))]
    assert learnt
    assert min(attempt.first_version for attempt in learnt) >= 2


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["language", "control"])
def test_kills_at_every_stage_leave_nothing_half_written_and_the_fork_as_it_would_have_been(
    tmp_path: Path, kind: str
) -> None:
    settings = control(tmp_path) if kind == "control" else language(tmp_path, "grpo", **SHORT | {"train.updates": 8})
    train(settings, run="parent")
    step = steps_of(settings)[1]
    file = tmp_path / "settings.yaml"
    file.write_text(dump(settings))
    for stage in STAGES:
        process = FORKS.Process(target=kill_at, args=(str(file), f"parent@{step}", stage))
        process.start()
        process.join(300)
        assert process.exitcode == -signal.SIGKILL, stage
        artifacts = open_artifacts(settings.artifact_url)
        with open_store(settings.store_url) as db:
            run = RUNS.find(db, "child")
            there = Checkpoints(artifacts, "child").stored()
            assert run is None or there, stage
        for _, url in there:
            artifacts.get_folder(url, tmp_path / "whole" / stage / url.replace("/", "-"))
    experiment, run_id = resumed(settings, "child")
    train(experiment, run=run_id)
    assert_same(settings, "child", "parent")
    assert history(settings, "child") == [row for row in history(settings, "parent") if row["step"] > step]


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
