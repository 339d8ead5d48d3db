"""Many agents, one policy: worlds of agents as one vector environment, and PPO that trains through it."""

import gc
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from ray import cloudpickle

from loomrl.control.shared import SharedVector
from loomrl.errors import ConfigError, EpisodeError

NAMES = ("left", "right")


class Echo:
    """A `ParallelEnv` of two agents that are paid for repeating what they see, by hand and without PettingZoo.

    An observation is the agent's bit, and the step; `leaver` is out after the first step.
    """

    def __init__(
        self, *, steps: int = 3, leaver: str | None = None, silent: bool = False, terminates: bool = False
    ) -> None:
        self.possible_agents = list(NAMES)
        self.steps = steps
        self.leaver = leaver
        self.silent = silent
        self.terminates = terminates
        self.chance = np.random.default_rng()
        self.heard: list[dict[str, Any]] = []
        self.is_closed = False

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Dict({"bit": spaces.Discrete(2), "step": spaces.Box(0, 10, (1,), np.float32)})

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.chance = np.random.default_rng(seed)
        self.agents = list(NAMES)
        self.step_now = 0
        return self._seen(), {name: {"begun": True} for name in NAMES}

    def step(self, actions: dict[str, Any]) -> Any:
        assert self.agents, "stepped after the end"
        self.heard.append(actions)
        rewards = {name: float(actions[name] == self.bits[name]) for name in NAMES}
        self.step_now += 1
        over = self.step_now == self.steps
        out = {name: (over and self.terminates) or name == self.leaver for name in NAMES}
        self.agents = [] if over else [name for name in NAMES if name != self.leaver]
        if self.silent:
            rewards.pop("right")
        return self._seen(), rewards, out, dict.fromkeys(NAMES, over and not self.terminates), {"left": {"paid": 2}}

    def close(self) -> None:
        self.is_closed = True

    def _seen(self) -> Any:
        self.bits = dict(zip(NAMES, self.chance.integers(2, size=2).tolist(), strict=True))
        return {name: {"bit": bit, "step": np.array([self.step_now], np.float32)} for name, bit in self.bits.items()}


def team(**settings: Any) -> Any:
    pytest.importorskip("pettingzoo", reason="needs PettingZoo: pip install 'loomrl[multiagent]'")
    from loomrl.envs.teamwork import TeamParallel

    return TeamParallel(**settings)


def actions_for(steps: int, places: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, (steps, places, 3)).astype(np.float32)


def route(env: SharedVector, actions_T: Any) -> list[Any]:
    """Everything but infos that the environment says."""
    said = [env.step(actions)[:4] for actions in actions_T]
    return [np.array(column) for column in zip(*said, strict=True)]


# -- what it is --------------------------------------------------------------------------------------------------------


def test_places_are_agents_of_worlds_side_by_side() -> None:
    env = SharedVector(Echo, 6)
    assert isinstance(env, gymnasium.vector.VectorEnv)
    assert (env.num_envs, len(env.worlds)) == (6, 3)
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert env.single_observation_space == Echo().observation_space("left")
    assert env.single_action_space == spaces.Discrete(2)
    assert env.action_space == spaces.MultiDiscrete([2] * 6)
    observations, _ = env.reset(seed=0)
    assert env.observation_space.contains(observations)
    assert observations["bit"].tolist() == [world.bits[name] for world in env.worlds for name in NAMES]
    env.step(np.array([0, 1, 1, 1, 1, 0]))
    assert [world.heard[0] for world in env.worlds] == [
        {"left": 0, "right": 1},
        {"left": 1, "right": 1},
        {"left": 1, "right": 0},
    ]


def test_it_plays_what_worlds_play_that_are_stepped_by_hand() -> None:
    env = SharedVector(lambda: team(steps=20), 12)
    worlds = [team(steps=20) for _ in range(3)]
    observations, _ = env.reset(seed=5)
    begun = [world.reset(seed=5 + w)[0] for w, world in enumerate(worlds)]
    np.testing.assert_array_equal(observations, [told[name] for told in begun for name in told])
    for actions in actions_for(20, 12):
        seen, rewards, terminated, truncated, info = env.step(actions)
        for w, world in enumerate(worlds):
            names = world.possible_agents
            mine = slice(4 * w, 4 * w + 4)
            told = world.step(dict(zip(names, actions[mine], strict=True)))
            for ours, theirs in zip((seen, rewards, terminated, truncated), told, strict=False):
                np.testing.assert_array_equal(ours[mine], [theirs[name] for name in names])
            assert info["parts"]["match"][4 * w + 1] == told[4]["agent_1"]["parts"]["match"]
            assert rewards[mine].sum() == pytest.approx(sum(told[1].values()))
    assert truncated.all()


def test_the_step_after_an_end_ignores_its_actions_and_begins_anew_without_reward() -> None:
    env = SharedVector(lambda: team(steps=4), 8)
    env.reset(seed=0)
    _, _, terminated_T, truncated_T = route(env, actions_for(4, 8))
    assert truncated_T.sum(0).tolist() == [1] * 8
    assert not terminated_T.any()
    observations, rewards, terminated, truncated, _ = env.step(np.full((8, 3), np.nan))
    assert rewards.tolist() == [0.0] * 8
    assert not (terminated | truncated).any()
    assert not np.array_equal(observations[:4], observations[4:])
    assert route(env, actions_for(4, 8))[3][-1].all()


def test_worlds_end_each_at_its_own_time_and_by_their_own_means() -> None:
    kinds = iter([{"steps": 2, "terminates": True}, {"steps": 3}])
    env = SharedVector(lambda: Echo(**next(kinds)), 4)
    env.reset(seed=0)
    said = [env.step(np.zeros(4, np.int64)) for _ in range(4)]
    assert [s[2].tolist() for s in said] == [[False] * 4, [True, True, False, False], [False] * 4, [False] * 4]
    assert [s[3].tolist() for s in said] == [[False] * 4, [False] * 4, [False, False, True, True], [False] * 4]
    assert [s[0]["step"].ravel().tolist() for s in said] == [[1] * 4, [2] * 4, [0, 0, 3, 3], [1, 1, 0, 0]]


def test_infos_are_arrays_with_who_said_it() -> None:
    env = SharedVector(Echo, 4)
    assert env.reset(seed=0)[1]["begun"].tolist() == [True] * 4
    info = env.step(np.zeros(4, np.int64))[4]
    assert info["paid"].tolist() == [2, 0, 2, 0]
    assert info["_paid"].tolist() == [True, False, True, False]


def test_seeds_are_one_per_world_and_without_one_chance_goes_on() -> None:
    env = SharedVector(team, 8)
    begun = {name: env.reset(seed=seed)[0] for name, seed in {"3": 3, "4": 4, "4, 3": [4, 3]}.items()}
    np.testing.assert_array_equal(begun["3"][4:], begun["4"][:4])
    np.testing.assert_array_equal(begun["4, 3"], np.concatenate([begun["4"][:4], begun["3"][:4]]))
    assert not np.array_equal(env.reset()[0], begun["4, 3"])
    with pytest.raises(ConfigError, match="give 2 seeds, one per world"):
        env.reset(seed=[1, 2, 3, 4, 5, 6, 7, 8])


def test_what_was_told_does_not_change_afterwards() -> None:
    env = SharedVector(team, 4)
    before, _ = env.reset(seed=0)
    kept = before.copy()
    route(env, actions_for(3, 4))
    np.testing.assert_array_equal(before, kept)


@pytest.mark.parametrize("steps", [13, 20], ids=["in the middle", "at the end"])
def test_a_pickled_one_goes_on_as_if_nothing_had_been(steps: int) -> None:
    env = SharedVector(lambda: team(steps=20), 8)
    env.reset(seed=4)
    route(env, actions_for(steps, 8))
    copy = cloudpickle.loads(cloudpickle.dumps(env))
    rest = actions_for(40, 8, seed=1)
    for one, other in zip(route(env, rest), route(copy, rest), strict=True):
        np.testing.assert_array_equal(one, other)


def test_closing_it_closes_every_world() -> None:
    env = SharedVector(Echo, 6)
    env.close()
    assert all(world.is_closed for world in env.worlds)  # type: ignore[attr-defined]


def test_pettingzoo_is_not_needed_to_import_it() -> None:
    code = "import sys, loomrl.control.shared; print('pettingzoo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# -- what it refuses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("places", "better"), [(7, 8), (1, 2), (0, 2), (-2, 2)])
def test_places_that_no_worlds_fill_are_refused(places: int, better: int) -> None:
    made: list[Echo] = []
    with pytest.raises(ConfigError, match=rf"num_envs={places} .* has 2 .* multiple of 2, such as {better}") as caught:
        SharedVector(lambda: made.append(Echo()) or made[-1], places)
    assert [world.is_closed for world in made] == [True]
    del caught  # it kept alive what closes its worlds when it is forgotten, too


def test_a_world_that_cannot_be_made_closes_those_that_were() -> None:
    made = [Echo(), Echo()]
    remaining = iter(made)
    with pytest.raises(StopIteration) as caught:
        SharedVector(lambda: next(remaining), 6)
    assert [world.is_closed for world in made] == [True, True]
    del caught


def test_what_was_refused_leaves_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    with pytest.raises(ConfigError):
        SharedVector(lambda: None, 2)
    gc.collect()
    assert not ignored


def test_an_agent_that_leaves_before_the_others_is_refused_by_name() -> None:
    env = SharedVector(lambda: Echo(leaver="right"), 4)
    env.reset(seed=0)
    with pytest.raises(EpisodeError, match=r"world 0: right left before .* whose agents all end together"):
        env.step(np.zeros(4, np.int64))


def test_an_agent_that_vanishes_without_a_word_is_refused_by_name() -> None:
    class Vanishing(Echo):
        def step(self, actions: Any) -> Any:
            said = super().step(actions)
            self.agents = ["right"]
            return said

    env = SharedVector(Vanishing, 2)
    env.reset(seed=0)
    with pytest.raises(EpisodeError, match="left left before the others"):
        env.step(np.zeros(2, np.int64))


def test_an_agent_that_comes_later_is_refused_by_name() -> None:
    class Late(Echo):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            said = super().reset(seed, options)
            self.agents = ["left"]
            return said

    with pytest.raises(EpisodeError, match="right is not there when the episode begins"):
        SharedVector(Late, 2).reset(seed=0)


def test_an_agent_that_is_told_nothing_is_named() -> None:
    env = SharedVector(lambda: Echo(silent=True), 2)
    env.reset(seed=0)
    with pytest.raises(EpisodeError, match="world 0: no reward for right"):
        env.step(np.zeros(2, np.int64))


@pytest.mark.parametrize("what", ["observation_space", "action_space"])
def test_unequal_spaces_are_refused(what: str) -> None:
    class Unequal(Echo):
        pass

    setattr(Unequal, what, lambda self, agent: spaces.Discrete(2 if agent == "left" else 3))
    with pytest.raises(ConfigError, match=rf"{what} of right is Discrete\(3\), that of left is Discrete\(2\).*Pad"):
        SharedVector(Unequal, 2)


def test_worlds_of_several_kinds_are_refused() -> None:
    class Three(Echo):
        def __init__(self) -> None:
            super().__init__()
            self.possible_agents = ["left", "right", "middle"]

    kinds = iter([Echo, Three])
    with pytest.raises(ConfigError, match="world 1 has other agents or spaces than world 0"):
        SharedVector(lambda: next(kinds)(), 4)


def test_one_world_for_all_is_refused() -> None:
    only = Echo()
    with pytest.raises(ConfigError, match="same world more than once: make a new one"):
        SharedVector(lambda: only, 4)


def test_what_is_no_parallel_environment_is_refused() -> None:
    class Turns(Echo):
        def agent_iter(self) -> None: ...

    class Empty(Echo):
        def __init__(self) -> None:
            super().__init__()
            self.possible_agents = []

    for create, match in (
        (lambda: gymnasium.make("CartPole-v1"), "it has no possible_agents.*Give a function that makes one"),
        (Turns, r"its agents take turns.*is_parallelizable.*aec_to_parallel.*id: PettingZoo"),
        (Empty, "no possible_agents: a policy needs at least one agent"),
    ):
        with pytest.raises(ConfigError, match=match):
            SharedVector(create, 2)


# -- PPO through it ----------------------------------------------------------------------------------------------------


def create(context: Any) -> Any:
    """RLlib's way to make them: places, or without `num_envs` one environment to look at."""
    settings = dict(context)
    places = settings.pop("num_envs", None)
    return Echo(**settings) if places is None else SharedVector(lambda: Echo(**settings), places)


def trainer(**settings: Any) -> Any:
    from ray.tune.registry import register_env

    from loomrl.algorithms.control.ppo import PPOConfig

    register_env("Echo", create)
    asked = (
        PPOConfig().environment("Echo", env_config=settings).training(learning_rate=3e-3, minibatch_size=64, gamma=0.0)
    )
    asked.gym_env_vectorize_mode = "vector_entry_point"
    return asked.debugging(seed=7).env_runners(num_envs_per_env_runner=8, rollout_fragment_length=16)


pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.mark.usefixtures("ray_cluster", "one_thread")
@pytest.mark.slow
def test_ppo_teaches_all_agents_one_policy() -> None:
    algo = trainer(steps=5).build_algo()
    assert isinstance(algo.env_runner.env.unwrapped, SharedVector)
    for _ in range(40):
        algo.train()
    reward, steps = algo.window.means()
    assert steps == 5
    assert reward / steps > 0.95
    policy = algo.policy()
    assert [policy.act({"bit": bit, "step": np.zeros(1, np.float32)}) for bit in (0, 1)] == [0, 1]
    algo.stop()


@pytest.mark.usefixtures("ray_cluster", "one_thread")
def test_nothing_is_learnt_from_the_step_that_begins_an_episode() -> None:
    algo = trainer(steps=3).build_algo()
    (made,) = algo.env_runner.sample()
    assert made.valid[:, 0].tolist() == [True, True, True, False] * 4
    assert {episode.steps for episode in made.episodes} == {3}
    assert len(made.episodes) == 8 * 4
    algo.stop()


@pytest.mark.usefixtures("ray_cluster", "one_thread")
def test_training_goes_on_in_the_middle_of_an_episode_after_a_checkpoint(tmp_path: Any) -> None:
    import torch

    asked = trainer(steps=5)
    whole, again = asked.build_algo(), asked.copy(copy_frozen=False).build_algo()
    whole.train()
    whole.save_to_path(tmp_path / "checkpoint")
    again.restore_from_path(tmp_path / "checkpoint")
    for algo in (whole, again):
        algo.train()
    one, other = (algo.get_module().state_dict() for algo in (whole, again))
    assert all(torch.equal(one[name], other[name]) for name in one)
    whole.stop()
    again.stop()


@pytest.mark.usefixtures("ray_cluster", "one_thread")
def test_an_agent_that_leaves_early_ends_the_training_with_its_reason() -> None:
    algo = trainer(leaver="right").build_algo()
    with pytest.raises(EpisodeError, match="right left before the others"):
        algo.train()
    algo.stop()
