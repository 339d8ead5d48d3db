"""PPO over agents that leave before the others, and come after them: absent ones leave no trace."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.tune.registry import register_env

from loomrl.algorithms.control.learner import ControlWork
from loomrl.algorithms.control.ppo import PPO, PPOConfig
from loomrl.control.shared import SharedVector
from tests.algorithms.control_support import MARKS

pettingzoo = pytest.importorskip("pettingzoo", reason="needs PettingZoo: pip install 'loomrl[multiagent]'")
pytestmark = [pytest.mark.usefixtures("one_thread"), *MARKS[1:]]

GAMMA = 0.9
VALUES = {(0, 2): 1 + GAMMA, (0, 1): 1.0, (1, 0): 1 / (1 - GAMMA), (2, 3): 1 + GAMMA + GAMMA**2, (2, 2): 1 + GAMMA}
"""By agent and steps left: of dies, whose end is worth nothing; of is_cut, who would go on for ever; of comes."""


class Shift(pettingzoo.ParallelEnv):  # type: ignore[misc]
    """Everybody who is there earns 1 a step. One dies after two steps, one is cut after two, and one comes at the
    second step and works for three.
    """

    metadata = {"name": "shift", "render_modes": []}  # noqa: RUF012 - PettingZoo's declaration
    possible_agents = ("dies", "is_cut", "comes")

    seen = spaces.Box(0, 1, (7,), np.float32)
    acts = spaces.Discrete(2)

    def observation_space(self, agent: str) -> spaces.Box:
        return self.seen

    def action_space(self, agent: str) -> spaces.Discrete:
        return self.acts

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        self.agents = ["dies", "is_cut"]
        self.time = 0
        return {name: self._show(name) for name in self.agents}, {name: {} for name in self.agents}

    def step(self, actions: Any) -> Any:
        acting = list(self.agents)
        assert set(actions) == set(acting), "an action for each agent that is there, and for no other"
        self.time += 1
        terminated = {name: (name, self.time) in {("dies", 2), ("comes", 4)} for name in acting}
        truncated = {name: (name, self.time) == ("is_cut", 2) for name in acting}
        coming = ["comes"] if self.time == 1 else []
        self.agents = [*(name for name in acting if not (terminated[name] or truncated[name])), *coming]
        seen = {name: self._show(name) for name in [*acting, *coming]}
        new = dict.fromkeys(coming, False)
        return (
            seen,
            dict.fromkeys(seen, 0.0) | dict.fromkeys(acting, 1.0),
            terminated | new,
            truncated | new,
            {name: {} for name in seen},
        )

    def _show(self, name: str) -> Any:
        agent = self.possible_agents.index(name)
        return shown(agent, 0 if name == "is_cut" else (2 if name == "dies" else 4) - self.time)


class Cliff(Shift):
    """The choice that an agent is shown pays 1; the other one is its death. The world ends after ten steps."""

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        if seed is not None:
            self.chance = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.time = 0
        return self._look(), {name: {} for name in self.agents}

    def step(self, actions: Any) -> Any:
        acting = list(self.agents)
        self.time += 1
        is_right = {name: int(actions[name]) == self.right[name] for name in acting}
        seen = self._look()
        self.agents = [name for name in acting if is_right[name] and self.time < 10]
        return (
            seen,
            {name: float(is_right[name]) for name in acting},
            {name: not is_right[name] for name in acting},
            {name: is_right[name] and self.time == 10 for name in acting},
            {name: {} for name in acting},
        )

    def _look(self) -> Any:
        self.right = {name: int(self.chance.integers(2)) for name in self.agents}
        return {name: np.eye(7, dtype=np.float32)[bit] for name, bit in self.right.items()}


def shown(agent: int, left: int) -> Any:
    return np.concatenate([np.eye(3)[agent], np.eye(4)[left]]).astype(np.float32)


def build(world: type[Shift], *, worlds: int = 4, steps: int = 20, **settings: Any) -> PPO:
    register_env(
        world.__name__, lambda context: SharedVector(world, context["num_envs"]) if "num_envs" in context else world()
    )
    config = PPOConfig().environment(world.__name__).debugging(seed=3).training(gamma=GAMMA, **settings)
    config.env_runners(
        num_envs_per_env_runner=3 * worlds, rollout_fragment_length=steps, gym_env_vectorize_mode="vector_entry_point"
    )
    return config.build_algo()  # type: ignore[no-any-return]


def test_pettingzoo_accepts_these_worlds() -> None:
    from pettingzoo.test import parallel_api_test

    parallel_api_test(Cliff(), num_cycles=50)


@pytest.mark.parametrize("memory", [None, {"kind": "gru", "size": 8}], ids=["plain", "memory"])
def test_absent_agents_have_no_loss_no_advantage_and_no_statistics(memory: Any) -> None:
    algo = build(Shift, steps=20, minibatch_size=240, network={"memory": memory})
    runner = algo.env_runner
    (rollout,) = runner.sample()
    each = [1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 1, 1, 0]  # four steps, and one that begins anew
    np.testing.assert_array_equal(rollout.valid, np.tile(np.array(each, bool).T, (4, 4)))
    assert rollout.env_steps() == 4 * 4 * 7
    assert not rollout.rewards[~rollout.valid].any()
    assert [(episode.reward, episode.steps) for episode in rollout.episodes].count((2.0, 2)) == 32
    assert [(episode.reward, episode.steps) for episode in rollout.episodes].count((3.0, 3)) == 16
    learner = algo.learner_group._learner
    table = learner._table(ControlWork((rollout,), 1e-3))
    assert {len(column) for column in table.values()} == {4 * 4 * 7}
    before = float(learner.own.net.normalizer.count)
    assert learner.learn(ControlWork((rollout,), 1e-3)) == 4 * 4 * 7 * algo.config.settings.epochs
    assert float(learner.own.net.normalizer.count) - before == 4 * 4 * 7
    expected = np.concatenate([rollout.seen[:-1][rollout.valid]]).mean(0)
    np.testing.assert_allclose(learner.own.net.normalizer.mean, expected, atol=1e-3)


def test_a_memory_begins_empty_where_an_agent_comes() -> None:
    algo = build(Shift, steps=3, minibatch_size=36, network={"memory": {"kind": "frames", "count": 2}})
    runner = algo.env_runner
    runner.sample()
    (rollout,) = runner.sample()
    assert not rollout.state[0][0].any()  # of the one that has died
    assert rollout.state[0][2].any()  # of the one that came
    (rollout,) = runner.sample()
    assert rollout.state[0][0].any()
    assert not rollout.state[0][2].any()  # it has not come yet


def test_a_death_is_worth_nothing_and_a_cut_what_would_have_come() -> None:
    plain = {"normalize_observations": False, "normalize_rewards": False}
    algo = build(Shift, learning_rate=5e-3, minibatch_size=60, epochs=8, gae_lambda=0.9, **plain)
    for _ in range(50):
        algo.train()
    policy = algo.policy()
    found = {case: policy.value(shown(*case)) for case in VALUES}
    assert found == pytest.approx(VALUES, rel=0.1), found


def test_ppo_learns_to_live_among_agents_that_die() -> None:
    algo = build(Cliff, learning_rate=5e-3, minibatch_size=120, epochs=4)
    first = algo.train()["env_runners"]["episode_return_mean"]
    for _ in range(25):
        last = algo.train()["env_runners"]["episode_return_mean"]
    assert first < 3
    assert last > 9


def test_it_goes_on_bit_for_bit_while_agents_are_away(tmp_path: Any) -> None:
    def weights(algo: Any) -> Any:
        return algo.learner_group.get_state()["learner"]["rl_module"][DEFAULT_MODULE_ID]

    algo = build(Shift, steps=3, minibatch_size=12)  # a fragment ends where two have gone and one works
    algo.train()
    algo.save_to_path(tmp_path)
    algo.train()
    again = build(Shift, steps=3, minibatch_size=12)
    again.restore_from_path(tmp_path)
    again.train()
    for name, value in weights(algo).items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(weights(again)[name])), name
