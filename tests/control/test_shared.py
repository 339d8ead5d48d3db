"""Many agents, one policy: worlds of agents as one vector environment."""

import gc
import sys
from itertools import cycle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from ray import cloudpickle

from loomrl.control.play import Scripted, play
from loomrl.control.shared import SharedVector
from loomrl.errors import ConfigError, EpisodeError

NAMES = ("left", "right")


class Echo:
    """A `ParallelEnv` of two agents that are paid for repeating what they see, by hand and without PettingZoo.

    An observation is the agent's bit, and the step; `leaver` terminates in the first step.
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
        rewards = {name: float(actions[name] == self.bits[name]) for name in actions}
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


@pytest.mark.parametrize("leaver", NAMES)
def test_a_place_without_its_agent_is_marked_and_gets_no_action(leaver: str) -> None:
    env = SharedVector(lambda: Echo(leaver=leaver), 4)
    info = env.reset(seed=0)[1]
    assert info["absent"].tolist() == [False] * 4
    away = [name == leaver for name in NAMES] * 2
    said = [env.step(np.ones(4, np.int64)) for _ in range(4)]
    assert [s[2].tolist() for s in said] == [away, [False] * 4, [False] * 4, [False] * 4]
    assert [s[4]["absent"].tolist() for s in said] == [away, away, [True] * 4, [False] * 4]
    stays = next(name for name in NAMES if name != leaver)
    assert [set(actions) for actions in env.worlds[0].heard] == [{*NAMES}, {stays}, {stays}]  # type: ignore[attr-defined]
    assert (said[0][0]["step"] == said[1][0]["step"]).ravel().tolist() == away  # its last one stays
    assert not said[1][1][away].any()


def test_an_agent_may_come_after_the_beginning() -> None:
    env = SharedVector(Late, 4)
    assert env.reset(seed=0)[1]["absent"].tolist() == [False, True] * 2
    seen, rewards, *_, info = env.step(np.array([0, 1, 0, 1]))
    assert env.worlds[0].heard == [{"left": 0}]  # type: ignore[attr-defined]
    assert not info["absent"].any()
    assert not rewards[[1, 3]].any()
    assert seen["step"].ravel().tolist() == [1] * 4


def test_an_evaluation_counts_the_episodes_of_those_who_came_and_left() -> None:
    env = SharedVector(lambda: Echo(steps=5, leaver="right"), 4)
    lengths = play(Scripted(lambda seen: np.zeros(4, np.int64)), env, 8, seed=0).lengths
    assert sorted(lengths) == [1] * 4 + [5] * 4


def test_a_cut_ends_the_episodes_of_all_that_are_there_and_begins_the_world_anew() -> None:
    env = SharedVector(lambda: Echo(steps=99, leaver="right"), 4)
    told = play(Scripted(lambda seen: np.zeros(4, np.int64)), env, 8, seed=0, max_steps=7)
    assert (sorted(told.lengths), told.cut) == ([1] * 4 + [7] * 4, 4)


def test_an_agent_that_never_comes_is_named_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomrl.control.play.MOST_STEPS", 20)
    kinds = cycle([Other("left", "right", "ghost")])
    with pytest.raises(EpisodeError, match="place 2 has had no agent for 20 steps"):
        play(Scripted(lambda seen: np.zeros(3, np.int64)), SharedVector(kinds.__next__, 3), 3, seed=0)


class Vanishing(Echo):
    def step(self, actions: Any) -> Any:
        said = super().step(actions)
        self.agents = ["right"]
        return said


class Late(Echo):
    """The right one comes in the first step, after a beginning of which it sees nothing."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        seen, infos = super().reset(seed, options)
        self.agents = ["left"]
        return {"left": seen["left"]}, infos


class Empty(Echo):
    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        said = super().reset(seed, options)
        self.agents = []
        return said


class Unequal(Echo):
    def __init__(self, what: str) -> None:
        super().__init__()
        setattr(self, what, lambda agent: spaces.Discrete(2 if agent == "left" else 3))


class Other(Echo):
    def __init__(self, *agents: str) -> None:
        super().__init__()
        self.possible_agents = [*agents]


class Turns(Echo):
    def agent_iter(self) -> None: ...


@pytest.mark.parametrize(
    ("create", "words"),
    [
        (Vanishing, "world 0: left is no longer among its agents, and neither terminated nor truncated"),
        (Empty, "world 0: no agent is there when the episode begins"),
        (lambda: Echo(silent=True), "world 0: no reward for right"),
    ],
    ids=["vanishes", "empty", "silent"],
)
def test_a_world_that_does_not_tell_what_an_agent_needs_is_named(create: Any, words: str) -> None:
    env = SharedVector(create, 4)
    with pytest.raises(EpisodeError, match=words):
        (env.reset(seed=0), env.step(np.zeros(4, np.int64)))


@pytest.mark.parametrize(
    ("create", "words"),
    [
        (
            lambda: Unequal("observation_space"),
            r"observation_space of right is Discrete\(3\), that of left .*environment\.policies.*pad",
        ),
        (
            lambda: Unequal("action_space"),
            r"action_space of right is Discrete\(3\), that of left is Discrete\(2\)",
        ),
        (cycle([Echo(), Other(*NAMES, "middle")]).__next__, "world 1 has other agents or spaces than world 0"),
        (cycle([Echo()]).__next__, "same world more than once: make a new one"),
        (lambda: gymnasium.make("CartPole-v1"), "it has no possible_agents.*Give a function that makes one"),
        (Turns, r"its agents take turns.*is_parallelizable.*aec_to_parallel.*id: PettingZoo"),
        (Other, "no possible_agents: a policy needs at least one agent"),
    ],
    ids=["observations", "actions", "kinds", "one", "gymnasium", "turns", "none"],
)
def test_worlds_that_share_no_policy_are_refused_by_name(create: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SharedVector(create, 4)
