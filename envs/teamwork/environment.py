"""One team as a Gymnasium environment: a central policy acts for all agents."""

from typing import Any

import numpy as np
from gymnasium import Env
from numpy.typing import NDArray

from loomrl.envs.teamwork.dynamics import Teams, completion
from loomrl.envs.teamwork.observation import Seen, action_space, observation_space, observe
from loomrl.envs.teamwork.settings import team_settings
from loomrl.envs.teamwork.vector import told
from loomrl.errors import PolicyError


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
        info = told(self.teams.advance(np.asarray(action)[None]))
        credit_N = info["credit"][0]
        parts = {name: float(part_M[0]) for name, part_M in info["parts"].items()}
        told_here = {"parts": parts, "credit": credit_N}
        if self.teams.is_over:
            told_here["is_success"] = float(completion(self.teams.tally)[0])
        return observe(self.teams)[0], float(credit_N.sum()), False, self.teams.is_over, told_here
