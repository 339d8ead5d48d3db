"""Several objectives with a preference among them, which is part of the observation and drawn for every episode.

Axes: `_G` objectives that a preference weights, `_H` those that the environment pays, equal unless they form a tree.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import comb
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import PassiveEnvChecker
from numpy.typing import ArrayLike, NDArray

from loomrl.config.weave import Chebyshev, Objectives, Weave, Woven
from loomrl.control.space import seen
from loomrl.errors import ConfigError, EpisodeError

Floats = NDArray[np.float32]

EARNED = "earned"
PREFERENCE = "preference"
SEEN = "seen"
"""Parts of the observation, in the order in which they are flattened."""
SALT = 0x3EA7E
"""Mixed into an environment's seed, so that preferences are independent of its own randomness."""
NEARLY = 1e-4


def check_preference(preference: ArrayLike, count: int) -> Floats:
    """Weights of `count` objectives as an array; a ConfigError if they are invalid."""
    try:
        given = np.asarray(preference, np.float64)
    except (TypeError, ValueError):
        given = np.empty(())
    shown = f"preference={preference!r:.80}"
    if given.shape != (count,):
        raise ConfigError(f"{shown}: {count} weights are needed, one for each objective.")
    if not np.isfinite(given).all() or (given < 0).any():
        raise ConfigError(f"{shown}: weights are finite and not negative.")
    if abs(given.sum() - 1) > NEARLY:
        raise ConfigError(f"{shown}: the weights sum to {given.sum():g}, and must sum to 1.")
    return given.astype(np.float32)


@dataclass(frozen=True, slots=True)
class Simplex:
    """Uniform over all preferences, or over one of `parts` regions of equal size, cut along the first objective."""

    count: int
    part: int = 0
    parts: int = 1

    def draw(self, chance: np.random.Generator) -> Floats:
        """A preference of this region."""
        if self.count == 1:
            return np.ones(1, np.float32)
        share = (self.part + chance.random()) / self.parts
        first = 1 - (1 - share) ** (1 / (self.count - 1))
        rest = (1 - first) * chance.dirichlet(np.ones(self.count - 1))
        return np.array([first, *rest], np.float32)


@dataclass(frozen=True, slots=True)
class Always:
    """One preference."""

    weights: tuple[float, ...]

    def draw(self, chance: np.random.Generator) -> Floats:
        """The preference, always the same."""
        return np.array(self.weights, np.float32)


@dataclass(frozen=True, slots=True)
class Leaning:
    """A share of the episodes has one preference; the others are drawn from a region."""

    towards: tuple[float, ...]
    share: float
    region: Simplex

    def draw(self, chance: np.random.Generator) -> Floats:
        """The preference that a share of the episodes has, or one from the region."""
        return np.array(self.towards, np.float32) if chance.random() < self.share else self.region.draw(chance)


Source = Simplex | Always | Leaning
"""A source of episodes' preferences."""


def group_returns(returns_H: ArrayLike, objectives: Objectives) -> NDArray[np.float64]:
    """Rewards grouped as a preference weights them; leading axes may be any."""
    found: NDArray[np.float64] = np.asarray(returns_H, np.float64) @ np.array(objectives.shares_GH).T
    return found


@dataclass(frozen=True, slots=True)
class Steering:
    """The settings of preferences that concern environments."""

    objectives: Objectives
    gamma: float
    earns: bool
    """True if returns up to now are part of the observation."""
    source: Source

    @classmethod
    def of(cls, settings: Weave, *, source: Source | None = None) -> "Steering":
        """From the settings, with preferences from `source`, or else from all preferences or the fixed one."""
        tree = settings.tree
        earns = isinstance(settings.scalarisation, Chebyshev)
        return cls(tree, settings.gamma, earns, source or open_preferences(settings))


def open_preferences(settings: Woven, *, part: int = 0, parts: int = 1) -> Source:
    """The initial source of preferences: one of `parts` regions, or the fixed one."""
    fixed = settings.preference.always
    return Always(fixed) if fixed is not None else Simplex(len(settings.objectives), part, parts)


class Preferred(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds the episode's preference to the observation, and pays a vector: one number per objective.

    The vector is the environment's own reward, or is made of its parts in `info["parts"]`.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], steering: Steering) -> None:
        super().__init__(_skip_checks(env))
        if seen(env.observation_space).kind == "pixels":
            raise ConfigError(
                "objectives: a preference cannot be shown beside pictures yet. Show numbers, or leave out objectives."
            )
        self.steering = steering
        tree = steering.objectives
        count = len(tree.names)
        self._is_vector = _has_vector(env, tree.leaves)
        self._shares_GH = None if tree.is_flat else np.array(tree.shares_GH)
        self._chance = np.random.default_rng()
        self._preference = np.full(count, 1 / count, np.float32)
        self._earned = np.zeros(count)
        self._share = 1.0
        parts = {PREFERENCE: spaces.Box(0, 1, (count,)), SEEN: env.observation_space}
        if steering.earns:
            parts[EARNED] = spaces.Box(-np.inf, np.inf, (count,))
        self.observation_space = spaces.Dict(parts)

    def steer(self, source: Source) -> None:
        """Draw new episodes' preferences from this source."""
        self.steering = replace(self.steering, source=source)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with a new preference."""
        if seed is not None:
            self._chance = np.random.default_rng([seed, SALT])
        self._preference = self.steering.source.draw(self._chance)
        self._earned = np.zeros(len(self._preference))
        self._share = 1.0
        observation, info = self.env.reset(seed=seed, options=options)
        return self._add_preference(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step, with the reward of each objective."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        vector = np.asarray(reward, np.float64) if self._is_vector else self._parts(info)
        self._earned += self._share * (vector if self._shares_GH is None else self._shares_GH @ vector)
        self._share *= self.steering.gamma
        return self._add_preference(observation), vector, bool(terminated), bool(truncated), info

    def _parts(self, info: Mapping[str, Any]) -> NDArray[np.float64]:
        told = info.get("parts", {})
        names = self.steering.objectives.leaves
        missing = [name for name in names if name not in told]
        if missing:
            known = ", ".join(map(str, told)) or "none"
            raise EpisodeError(f'no part of the reward is named {", ".join(missing)} in info["parts"]; known: {known}.')
        return np.array([told[name] for name in names], np.float64)

    def _add_preference(self, observation: Any) -> dict[str, Any]:
        shown = {PREFERENCE: self._preference, SEEN: observation}
        if self.steering.earns:
            shown[EARNED] = self._earned.astype(np.float32)
        return shown


class VectorRewards(SyncVectorEnv):
    """Environments one after the other, with vector rewards."""

    def __init__(self, makers: Sequence[Callable[[], Preferred]]) -> None:
        with warnings.catch_warnings():  # of bounds of 64 bits, one for each environment
            warnings.filterwarnings("ignore", message=".*precision lowered by casting")
            super().__init__(makers)
        first: Any = self.envs[0]
        self.pays: tuple[str, ...] = first.steering.objectives.leaves
        """Names of the objectives."""
        self._rewards: Any = np.zeros((self.num_envs, len(self.pays)))

    def steer(self, source: Source) -> None:
        """Draw the preferences of all new episodes from this source."""
        for env in self.envs:
            env.steer(source)  # type: ignore[attr-defined]


def unfinite(objectives: Sequence[str], rewards: ArrayLike) -> str:
    """The objectives with non-finite numbers in the last axis: ` (objective safety)`, or an empty text."""
    columns = np.asarray(rewards, np.float64).reshape(-1, max(1, len(objectives))).T
    found = [name for name, column in zip(objectives, columns, strict=False) if not np.isfinite(column).all()]
    return f" (objective {', '.join(found)})" if found else ""


def lattice(count: int, most: int) -> NDArray[np.float32]:
    """Preferences among `count` objectives, evenly spread: the corners included, at most `most` in all, `[P, H]`."""
    cuts = 1
    while comb(cuts + count, count - 1) <= most and count > 1:
        cuts += 1
    parts = [part for part in product(range(cuts + 1), repeat=count - 1) if sum(part) <= cuts]
    return np.array([[*part, cuts - sum(part)] for part in parts], np.float32) / np.float32(cuts)


def with_preference(space: spaces.Space[Any], observation: Any, preference: ArrayLike, earned: ArrayLike | None) -> Any:
    """The observation with a preference and returns up to now; a ConfigError if the space has no place for them."""
    if not isinstance(space, spaces.Dict) or not is_steered(space):
        raise ConfigError(f"preference={preference!r:.80}: this policy has one objective, leave the preference out.")
    count = int(np.prod(space[PREFERENCE].shape or ()))
    shown = {PREFERENCE: check_preference(preference, count), SEEN: observation}
    if EARNED in space.spaces:
        shown[EARNED] = np.zeros(count, np.float32) if earned is None else np.asarray(earned, np.float32)
    elif earned is not None:
        raise ConfigError("earned: this policy does not look at returns up to now, leave them out.")
    return shown


def preference_in(shown: Any, count: int, *, earns: bool) -> Any:
    """The preference in a network's input."""
    return shown[..., count : 2 * count] if earns else shown[..., :count]


def returns_in(shown: Any, count: int) -> Any:
    """The returns up to now in a network's input."""
    return shown[..., :count]


def is_steered(space: spaces.Space[Any]) -> bool:
    """True if observations of this space include a preference."""
    return isinstance(space, spaces.Dict) and {PREFERENCE, SEEN} <= space.spaces.keys() <= {EARNED, PREFERENCE, SEEN}


def _has_vector(env: gymnasium.Env[Any, Any], objectives: Sequence[str]) -> bool:
    """True if the environment's own reward is the vector; a ConfigError if it has another length."""
    space = getattr(env.unwrapped, "reward_space", None)
    if space is None:
        return False
    if space.shape != (len(objectives),):
        raise ConfigError(
            f"objectives={list(objectives)}: the environment's rewards are {space}, so name "
            f"{int(np.prod(space.shape))} objectives."
        )
    return True


def _skip_checks(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """The environment without Gymnasium's checker, which rejects vector rewards."""
    outer = env
    while isinstance(outer, gymnasium.Wrapper):
        while isinstance(outer.env, PassiveEnvChecker):
            outer.env = outer.env.env
        outer = outer.env
    return env.env if isinstance(env, PassiveEnvChecker) else env
