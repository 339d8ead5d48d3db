"""The policies of a team as one that acts for all its agents.

Axes: `_P` places: all agents of the first world, then all of the second.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from loomrl.canonical import canonical_json
from loomrl.control.memory import MemoryState
from loomrl.control.play import ActingPolicy
from loomrl.control.policy import SEVERAL, ControlPolicy, load_error, write
from loomrl.control.team import TeamVector
from loomrl.errors import ConfigError


class TeamState:
    """The memories of policies that have one, by policy."""

    def __init__(self, states: Mapping[str, MemoryState | None], places: Mapping[str, NDArray[np.intp]]) -> None:
        self.states = states
        self._places = places

    def forget(self, over_P: NDArray[np.bool_]) -> None:
        """Begin anew in these places, whose episodes are over."""
        for name, state in self.states.items():
            if state is not None:
                state.forget(over_P[self._places[name]])


class TeamPolicy:
    """Acts for all agents of worlds, each by its policy: takes and returns values by policy."""

    def __init__(self, policies: Mapping[str, ActingPolicy]) -> None:
        self.policies = dict(policies)

    def begin(self, environments: VectorEnv[Any, Any, Any], *, seed: int) -> Any:
        """Prepare for these environments: a ConfigError if their policies or spaces differ."""
        inner = environments.unwrapped
        if not isinstance(inner, TeamVector) or inner.parts.keys() != self.policies.keys():
            theirs = ", ".join(inner.parts) if isinstance(inner, TeamVector) else "one policy"
            raise ConfigError(
                f"these are the policies {', '.join(self.policies)}, and the environment is for {theirs}. Give one "
                "with the same environment.policies."
            )
        states = {
            name: policy.begin(inner.parts[name], seed=seed + number)
            for number, (name, policy) in enumerate(self.policies.items())
        }
        return TeamState(states, inner.places)

    def act_batch(self, observations: Any, *, state: Any = None) -> dict[str, Any]:
        """Every policy's actions."""
        return {
            name: policy.act_batch(observations[name], state=state.states[name])
            for name, policy in self.policies.items()
        }

    def save(self, folder: Path) -> None:
        """Write every policy into a folder of its name; then their names."""
        for name, policy in self.policies.items():
            assert isinstance(policy, ControlPolicy)
            (folder / name).mkdir(parents=True, exist_ok=True)
            policy.save(folder / name)
        write(folder / SEVERAL, canonical_json({"policies": [*self.policies]}))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The policies saved in this folder; an ArtifactError if one is missing or incomplete."""
        return cls({name: ControlPolicy.load(folder / name) for name in _names(folder)})


def load_acting(folder: Path) -> ControlPolicy | TeamPolicy:
    """The policy in this folder, or all of several."""
    return TeamPolicy.load(folder) if (folder / SEVERAL).is_file() else ControlPolicy.load(folder)


def load_each(folder: Path) -> dict[Path, ControlPolicy]:
    """The policy in this folder, or each of several, by its own folder."""
    if not (folder / SEVERAL).is_file():
        return {folder: ControlPolicy.load(folder)}
    return {folder / name: ControlPolicy.load(folder / name) for name in _names(folder)}


def _names(folder: Path) -> list[str]:
    try:
        names: list[str] = json.loads((folder / SEVERAL).read_bytes())["policies"]
    except (OSError, ValueError, KeyError) as error:
        raise load_error(folder, f"{SEVERAL} cannot be read: {error}") from error
    return names
