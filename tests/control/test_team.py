"""Agents of several policies: worlds whose observations and actions are by policy, and their policies as one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from loomrl.config.control import Network, Recurrent
from loomrl.control.network import ActorCritic
from loomrl.control.play import RandomPolicy, play
from loomrl.control.policy import ControlPolicy
from loomrl.control.space import acts, seen
from loomrl.control.team import TeamVector
from loomrl.control.team_policy import TeamPolicy, load_acting
from loomrl.errors import ArtifactError, ConfigError
from tests.control.test_shared import Echo

POLICIES = {"walk": ("b", "c"), "fly": ("a",)}


class Zoo:
    """All earn the time; `a` has other spaces, comes at the second step and leaves after two."""

    possible_agents = ("a", "b", "c")

    def __init__(self, steps: int = 4) -> None:
        self.steps = steps
        self.heard: list[dict[str, Any]] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 9, (3,) if agent == "a" else (1,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(7 if agent == "a" else 4)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        self.agents = ["b", "c"]
        return self._show(), {}

    def step(self, actions: dict[str, Any]) -> Any:
        self.heard.append({name: int(one) for name, one in actions.items()})
        self.time += 1
        acted = list(self.agents)
        over = {name: self.time == (3 if name == "a" else self.steps) for name in acted}
        self.agents = [name for name in ("a", "b", "c") if not over.get(name, name == "a" and self.time != 1)]
        shown = {name: self._show()[name] for name in {*acted, *self.agents}}
        return shown, dict.fromkeys(shown, float(self.time)), over, dict.fromkeys(over, False), {"b": {"is_success": 1}}

    def close(self) -> None:
        """Nothing is open."""

    def _show(self) -> Any:
        return {"a": np.full(3, self.time, np.float32)} | dict.fromkeys("bc", np.full(1, self.time, np.float32))


def policy_of(vector: TeamVector, name: str, memory: Any = None) -> ControlPolicy:
    part = vector.parts[name]
    observed, acted = part.single_observation_space, part.single_action_space
    network = Network(hidden=(4,), memory=memory)
    return ControlPolicy(ActorCritic(seen(observed), acts(acted), network, normalize=False), observed, acted, network)


def test_every_agent_gets_the_action_of_its_policy_in_every_world() -> None:
    env = TeamVector(Zoo, 6, POLICIES)
    seen_first, info = env.reset(seed=0)
    assert {name: one.shape for name, one in seen_first.items()} == {"walk": (4, 1), "fly": (2, 3)}
    assert info["absent"].tolist() == [True, False, False] * 2
    for name, one in seen_first.items():
        assert env.observation_space[name].contains(one)
    env.step({"walk": np.array([0, 1, 2, 3]), "fly": np.array([5, 6])})
    env.step({"walk": np.array([0, 1, 2, 3]), "fly": np.array([5, 6])})
    assert env.worlds[0].heard == [{"b": 0, "c": 1}, {"a": 5, "b": 0, "c": 1}]
    assert env.worlds[1].heard == [{"b": 2, "c": 3}, {"a": 6, "b": 2, "c": 3}]


def test_a_policys_share_of_a_step_is_that_of_its_places() -> None:
    env = TeamVector(Zoo, 6, POLICIES)
    env.reset(seed=0)
    actions = {"walk": np.zeros(4, np.int64), "fly": np.zeros(2, np.int64)}
    told = [env.step(actions) for _ in range(4)][-2:]
    third, fourth = ([env.share(each, name) for name in ("walk", "fly")] for each in told)
    assert [rewards.tolist() for _, rewards, *_ in third] == [[3.0] * 4, [3.0] * 2]
    assert [terminated.tolist() for _, _, terminated, *_ in third] == [[False] * 4, [True] * 2]
    assert [rewards.tolist() for _, rewards, *_ in fourth] == [[4.0] * 4, [0.0] * 2]
    assert [info["absent"].tolist() for *_, info in fourth] == [[True] * 4, [True] * 2]
    assert fourth[0][-1]["_is_success"].tolist() == [True, False, True, False]
    assert fourth[0][0].tolist() == [[4.0]] * 4


def test_policies_play_together_each_with_its_own_memory() -> None:
    env = TeamVector(Zoo, 6, POLICIES)
    team = TeamPolicy({"walk": policy_of(env, "walk", Recurrent(kind="gru", size=3)), "fly": policy_of(env, "fly")})
    found = play(team, env, 12, seed=0)
    assert sorted(found.lengths) == [2] * 4 + [4] * 8
    assert {length for length, place in zip(found.lengths, found.places, strict=True) if place % 3 == 0} == {2}
    state = team.begin(env, seed=0)
    team.act_batch({"walk": np.ones((4, 1), np.float32), "fly": np.ones((2, 3), np.float32)}, state=state)
    assert state.states["fly"] is None
    state.forget(np.array([True, False, True, True, True, True]))
    assert state.states["walk"].numbers_BS.any(1).tolist() == [True, False, False, False]


def test_policies_leave_together_and_each_for_itself(tmp_path: Path) -> None:
    env = TeamVector(Zoo, 3, POLICIES)
    team = TeamPolicy({name: policy_of(env, name) for name in POLICIES})
    team.save(tmp_path)
    again = load_acting(tmp_path)
    assert play(again, env, 3, seed=0).returns == play(team, env, 3, seed=0).returns  # type: ignore[arg-type]
    assert ControlPolicy.load(tmp_path / "fly").action_space == spaces.Discrete(7)
    with pytest.raises(ArtifactError, match="has several policies, each in a folder of its name"):
        ControlPolicy.load(tmp_path)


def test_what_does_not_fit_together_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"give every agent one policy\. The agents are: a, b, c"):
        TeamVector(Zoo, 3, {"walk": ("b",), "fly": ("a",)})
    with pytest.raises(ConfigError, match=r"observation_space of b is .* Give each kind of agent a policy"):
        TeamVector(Zoo, 3, {"all": ("a", "b", "c")})
    other = TeamVector(Echo, 2, {"left": ("left",), "right": ("right",)})
    with pytest.raises(ConfigError, match="these are the policies walk, and the environment is for left, right"):
        TeamPolicy({"walk": RandomPolicy()}).begin(other, seed=0)
