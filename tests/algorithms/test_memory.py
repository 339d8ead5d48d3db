"""Policies with a memory: what the learner sees of it is what the runner saw, and nothing survives an episode's end."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from loomrl.algorithms.control.ppo import PPOConfig
from loomrl.algorithms.control.rollout import Sequences
from loomrl.algorithms.control.weave import WeaveConfig
from loomrl.config import ControlExperiment
from loomrl.errors import ArtifactError, ConfigError
from loomrl.experiments.shipped import resolve
from tests.algorithms.control_support import MARKS, learn, ppo, resumed, same, success, trained, weights
from tests.algorithms.test_ppo_settings import Theirs

pytestmark = MARKS
KINDS: dict[str, dict[str, Any]] = {
    "gru": {"kind": "gru", "size": 16},
    "lstm": {"kind": "lstm", "size": 16},
    "frames": {"kind": "frames", "count": 2},
    "attention": {"kind": "attention", "window": 4, "size": 16, "heads": 2},
}


def recalling(env: str = "Echo", keywords: Any = None, *, memory: str | None = "gru", **settings: Any) -> Any:
    network = {"memory": None if memory is None else KINDS[memory]} | settings.pop("network", {})
    return ppo(env, keywords, network=network, **settings)


@pytest.mark.parametrize("memory", [None, "gru", "attention"])
def test_what_was_seen_before_is_known_with_a_memory_only(memory: str | None) -> None:
    asked = recalling(memory=memory, learning_rate=5e-3)
    if memory is None:
        assert success(trained(asked, 60)) < 0.6
    else:
        learn(asked.build_algo(), 0.9, 60)


@pytest.mark.parametrize("memory", KINDS)
def test_a_memory_goes_on_across_rollouts_and_ends_with_the_episode(memory: str) -> None:
    algo = recalling("Countdown", {"steps": 5}, memory=memory, fragment=7, minibatch_size=7).build_algo()
    rollouts = [rollout for _ in range(3) for rollout in algo.env_runner.sample()]
    shown, said = (
        np.concatenate([getattr(rollout, name)[:7][rollout.valid] for rollout in rollouts])
        for name in ("seen", "inputs")
    )
    by_step = {step: said[shown[:, 0] == step] for step in range(1, 6)}
    for inputs in by_step.values():
        # not to the last bit: some processors add the rows of a batch in different orders
        np.testing.assert_allclose(inputs, np.broadcast_to(inputs[0], inputs.shape), rtol=1e-5)
    assert rollouts[0].state is not None
    assert not rollouts[0].state.any()
    assert rollouts[1].state.any()


@pytest.mark.parametrize("memory", ["lstm", "attention"])
def test_a_resumed_run_ends_as_one_that_never_stopped(memory: str, tmp_path: Path) -> None:
    whole, again = resumed(recalling("CartPole-v1", memory=memory, normalize_observations=True), tmp_path)
    np.testing.assert_array_equal(whole.env_runner._state, again.env_runner._state)
    assert whole.env_runner._state.any()


def test_every_learner_gets_the_state_of_its_environments() -> None:
    algo = recalling().build_algo()
    algo.env_runner.sample()
    (rollout,) = algo.env_runner.sample()
    parts = rollout.split(2)
    np.testing.assert_array_equal(np.concatenate([part.state for part in parts], 1), rollout.state)
    assert [Sequences([part], "cpu").count for part in parts] == [4, 4]


@pytest.mark.parametrize("other", [None, "lstm"])
def test_a_checkpoint_of_another_memory_is_refused(other: str | None, tmp_path: Path) -> None:
    one = recalling().build_algo()
    two = recalling(memory=other).build_algo()
    one.save_to_path(tmp_path)
    with pytest.raises(ArtifactError, match=r"network.memory is \{'kind': 'gru', 'size': 16\} there and"):
        two.restore_from_path(tmp_path)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (lambda: recalling(minibatch_size=15), "minibatch_size=15.*all 16 steps.*Choose 16 or more"),
        (lambda: recalling(minibatch_size=15).learners(num_learners=2), "minibatch_size=30.*Choose 32 or more"),
        (lambda: recalling().callbacks(on_episode_end=lambda **_: None), r"network.memory: RLlib's own"),
        (
            lambda: recalling().rl_module(rl_module_spec=RLModuleSpec(module_class=Theirs)),
            "network.memory has no effect on a module of your own, Theirs",
        ),
        (
            lambda: ppo(network={"memory": {"kind": "attention", "size": 10}}),
            "size=10 cannot be divided among heads=4",
        ),
        (lambda: ppo(network={"memory": {"kind": "gruu"}}), "'gru', 'lstm'"),
    ],
    ids=["minibatch", "learners", "rllib", "module", "heads", "unknown"],
)
def test_what_does_not_go_together_is_refused_by_name(asked: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        asked().validate()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "solved", "chance"),
    [("control/tmaze", 0.98, 0.7), ("control/cartpole_blind", 450.0, 100.0), ("control/popgym", 0.2, -0.35)],
)
def test_the_shipped_tasks_are_solved_with_their_memory_and_never_without(
    name: str, solved: float, chance: float
) -> None:
    shipped = resolve([name, "seed=2"])
    assert isinstance(shipped, ControlExperiment)
    best = []
    for experiment in (shipped, shipped.override({"algorithm.network.memory": None})):
        algo = PPOConfig.of(experiment).build_algo()
        found = -np.inf
        while algo.env_steps < experiment.train.steps and found < solved:
            algo.train()
            found = max(found, algo.window.mean_of(100) or -np.inf)
        best.append(found)
        algo.stop()
    assert best[0] >= solved
    assert best[1] < chance


def test_weave_of_one_expert_and_one_critic_is_ppo_with_a_memory_too() -> None:
    own = {"experts": 1, "critics": 1}
    theirs, ours = (weights(trained(recalling(**each), 3)) for each in ({}, {"kind": WeaveConfig, **own}))
    assert same(theirs, {name: value for name, value in ours.items() if "errors" not in name})


def test_steps_that_only_begin_an_episode_are_not_learnt_from() -> None:
    algo = recalling("Countdown", {"steps": 3}, fragment=10).build_algo()
    (rollout,) = algo.env_runner.sample()
    rows = torch.arange(rollout.env_steps())
    (batch,) = Sequences([rollout], "cpu").dealt({"row": rows}, [torch.arange(8)])
    assert sorted(batch["row"].tolist()) == rows.tolist()
    assert batch["begins"][:, 0].tolist() == [False, False, False, False, True, False, False, False, True, False]
    turned = replace(rollout, valid=np.ones_like(rollout.valid))
    (batch,) = Sequences([turned], "cpu").dealt({"row": torch.arange(80)}, [torch.arange(8)])
    assert not batch["begins"].any()
