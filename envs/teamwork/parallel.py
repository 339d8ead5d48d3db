"""Teams whose agents act for themselves: one as a PettingZoo environment, and many as a vector of all their agents.
Needs the extra `multiagent`.

Axes: `_M` worlds, `_N` agents, `_P` places: all agents of the first world, then all of the second.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import seeding
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from loomrl.config.basic import Share
from loomrl.control.shared import count_worlds
from loomrl.control.vector import ABSENT
from loomrl.envs.teamwork.dynamics import Teams, completion
from loomrl.envs.teamwork.observation import Seen, action_space, observation_space, observe, seen_by_each
from loomrl.envs.teamwork.settings import ID, TeamSettings
from loomrl.envs.teamwork.vector import TeamVector, split_parts
from loomrl.errors import ConfigError, PolicyError

try:
    from pettingzoo import ParallelEnv  # type: ignore[import-untyped,import-not-found,unused-ignore]
except ImportError as error:
    raise ConfigError(
        f"TeamParallel needs pettingzoo, which cannot be imported ({error}). "
        "Install it with: pip install 'loomrl[multiagent]'."
    ) from error


class ParallelSettings(TeamSettings):
    """Keywords of the environment for agents that act for themselves."""

    shared: Share = 0.5
    """Share of the team's mean in an agent's reward; the rest is what it earned itself."""


class TeamPlaces(VectorEnv[Seen, NDArray[Any], NDArray[Any]]):
    """The agents of `num_envs / agents` teams, step by step as SharedVector of a TeamParallel for each team shows them.

    `info["credit"]` has what each agent earned itself.
    """

    metadata = TeamVector.metadata

    def __init__(self, num_envs: int, **settings: Any) -> None:
        self.settings = ParallelSettings.parse(settings, origin=ID)
        worlds = count_worlds(num_envs, self.settings.agents)
        self._worlds = TeamVector(worlds, **self.settings.model_dump(exclude={"shared"}))
        self.num_envs = num_envs
        self.single_observation_space = observation_space(self.settings)
        self.single_action_space = action_space(1)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """Begin all episodes; from one seed, world w gets `seed + w`, and without one its chance goes on."""
        seen_MO, _ = self._worlds.reset(seed=seed)
        return self._show(seen_MO), {ABSENT: np.zeros(self.num_envs, np.bool_)}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Seen, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """One step of every agent, or the beginning of the next episodes."""
        seen_MO, _, _, over_M, told = self._worlds.step(actions.reshape(self._worlds.num_envs, -1))
        own_MN = told["credit"]
        reward_MN = (1 - self.settings.shared) * own_MN + self.settings.shared * own_MN.mean(1, keepdims=True)
        over_P = np.repeat(over_M, self.settings.agents)
        info = {ABSENT: over_P.copy(), "credit": own_MN.ravel()}
        if "is_success" in told:
            info["is_success"] = np.repeat(told["is_success"], self.settings.agents)
        return self._show(seen_MO), reward_MN.ravel(), np.zeros_like(over_P), over_P, info

    def _show(self, seen_MO: Seen) -> Seen:
        return seen_by_each(seen_MO, self.settings).reshape(self.num_envs, -1)


class TeamParallel(ParallelEnv):  # type: ignore[misc]
    """Agents see the same as a central policy does, each itself first, so that one set of parameters serves all.

    Rewards of all agents add up to that of the team, for any value of `shared`.
    """

    metadata = {"name": ID, "render_modes": []}  # noqa: RUF012 - PettingZoo's declaration
    form: ClassVar[Mapping[str, Any]] = {}
    """Settings that this class has by default."""
    vector_form: ClassVar[Callable[..., TeamPlaces]] = TeamPlaces

    def __init__(self, **settings: Any) -> None:
        self.settings = ParallelSettings.parse({**self.form, **settings}, origin=ID)
        self.possible_agents = [f"agent_{index}" for index in range(self.settings.agents)]
        self.agents: list[str] = []
        self.render_mode = None
        self._observation_spaces = {name: observation_space(self.settings) for name in self.possible_agents}
        self._action_spaces = {name: action_space(1) for name in self.possible_agents}
        self._generator = seeding.np_random()[0]
        self._teams = Teams(self.settings, [self._generator])

    def observation_space(self, agent: str) -> Box:
        """The same numbers as in the central environment."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> Box:
        """Accept, effort, collaborate."""
        return self._action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Seen], dict[str, dict[str, Any]]]:
        """A new team, and a new line of tasks; without a seed chance goes on."""
        if seed is not None:
            self._generator = seeding.np_random(seed)[0]
        self._teams = Teams(self.settings, [self._generator])
        self.agents = list(self.possible_agents)
        return self._observe(), {name: {} for name in self.agents}

    def step(
        self, actions: Mapping[str, NDArray[Any]]
    ) -> tuple[dict[str, Seen], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """One step of all agents; `info["parts"]` of an agent has what it earned itself."""
        if not self.agents:
            raise PolicyError("the episode is over, or none has begun: call reset().")
        missing = [name for name in self.agents if name not in actions]
        if missing:
            raise PolicyError(f"no action for {', '.join(missing)}: every agent acts in every step.")
        parts = self._teams.advance(np.stack([actions[name] for name in self.agents])[None])
        own_N = split_parts(parts)["credit"][0]
        reward_N = (1 - self.settings.shared) * own_N + self.settings.shared * own_N.mean()
        infos: dict[str, dict[str, Any]] = {
            name: {"parts": {part: float(part_MN[0, index]) for part, part_MN in parts.items()}}
            for index, name in enumerate(self.agents)
        }
        names = self.agents
        over = self._teams.is_over
        if over:
            done = float(completion(self._teams.tally)[0])
            infos = {name: {**info, "is_success": done} for name, info in infos.items()}
        self.agents = [] if over else names
        rewards = dict(zip(names, reward_N.tolist(), strict=True))
        return self._observe(), rewards, dict.fromkeys(names, False), dict.fromkeys(names, over), infos

    def state(self) -> Seen:
        """The central observation."""
        seen_O: Seen = observe(self._teams)[0]
        return seen_O

    def _observe(self) -> dict[str, Seen]:
        return dict(zip(self.possible_agents, seen_by_each(observe(self._teams), self.settings)[0], strict=True))


class MultiAgentTaskEnvironment(TeamParallel):
    """The basic form: three random tasks wait at the reset, agents are experts in research and in analysis, and what
    they see has seven numbers an agent and five a task slot.
    """

    form: ClassVar[Mapping[str, Any]] = {"waiting": 3, "skills": 2, "view": "basic"}
    vector_form = partial(TeamPlaces, **form)
