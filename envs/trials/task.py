"""Small tasks with settings that a policy has to find out: a bandit, a grid with a hidden goal, a pole."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from loomrl.errors import ConfigError

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Up, to the right, down, to the left: rows and columns."""
STEP_COST = 0.02

Told = tuple[int, float, bool, bool, dict[str, Any]]


class Bandit(gymnasium.Env[int, np.int64]):
    """Arms that pay 1 with probabilities of their own. An episode is one pull."""

    observation_space: spaces.Space[Any] = spaces.Discrete(1)

    def __init__(self, probabilities: Sequence[float]) -> None:
        if not probabilities or not all(0 <= each <= 1 for each in probabilities):
            raise ConfigError(f"probabilities={probabilities}: give one between 0 and 1 for every arm.")
        self._probabilities = list(probabilities)
        self.action_space = spaces.Discrete(len(self._probabilities))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> Told:
        """Pull an arm."""
        return 0, float(self.np_random.random() < self._probabilities[action]), True, False, {}


class GoalGrid(gymnasium.Env[int, np.int64]):
    """A square of cells, one of which is a goal that is not shown: it pays 1 and ends the trial. A trial begins in the
    middle, and a step costs 0.02.

    `turn` quarter turns lie between an action and the direction in which it leads.
    """

    def __init__(self, goal: int, turn: int = 0, size: int = 5) -> None:
        self._size = size
        self._goal = goal
        self._turn = turn
        self._start = size // 2 * size + size // 2
        if not 0 <= goal < size**2 or goal == self._start:
            raise ConfigError(f"goal={goal}: name one of the cells 0 to {size**2 - 1}, other than {self._start}.")
        self.observation_space = spaces.Discrete(size**2)
        self.action_space = spaces.Discrete(len(MOVES))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Begin in the middle."""
        super().reset(seed=seed)
        self._cell = self._start
        return self._cell, {}

    def step(self, action: Any) -> Told:
        """Move by a cell, or stay where a wall is."""
        down, right = MOVES[(int(action) + self._turn) % len(MOVES)]
        row, column = self._cell // self._size + down, self._cell % self._size + right
        if 0 <= row < self._size and 0 <= column < self._size:
            self._cell = row * self._size + column
        is_there = self._cell == self._goal
        return self._cell, float(is_there) - STEP_COST, is_there, False, {}


class Physics(CartPoleEnv):
    """CartPole with another physics; a negative `force_mag` exchanges left and right."""

    def __init__(
        self,
        gravity: float = 9.8,
        masscart: float = 1.0,
        masspole: float = 0.1,
        length: float = 0.5,
        force_mag: float = 10.0,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.gravity = gravity
        self.masscart = masscart
        self.masspole = masspole
        self.length = length
        self.force_mag = force_mag
        self.total_mass = masspole + masscart
        self.polemass_length = masspole * length
