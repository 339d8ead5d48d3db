"""PPO of several policies on the fast way: each learns from its own agents' steps, with spaces of its own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.examples.envs.classes.multi_agent import MultiAgentCartPole
from ray.rllib.policy.policy import PolicySpec
from ray.tune.registry import register_env

from loomrl.algorithms.control.learner import ControlWork
from loomrl.algorithms.control.ppo import PPOConfig
from loomrl.algorithms.control.team import RLlibWorld
from loomrl.errors import ArtifactError, ConfigError, EpisodeError
from tests.algorithms.control_envs import Signal
from tests.algorithms.control_support import MARKS
from tests.algorithms.test_agents_leave import Shift

pytestmark = MARKS
POLES = {0: "one", 1: "other"}
OWNERS = {"speaker": "speaks", "listener": "listens"}
CALM = PolicySpec(config={"gamma": 0.5})
LEAVERS = {"dies": "brief", "is_cut": "brief", "comes": "late"}


def config(world: Any, owners: Any, *, steps: int = 16, **settings: Any) -> PPOConfig:
    register_env(world.__name__, lambda context: world(context) if issubclass(world, MultiAgentEnv) else world())
    made = PPOConfig().environment(world.__name__, env_config={"num_agents": 2} if owners is POLES else {})
    made.multi_agent(policies={*owners.values()}, policy_mapping_fn=owners).debugging(seed=3)
    made.env_runners(num_envs_per_env_runner=4, rollout_fragment_length=steps)
    return made.training(**({"minibatch_size": 32, "network": {"hidden": [16]}} | settings))


def weights(algo: Any) -> dict[str, torch.Tensor]:
    modules = algo.learner_group.get_state()["learner"]["rl_module"]
    return {f"{name}.{key}": torch.as_tensor(one).clone() for name in modules for key, one in modules[name].items()}


def differing(one: Any, other: Any) -> list[str]:
    ours, theirs = weights(one), weights(other)
    assert ours.keys() == theirs.keys()
    return [name for name in ours if not torch.equal(ours[name], theirs[name])]


@pytest.mark.parametrize("memory", [None, {"kind": "gru", "size": 4}], ids=["plain", "memory"])
def test_each_policy_learns_from_the_steps_of_its_agents_alone(memory: Any) -> None:
    algo = config(Shift, LEAVERS, steps=20, minibatch_size=60, network={"hidden": [16], "memory": memory}).build_algo()
    brief, late = algo.env_runner.sample()
    assert (brief.policy, late.policy) == ("brief", "late")
    each = [1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 1, 1, 0]  # four steps, and one that begins anew
    expected = np.tile(np.array(each, bool).T, (4, 4))
    np.testing.assert_array_equal(brief.valid, expected[:, [0, 1, 3, 4, 6, 7, 9, 10]])
    np.testing.assert_array_equal(late.valid, expected[:, 2::3])
    assert {(episode.reward, episode.steps) for episode in brief.episodes} == {(2.0, 2)}
    assert {(episode.reward, episode.steps) for episode in late.episodes} == {(3.0, 3)}
    learner = algo.learner_group._learner
    before = weights(algo)
    assert learner.learn(ControlWork((late,), 1e-3)) == late.env_steps() * algo.config.settings.epochs
    after = weights(algo)
    moved = {name.partition(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"late"}
    normalizer = learner.each["late"].own.net.normalizer
    np.testing.assert_allclose(normalizer.mean, late.seen[:-1][late.valid].mean(0), atol=1e-3)


def test_policies_have_spaces_of_their_own_and_explore_apart() -> None:
    algo = config(Signal, OWNERS).build_algo()
    assert algo.config.fallback_reasons == ()
    told = algo.train()
    policies = algo.policy().policies
    assert policies["speaks"].observation_space == spaces.Discrete(3)
    assert policies["listens"].action_space == spaces.Discrete(4)
    assert told["env_runners"]["num_env_steps_sampled_lifetime"] == algo.env_steps > 0
    assert {*told["env_runners"]["module_episode_returns_mean"]} == {*policies}
    metrics = algo.metrics_of(told)
    assert {"return/training/speaks", "return/training/listens", "policy/loss"} <= metrics.keys()
    runners = algo.env_runner.each.values()
    assert len({float(torch.rand(1, generator=one._noise)) for one in runners}) == 2


@pytest.mark.parametrize(
    ("world", "owners", "memory"),
    [(Signal, OWNERS, None), (Shift, LEAVERS, {"kind": "gru", "size": 4}), (MultiAgentCartPole, POLES, None)],
    ids=["signal", "leavers", "poles"],
)
def test_a_checkpoint_goes_on_bit_for_bit_and_a_seed_says_all(
    world: Any, owners: Any, memory: Any, tmp_path: Path
) -> None:
    asked = config(world, owners, steps=13, minibatch_size=52, network={"hidden": [16], "memory": memory})
    algo, twin = asked.copy(copy_frozen=False).build_algo(), asked.copy(copy_frozen=False).build_algo()
    for _ in range(2):
        algo.train()
        twin.train()
    assert not differing(algo, twin)
    algo.save_to_path(tmp_path)
    again = asked.build_algo()
    assert differing(algo, again)
    again.restore_from_path(tmp_path)
    assert not differing(algo, again)
    for each in (algo, again):
        results = [each.train() for _ in range(2)]
        each.told = results[-1]["env_runners"]
    assert not differing(algo, again)
    for name in ("episode_return_mean", "module_episode_returns_mean"):
        assert algo.told[name] == again.told[name]


def test_a_checkpoint_of_other_policies_is_refused(tmp_path: Path) -> None:
    config(Shift, LEAVERS).build_algo().save_to_path(tmp_path)
    other = config(Shift, LEAVERS | {"is_cut": "late"}).build_algo()
    with pytest.raises(ArtifactError, match="policies is "):
        other.restore_from_path(tmp_path)


def test_rllibs_evaluation_tells_the_return_of_each_policy() -> None:
    asked = config(Shift, LEAVERS).evaluation(
        evaluation_interval=1, evaluation_duration=12, evaluation_config={"explore": False}
    )
    told = asked.build_algo().train()["evaluation"]["env_runners"]
    assert told["module_episode_returns_mean"] == {"brief": 2.0, "late": 3.0}
    assert told["episode_return_mean"] == pytest.approx(7 / 3)


@pytest.mark.slow
def test_runners_and_learners_may_be_elsewhere() -> None:
    algo = config(Shift, LEAVERS).env_runners(num_env_runners=1).learners(num_learners=2).build_algo()
    before = weights(algo)
    algo.train()
    moved = {name for name, value in weights(algo).items() if not torch.equal(value, before[name])}
    assert {name.partition(".")[0] for name in moved} == {*LEAVERS.values()}
    one, other = (each.get() for each in algo.learner_group.foreach_learner(lambda one: one.get_state()["rl_module"]))
    acting = algo.env_runner_group.foreach_env_runner(lambda one: one.module.get_state(), local_env_runner=False)[0]
    for policy in LEAVERS.values():
        for name, value in one[policy].items():
            np.testing.assert_array_equal(value, other[policy][name])
        for name, value in acting[policy].items():
            np.testing.assert_array_equal(value, one[policy][name])
    algo.stop()


# -- RLlib's environments, and what only RLlib can do ------------------------------------------------------------------


class Silent(MultiAgentEnv):
    """Tells no rewards, and shows no last observation: RLlib fills both in. `pauses` is not shown at step 2."""

    def __init__(self, config: Any = None, *, pauses: Any = None) -> None:
        super().__init__()
        self.agents = self.possible_agents = ["a", "b"]
        self.observation_spaces = dict.fromkeys(self.agents, spaces.Box(0, 9, (1,)))
        self.action_spaces = dict.fromkeys(self.agents, spaces.Discrete(2))
        self.pauses = pauses

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.time = 0
        return {name: np.zeros(1, np.float32) for name in self.agents}, {}

    def step(self, actions: Any) -> Any:
        self.time += 1
        over = self.time == 3
        shown = {} if over else {n: np.full(1, self.time, np.float32) for n in actions if n != self.pauses}
        return shown, {"a": 1.0}, {"__all__": False}, {"__all__": over}, {}


def test_what_rllibs_environments_leave_out_is_filled_in() -> None:
    world = RLlibWorld(Silent())
    world.reset()
    for _ in range(2):
        world.step({"a": 0, "b": 0})
        assert world.agents == ["a", "b"]
    shown, rewards, terminated, truncated, _ = world.step({"a": 0, "b": 0})
    assert (rewards, terminated, truncated) == (
        {"a": 1.0, "b": 0.0},
        {"a": False, "b": False},
        {"a": True, "b": True},
    )
    assert (shown["b"].tolist(), world.agents) == ([2.0], [])


def test_an_end_of_its_own_counts_more_than_that_of_all() -> None:
    world = RLlibWorld(MultiAgentCartPole({"num_agents": 2}))
    world.reset(seed=0)
    over: dict[int, tuple[bool, bool]] = {}
    while world.agents:
        _, _, terminated, truncated, _ = world.step(dict.fromkeys(world.agents, 1))
        over |= {agent: (terminated[agent], truncated[agent]) for agent in terminated if agent not in world.agents}
    assert over == {0: (True, False), 1: (True, False)}


def test_agents_that_pause_are_named() -> None:
    world = RLlibWorld(Silent(pauses="b"))
    world.reset()
    with pytest.raises(EpisodeError, match=r"b has no observation.*env_runner_cls=MultiAgentEnvRunner"):
        world.step({"a": 0, "b": 0})


class Turns(Silent):
    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        shown, infos = super().reset(seed=seed)
        return {"a": shown["a"]}, infos


def by_episode(agent: Any, episode: Any, **_: Any) -> str:
    return "one" if hash(episode.id_) % 2 else "other"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda made: made.multi_agent(policy_mapping_fn=by_episode), "policy_mapping_fn that depends on the episode"),
        (lambda made: made.multi_agent(policies_to_train=["one"]), "policies_to_train"),
        (lambda made: made.multi_agent(policies={"one": PolicySpec(), "other": CALM}), "of their own"),
        (lambda made: made.multi_agent(policies={"one", "other", "spare"}), "spare has no agent"),
        (lambda made: made.env_runners(env_runner_cls=MultiAgentEnvRunner), "env_runner_cls=MultiAgentEnvRunner"),
        (lambda made: made.environment(Turns).multi_agent(policy_mapping_fn={"a": "one", "b": "other"}), "take turns"),
    ],
    ids=["mapping", "some", "specs", "spare", "runner", "turns"],
)  # fmt: skip
def test_what_only_rllib_can_do_goes_its_way_and_says_why(change: Any, reason: str) -> None:
    asked = change(config(MultiAgentCartPole, POLES, network={}))
    asked.validate()
    assert any(reason in each for each in asked.fallback_reasons), asked.fallback_reasons
    assert not asked.team


def test_what_no_way_is_left_for_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"gives 1 the policy 'nobody'\. Known: one, other"):
        config(MultiAgentCartPole, POLES).multi_agent(policy_mapping_fn={0: "one", 1: "nobody"}).validate()
    with pytest.raises(ConfigError, match="policies_to_train: RLlib's own runner, which could, needs a MultiAgentEnv"):
        config(Signal, OWNERS).multi_agent(policies_to_train=["speaks"]).validate()


# -- learning ----------------------------------------------------------------------------------------------------------


def test_a_speaker_and_a_listener_learn_to_understand_each_other() -> None:
    rates = {"learning_rate": 1e-2, "gamma": 0.5, "entropy_coefficient": 0.01}
    algo = config(Signal, OWNERS, steps=44, minibatch_size=88, epochs=6, **rates).build_algo()
    means = []
    while len(means) < 60 and (not means or means[-1] < 8):
        means.append(algo.train()["env_runners"]["module_episode_returns_mean"]["listens"])
    assert means[0] < 4 < 8 <= means[-1], means


@pytest.mark.slow
def test_two_policies_solve_two_poles() -> None:
    asked = PPOConfig().environment(MultiAgentCartPole, env_config={"num_agents": 2}).training(steps=200_000)
    algo = asked.multi_agent(policies={*POLES.values()}, policy_mapping_fn=POLES).debugging(seed=2).build_algo()
    means = {}
    while algo.env_steps < 200_000 and (not means or min(means.values()) < 475):
        means = algo.train()["env_runners"].get("module_episode_returns_mean", {})
    assert min(means.values()) >= 475, (means, algo.env_steps)
