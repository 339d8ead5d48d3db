"""Many teams as one Gymnasium vector environment, without one Python object per team.

Axes: `_M` worlds, `_N` agents.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from loomrl.envs.teamwork.dynamics import Parts, Teams, completion
from loomrl.envs.teamwork.observation import Seen, action_space, observation_space, observe
from loomrl.envs.teamwork.settings import team_settings
from loomrl.errors import ConfigError, PolicyError


class TeamVector(VectorEnv[Seen, NDArray[Any], NDArray[Any]]):
    """`num_envs` teams. The step after an end ignores its actions and begins the next episode, with reward 0.

    World i of a seed is the single environment of `seed + i`, step by step, independent of the others.
    `info["parts"]` has what the reward is made of, `[M]` each; `info["credit"]` who earned it, `[M, N]`.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}  # noqa: RUF012 - Gymnasium's declaration

    def __init__(self, num_envs: int = 1, **settings: Any) -> None:
        self.settings = team_settings(**settings)
        self.num_envs = num_envs
        self.single_observation_space = observation_space(self.settings)
        self.single_action_space = action_space(self.settings.agents)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._generators = [seeding.np_random()[0] for _ in range(num_envs)]
        self.teams = Teams(self.settings, self._generators)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """Begin all episodes; from one seed, world i gets `seed + i`, and without one its chance goes on."""
        for world, one in enumerate(self._seeds(seed)):
            if one is not None:
                self._generators[world] = seeding.np_random(one)[0]
        self.teams = Teams(self.settings, self._generators)
        return observe(self.teams), {}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Seen, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Act in every world, or begin anew in all of them: they are over together."""
        parts = self.teams.no_parts()
        if self.teams.is_over:
            self.teams = Teams(self.settings, self._generators)
        else:
            parts = self.teams.advance(actions)
        info = split_parts(parts)
        if self.teams.is_over:
            info["is_success"] = completion(self.teams.tally)
        truncated_M = np.full(self.num_envs, self.teams.is_over)
        return observe(self.teams), info["credit"].sum(1), np.zeros_like(truncated_M), truncated_M, info

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None or isinstance(seed, int):
            return [None if seed is None else seed + world for world in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ConfigError(f"seed={seed!r}: give {self.num_envs} seeds, one per environment, or a single one.")
        return seed


def split_parts(parts: Parts) -> dict[str, Any]:
    """Parts of a step's reward: `parts` by name, `[M]`, and `credit` by agent, `[M, N]`. Both sum to it."""
    return {"parts": {name: part_MN.sum(1) for name, part_MN in parts.items()}, "credit": sum(parts.values())}


class TeamEnvironment(Env[Seen, NDArray[Any]]):
    """The rules for a single world. An episode is truncated after `steps`, and never terminates."""

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's declaration

    def __init__(self, **settings: Any) -> None:
        self.settings = team_settings(**settings)
        self.observation_space = observation_space(self.settings)
        self.action_space = action_space(self.settings.agents)
        self.teams = Teams(self.settings, [self.np_random])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """A new team, and a new line of tasks."""
        super().reset(seed=seed)
        self.teams = Teams(self.settings, [self.np_random])
        return observe(self.teams)[0], {}

    def step(self, action: NDArray[Any]) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """One step; `info["parts"]` has what the reward is made of, `info["credit"]` what each agent earned."""
        if self.teams.is_over:
            raise PolicyError(
                f"step {self.teams.step + 1} of {self.settings.steps}: the episode is over, call reset()."
            )
        info = split_parts(self.teams.advance(np.asarray(action)[None]))
        credit_N = info["credit"][0]
        parts = {name: float(part_M[0]) for name, part_M in info["parts"].items()}
        told_here = {"parts": parts, "credit": credit_N}
        if self.teams.is_over:
            told_here["is_success"] = float(completion(self.teams.tally)[0])
        return observe(self.teams)[0], float(credit_N.sum()), False, self.teams.is_over, told_here
