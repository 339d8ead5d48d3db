"""Worlds of Gymnasium that a setting opens."""

import random
from typing import Any, ClassVar

import gymnasium
from gymnasium import spaces

World = gymnasium.Env[Any, Any]


class Ring(gymnasium.Env[Any, Any]):
    """A race track of two lanes, where every other cell has a barrier in one of them. A lap is worth 1."""

    laps = 5
    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, level: int, seed: int, back: float) -> None:
        rng = random.Random(f"ring {level} {seed}")
        self.size = 8 + level
        self.barriers = {cell: rng.randrange(2) for cell in range(2, self.size - 1, 2)}
        self.back = back
        self.action_space = spaces.Discrete(4)
        self.observation_space = spaces.MultiDiscrete([self.size, 2, 3])

    def _look(self) -> Any:
        return [self.cell, self.lane, self.barriers.get((self.cell + 1) % self.size, 2)]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.cell, self.lane, self.earned = 0, 0, 0.0
        return self._look(), {}

    def step(self, action: Any) -> Any:
        before = self.cell
        if action < 2:
            self.cell = (self.cell + (1 if action == 0 else -1)) % self.size
        else:
            self.lane = int(action) - 2
        gained = {(self.size - 1, 0): 1.0, (0, self.size - 1): self.back}.get((before, self.cell), 0.0)
        self.earned += gained
        crashed = self.barriers.get(self.cell) == self.lane
        return self._look(), gained, crashed or self.earned >= self.laps, False, {}


def city_ring(level: int, seed: int) -> World:
    return gymnasium.wrappers.TimeLimit(Ring(level, seed, 0.0), 2 * Ring.laps * (8 + level))


def forest_ring(level: int, seed: int) -> World:
    return gymnasium.wrappers.TimeLimit(Ring(level, seed, -1.0), 2 * Ring.laps * (8 + level))


def show_ring(env: World, observation: Any) -> str:
    cell, lane, ahead = observation
    barrier = ("barrier left", "barrier right", "free")[ahead]
    return f"Cell {cell}, {('left', 'right')[lane]} lane. The next cell: {barrier}."


def drive(env: Any) -> int:
    world = env.unwrapped
    ahead = world.barriers.get((world.cell + 1) % world.size)
    if ahead == world.lane:
        return 3 - world.lane
    return 0


class Postman(gymnasium.Env[Any, Any]):
    """Parcels to be carried one by one from an office to a house at the other end of a street of two sides."""

    parcels = 3
    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, level: int, seed: int, taken: float) -> None:
        rng = random.Random(f"street {level} {seed}")
        self.far = rng.randint(4, 5) + level
        self.taken = taken
        self.action_space = spaces.Discrete(4)
        self.observation_space = spaces.MultiDiscrete([self.far + 1, 2, 4, 4])

    def _look(self) -> Any:
        return [self.place, int(self.carries), self.office, self.house]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.carries, self.office, self.house, self.earned = 0, False, self.parcels, 0, 0.0
        return self._look(), {}

    def step(self, action: Any) -> Any:
        gained = 0.0
        if action < 2:
            self.place = min(max(self.place + (1 if action == 0 else -1), 0), self.far)
        elif action == 2 and not self.carries:
            if self.place == 0 and self.office:
                self.office, self.carries = self.office - 1, True
            elif self.place == self.far and self.house:
                self.house, self.carries, gained = self.house - 1, True, self.taken
        elif action == 3 and self.carries and self.place in (0, self.far):
            self.carries = False
            if self.place == self.far:
                self.house, gained = self.house + 1, 1.0
            else:
                self.office += 1
        self.earned += gained
        return self._look(), gained, self.earned >= self.parcels, False, {}


def main_street(level: int, seed: int) -> World:
    return gymnasium.wrappers.TimeLimit(Postman(level, seed, -1.0), 6 * (8 + level))


def high_street(level: int, seed: int) -> World:
    return gymnasium.wrappers.TimeLimit(Postman(level, seed, 0.0), 6 * (8 + level))


def show_street(env: Any, observation: Any) -> str:
    place, carries, office, house = observation
    hands = "a parcel in your hands" if carries else "empty hands"
    return f"Place {place} of {env.unwrapped.far}, {hands}. Parcels: {office} in the office, {house} in the house."


def deliver(env: Any) -> int:
    world = env.unwrapped
    if world.carries:
        return 3 if world.place == world.far else 0
    return 2 if world.place == 0 else 1
