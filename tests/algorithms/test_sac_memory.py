"""SAC with a memory: it learns from sequences whose features are those that the runner saw."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loomrl.algorithms.control.rollout import Rollout
from loomrl.algorithms.control.sac import SACConfig
from loomrl.algorithms.control.step_replay import ReplaySample, sequences
from loomrl.config import ControlExperiment
from loomrl.errors import ArtifactError, ConfigError
from loomrl.experiments.shipped import resolve
from tests.algorithms.control_support import MARKS, agreed, resumed, sac, success, trained

pytestmark = [pytest.mark.usefixtures("one_thread", "control_environments"), *MARKS[1:]]
LSTM = {"kind": "lstm", "size": 16}
STEPS = 8


def recalling(
    env: str = "Echo", keywords: Any = None, *, memory: Any = LSTM, steps: int = STEPS, **settings: Any
) -> SACConfig:
    network = {"hidden": [32], "activation": "relu", "memory": memory}
    made = sac(env, keywords, **({"network": network, "updates_per_step": 0.5} | settings))
    return made.env_runners(num_envs_per_env_runner=4, rollout_fragment_length=steps)


def test_what_was_seen_before_is_done_with_a_memory_only() -> None:
    quick = {"target_entropy": 0.1, "actor_rate": 1e-2, "critic_rate": 1e-2}
    with_memory = trained(recalling(**quick), 6)
    without = trained(recalling(memory=None, **quick), 2)
    assert success(with_memory) > 0.75
    assert success(without) < 0.6


@pytest.mark.parametrize(
    "memory", [LSTM, {"kind": "gru"}, {"kind": "frames", "count": 2}], ids=lambda each: each["kind"]
)
def test_sequences_have_the_features_that_the_runner_saw(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    algo = recalling("Countdown", {"steps": 5}, memory=memory).build_algo()
    learner = algo.learner_group._learner
    rollouts = [rollout for _ in range(3) for rollout in algo.env_runner.sample()]
    for rollout in rollouts:
        learner.ring.append(learner._entries(rollout, rollout.rewards))
    assert {name: column.shape[1:] for name, column in learner.ring.columns.items()} == {
        "seen": (STEPS + 1, 1),
        "actions": (STEPS,),
        "rewards": (STEPS,),
        "ahead": (STEPS,),
        "valid": (STEPS,),
        "state": (learner.own.net.memory.state,),
    }
    places = np.arange(4, 8)  # those of the second rollout, in the middle of episodes
    drawn = ReplaySample(places, np.ones(4), {name: column[places] for name, column in learner.ring.columns.items()})
    monkeypatch.setattr(learner.ring, "draw", lambda count: drawn)
    _, batch = learner.draw()
    rollout = rollouts[1]
    assert rollout.state is not None
    assert rollout.state.any()
    with torch.no_grad():
        inputs = learner.own.net.decide(batch["now"], batch["seen"])
    np.testing.assert_allclose(inputs, rollout.inputs[rollout.valid], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(batch["after"], rollout.seen[1:][rollout.valid])
    place_TN = np.full(rollout.valid.shape, -1)
    place_TN[rollout.valid] = np.arange(rollout.valid.sum())
    goes_on = rollout.valid[:-1] & rollout.valid[1:]
    np.testing.assert_array_equal(batch["then"][place_TN[:-1][goes_on]], batch["now"].detach()[place_TN[1:][goes_on]])
    over = place_TN[rollout.terminated]
    assert over.size
    assert not batch["ahead"][over].any()


def test_a_sequence_in_which_nothing_acted_is_left_out() -> None:
    (rollout,) = recalling().build_algo().env_runner.sample()
    assert isinstance(rollout, Rollout)
    valid = rollout.valid.copy()
    valid[:, 1] = False
    kept = sequences(replace(rollout, valid=valid), rollout.rewards, 0.9)
    np.testing.assert_array_equal(kept["actions"], rollout.actions.T[[0, 2, 3]])
    assert {len(column) for column in kept.values()} == {3}


def test_the_critics_teach_the_memory_and_the_actor_does_not() -> None:
    algo = recalling(updates_per_step=0.05).build_algo()
    learner = algo.learner_group._learner
    memory = {id(each) for each in learner.own.net.memory.parameters()}
    groups = {name: learner.get_optimizer("default_policy", name).param_groups for name in ("actor", "critics")}
    taught = {name: {id(each) for group in found for each in group["params"]} for name, found in groups.items()}
    assert memory <= taught["critics"]
    assert not memory & taught["actor"]
    before = [each.detach().clone() for each in learner.own.net.memory.parameters()]
    algo.train()
    assert all(
        not torch.equal(one, other) for one, other in zip(before, learner.own.net.memory.parameters(), strict=True)
    )


def test_a_resumed_run_ends_as_one_that_never_stopped(tmp_path: Path) -> None:
    whole, again = resumed(recalling("Pendulum-v1", normalize_observations=True, updates_per_step=0.05), tmp_path)
    np.testing.assert_array_equal(whole.env_runner._state, again.env_runner._state)
    assert whole.env_runner._state.any()
    other = recalling("Pendulum-v1", normalize_observations=True, steps=2 * STEPS).build_algo()
    with pytest.raises(ArtifactError, match=r"set rollout.steps as it was"):
        other.restore_from_path(tmp_path / "checkpoint")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (lambda: recalling(steps=1), r"rollout_fragment_length=1 .*Choose 2 or more, such as 32, and at most batch=64"),
        (lambda: recalling(steps=65), "rollout_fragment_length=65"),
        (lambda: recalling(n_step=2), "n_step=2 is of steps that are drawn one by one"),
        (lambda: recalling(replay={"prioritized": {}}), "replay.prioritized is of steps that are drawn one by one"),
        (lambda: recalling(batch_norm=True), "batch_norm=true is of steps that are drawn one by one"),
        (lambda: recalling().callbacks(on_episode_end=lambda **_: None), r"network.memory.*: RLlib's own"),
    ],
    ids=["step", "batch", "n_step", "prioritized", "batch_norm", "rllib"],
)
def test_what_does_not_go_together_is_refused_by_name(asked: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        asked().validate()


def test_sequences_of_unequal_length_are_refused_by_name() -> None:
    algo = recalling().build_algo()
    (rollout,) = algo.env_runner.sample()
    longer = replace(rollout, rewards=np.zeros((STEPS + 1, 4), np.float32))
    with pytest.raises(
        ConfigError, match=r"Echo begins ended episodes in the same step.*environment.vectorization=sync"
    ):
        algo.learner_group._learner._entries(longer, longer.rewards)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_two_learners_draw_from_sequences_of_their_own_and_have_the_same_weights() -> None:
    agreed(trained(recalling(batch=16).learners(num_learners=2), 2))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_pendulum_without_velocity_is_swung_up_with_a_memory_and_never_without(seed: int) -> None:
    shipped = resolve(["control/pendulum_blind", f"seed={seed}"])
    assert isinstance(shipped, ControlExperiment)
    returns = []
    for experiment in (shipped, shipped.override({"algorithm.network.memory": None})):
        algo = SACConfig.of(experiment).build_algo()
        while algo.env_steps < experiment.train.steps:
            algo.train()
        returns.append(np.mean([episode.reward for episode in list(algo.window.latest)[-20:]]))
        algo.stop()
    assert returns[0] > -300
    assert returns[1] < -600
