"""What a runner brings home: arrays of steps, and the episodes that ended in them.

Axes: `_T` steps, `_N` environments.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from ray.rllib.utils.metrics import EPISODE_LEN_MEAN, EPISODE_RETURN_MAX, EPISODE_RETURN_MEAN, EPISODE_RETURN_MIN

WINDOW = 100
"""Episodes over which a return is told, as the field does."""


class Episode(NamedTuple):
    """One that ended by itself or at its limit; what a reset cut short is none."""

    reward: float
    steps: int
    parts: tuple[float, ...] = ()
    """Its return by objective, where there are several; `reward` is then weighed by the episode's preference."""
    preference: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Rollout:
    """`T` steps of `N` environments. A step that only began a new episode is not `valid`: it has no action."""

    seen: NDArray[Any]
    """`[T + 1, N, …]`: what the network saw before every step, and after the last one."""
    actions: NDArray[Any]
    """`[T, N]` or `[T, N, D]`, as the policy drew them: before bounds, and counted from 0."""
    inputs: NDArray[np.float32]
    """`[T, N, I]`: the numbers that the policy gave their distribution."""
    rewards: NDArray[np.float32]
    """`[T, N]`, or `[T, N, H]` of several objectives."""
    terminated: NDArray[np.bool_]
    ended: NDArray[np.bool_]
    """Terminated or truncated. The observation after such a step is the episode's last one."""
    valid: NDArray[np.bool_]
    discounted: NDArray[np.float32] | None
    """Discounted return of every environment at every step, where rewards are normalised by its deviation."""
    episodes: tuple[Episode, ...]
    route: tuple[int, str] = (0, "")
    """The runner, and its way since it last began anew: rollouts of one way follow each other step by step."""

    def env_steps(self) -> int:
        """Steps that an environment took."""
        return int(self.valid.sum())

    agent_steps = env_steps

    def split(self, parts: int) -> list["Rollout"]:
        """The same steps of disjoint environments; the first part tells the episodes."""

        def cut(array: NDArray[Any] | None) -> list[Any]:
            return [None] * parts if array is None else np.split(array, parts, axis=1)

        arrays = {name: cut(getattr(self, name)) for name in self.__slots__ if name not in ("episodes", "route")}
        return [
            Rollout(
                **{name: pieces[part] for name, pieces in arrays.items()},
                episodes=self.episodes if not part else (),
                route=self.route,
            )
            for part in range(parts)
        ]


class Window:
    """The latest episodes, in the order in which they ended, whoever played them."""

    def __init__(self) -> None:
        self.latest: deque[Episode] = deque(maxlen=WINDOW)
        """The last one ended last."""

    def observe(self, rollouts: Iterable[Rollout]) -> None:
        """Take in what ended."""
        for rollout in rollouts:
            self.latest.extend(rollout.episodes)

    def mean_of(self, episodes: int) -> float | None:
        """Mean reward of the latest `episodes`; None until there were as many."""
        if len(self.latest) < episodes:
            return None
        return float(np.mean([episode.reward for episode in list(self.latest)[-episodes:]]))

    def means(self) -> tuple[float, float] | None:
        """Mean reward and steps of the latest episodes; None before the first one ended."""
        if not self.latest:
            return None
        latest = self.latest
        return float(np.mean([each.reward for each in latest])), float(np.mean([each.steps for each in latest]))

    def told(self) -> dict[str, float]:
        """Return and length of the latest episodes by RLlib's names; nothing before the first one ended."""
        means = self.means()
        if means is None:
            return {}
        returns = [episode.reward for episode in self.latest]
        found = {EPISODE_RETURN_MEAN: means[0], EPISODE_LEN_MEAN: means[1]}
        return found | {EPISODE_RETURN_MIN: min(returns), EPISODE_RETURN_MAX: max(returns)}

    def state_dict(self) -> dict[str, Any]:
        """Everything a restart needs, as JSON."""
        return {"latest": [list(episode) for episode in self.latest]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.latest = deque((_episode(*told) for told in state["latest"]), maxlen=WINDOW)


def _episode(reward: float, steps: int, parts: Iterable[float] = (), preference: Iterable[float] = ()) -> Episode:
    return Episode(reward, steps, tuple(parts), tuple(preference))
