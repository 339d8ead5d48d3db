"""No remote learner, one, or two: the same path to each, the same weights, and checkpoints that any number restores."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.core import DEFAULT_MODULE_ID

from algorithms.learners import share_of, training_data
from algorithms.sac import SACConfig
from algorithms.weave import WeaveConfig
from tests.algorithms.control_support import MARKS, Weights, ppo, same, weights

pytestmark = [*MARKS, pytest.mark.system]


def sac() -> SACConfig:
    made = SACConfig().environment("Identity", env_config={"kind": "box"}).debugging(seed=7)
    made = made.env_runners(num_envs_per_env_runner=4, rollout_fragment_length=8)
    made = made.reporting(min_sample_timesteps_per_iteration=100)
    network = {"hidden": [16, 16], "activation": "relu"}
    return made.training(network=network, batch=64, warmup=64, n_step=3, replay={"capacity": 5000})


def weave() -> WeaveConfig:
    made = WeaveConfig().environment("Identity", env_config={}).debugging(seed=7)
    made = made.env_runners(num_envs_per_env_runner=8, rollout_fragment_length=16)
    return made.training(minibatch=64, gamma=0.0, experts=2, critics=2)


KINDS: dict[str, Callable[[], Any]] = {"ppo": lambda: ppo(normalize_observations=True), "sac": sac, "weave": weave}


def of_all(algo: Any) -> list[Weights]:
    """Of every learner."""
    found = [each.get() for each in algo.learner_group.foreach_learner(lambda learner: learner.get_state())]
    modules = [state["rl_module"][DEFAULT_MODULE_ID] for state in found]
    return [{name: torch.as_tensor(value).clone() for name, value in module.items()} for module in modules]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_learner_is_dealt_its_own_share(count: int) -> None:
    given = training_data(range(count))
    given.validate()
    assert [share_of(dealt) for dealt, _ in given.shard(num_shards=count)] == list(range(count))


def test_the_local_learner_takes_the_whole_list_of_one() -> None:
    assert share_of(training_data(["work"])) == "work"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("learners", [1, 2])
def test_remote_learners_learn_and_any_other_number_goes_on_from_there(
    kind: str, learners: int, tmp_path: Path
) -> None:
    algo = KINDS[kind]().learners(num_learners=learners).build_algo()
    before = weights(algo)
    for _ in range(2):
        told = algo.train()
    after = of_all(algo)
    assert told["learners"][DEFAULT_MODULE_ID]["num_module_steps_trained_lifetime"] > 0
    assert len(after) == learners
    assert all(same(after[0], other) for other in after)
    assert not same(before, after[0])
    algo.save_to_path(tmp_path / "checkpoint")
    algo.stop()
    for other in {0, 1, 2} - {learners}:
        again = KINDS[kind]().learners(num_learners=other).build_algo()
        again.restore_from_path(tmp_path / "checkpoint")
        assert all(same(after[0], each) for each in of_all(again))
        again.train()
        assert all(np.isfinite(value).all() for value in weights(again).values())
        again.stop()


@pytest.mark.parametrize("kind", ["ppo", "weave"])
def test_one_remote_learner_learns_what_one_in_this_process_does(kind: str) -> None:
    def trained(learners: int) -> Weights:
        algo = KINDS[kind]().learners(num_learners=learners).build_algo()
        for _ in range(2):
            algo.train()
        algo.stop()
        return weights(algo)

    alone, apart = trained(0), trained(1)
    assert all(torch.allclose(alone[name], apart[name], atol=1e-6) for name in alone)
