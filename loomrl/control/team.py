"""Worlds whose agents have several policies, as a vector environment.

Axes: `_P` places: all agents of the first world, then all of the second.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from numpy.typing import NDArray

from loomrl.control.shared import SharedVector, Space, common_spaces, refuse_turns
from loomrl.errors import ConfigError

Agents = Mapping[str, Sequence[Any]]
"""The agents of each policy."""


class PolicyPlaces(VectorEnv[Any, Any, Any]):
    """The places of one policy, as far as that policy must know: their spaces and number. All worlds step together."""

    def __init__(self, observation_space: Space, action_space: Space, *, count: int, metadata: dict[str, Any]) -> None:
        self.num_envs = count
        self.metadata = metadata
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.observation_space = batch_space(observation_space, count)
        self.action_space = batch_space(action_space, count)


class TeamVector(SharedVector):
    """A SharedVector for agents of several policies: observations and actions are by policy, all else by place."""

    def __init__(self, create: Callable[[], Any], num_envs: int, policies: Agents) -> None:
        self._policies = policies
        super().__init__(create, num_envs)
        self.places: dict[str, NDArray[np.intp]] = {}
        """The places of each policy."""
        self.parts: dict[str, PolicyPlaces] = {}
        for name, agents in policies.items():
            numbers = [self.agents.index(agent) for agent in self.agents if agent in agents]
            self.places[name] = np.add.outer(np.arange(len(self.worlds)) * len(self.agents), numbers).ravel()
            observed, acted = common_spaces(self.worlds[0], agents)
            self.parts[name] = PolicyPlaces(observed, acted, count=len(self.places[name]), metadata=self.metadata)
        self.observation_space = spaces.Dict({name: part.observation_space for name, part in self.parts.items()})
        self.action_space = spaces.Dict({name: part.action_space for name, part in self.parts.items()})
        self._policy_of = {agent: name for name, agents in policies.items() for agent in agents}
        self._unseen = {name: _example(part.single_observation_space) for name, part in self.parts.items()}

    def share(self, told: tuple[Any, ...], name: str) -> tuple[Any, ...]:
        """One policy's share of a step: its observations; of all else its places."""
        seen, *columns, info = told
        places = self.places[name]
        mine = {key: value[places] for key, value in info.items() if isinstance(value, np.ndarray)}
        return (seen[name], *(column[places] for column in columns), mine)

    def _inspect(self, world: Any) -> tuple[tuple[Any, ...], Space, Space]:
        """The agents' names, and the spaces of each policy."""
        refuse_turns(world)
        names = tuple(world.possible_agents)
        policies = self._policies
        given = [agent for agents in policies.values() for agent in agents]
        if len(given) != len(names) or set(given) != set(names):
            known = ", ".join(map(str, names))
            raise ConfigError(
                f"policies={ {name: list(agents) for name, agents in policies.items()} }: give every agent one policy. "
                f"The agents are: {known}."
            )
        found = {name: common_spaces(world, agents) for name, agents in policies.items()}
        observed, acted = (spaces.Dict({name: two[n] for name, two in found.items()}) for n in (0, 1))
        return names, observed, acted

    def _split(self, actions: Any) -> list[Any]:
        chosen: list[Any] = [None] * self.num_envs
        for name, part in self.parts.items():
            for place, action in zip(self.places[name], iterate(part.action_space, actions[name]), strict=True):
                chosen[place] = action
        return chosen

    def _batch(self, seen: Sequence[Sequence[Any]]) -> dict[str, Any]:
        flat = [one for told in seen for one in told]
        return {
            name: concatenate(
                part.single_observation_space,
                [flat[place] for place in self.places[name]],
                create_empty_array(part.single_observation_space, n=part.num_envs),
            )
            for name, part in self.parts.items()
        }

    def _show_absent(self, agent: Any, present: Mapping[Any, Any]) -> Any:
        return self._unseen[self._policy_of[agent]]


def _example(space: Space) -> Any:
    """A value of this space, the same one every time."""
    space = deepcopy(space)
    space.seed(0)
    return space.sample()
