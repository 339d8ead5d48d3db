"""A runner's result: arrays of steps, and the episodes that ended in them.

Axes: `_T` steps, `_N` environments.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from ray.rllib.utils.metrics import EPISODE_LEN_MEAN, EPISODE_RETURN_MAX, EPISODE_RETURN_MEAN, EPISODE_RETURN_MIN

WINDOW = 100
"""Episodes over which a mean return is reported, as usual in the field."""


class Episode(NamedTuple):
    """An episode that terminated or was truncated; one cut short by a reset does not count."""

    reward: float
    steps: int
    parts: tuple[float, ...] = ()
    """Its return by objective, if there are several; `reward` is then weighted by the episode's preference."""
    preference: tuple[float, ...] = ()
    success: float | None = None
    """`info["is_success"]` of its last step, from 0 to 1; None if there was none."""

    @classmethod
    def of(cls, earned: Any, steps: int) -> "Episode":
        """An episode that earned a number, or one for each objective."""
        return cls(float(earned.sum()), steps, tuple(earned.tolist()) if earned.ndim else ())


@dataclass(frozen=True, slots=True)
class Rollout:
    """`T` steps of `N` environments. A step that only reset an environment is not `valid`: it has no action."""

    seen: NDArray[Any]
    """`[T + 1, N, …]`: the network's input before every step, and after the last one."""
    actions: NDArray[Any]
    """`[T, N]` or `[T, N, D]`, as sampled: before clipping to bounds, and counted from 0."""
    inputs: NDArray[np.float32]
    """`[T, N, I]`: the inputs of the action distribution."""
    rewards: NDArray[np.float32]
    """`[T, N]`, or `[T, N, H]` of several objectives."""
    terminated: NDArray[np.bool_]
    ended: NDArray[np.bool_]
    """Terminated or truncated. The observation after such a step is the episode's last one."""
    valid: NDArray[np.bool_]
    discounted: NDArray[np.float32] | None
    """Discounted return of every environment at every step, if rewards are normalised by its standard deviation."""
    episodes: tuple[Episode, ...]
    route: tuple[int, str] = (0, "")
    """The runner, and the id of its uninterrupted sequence: rollouts of one route follow each other step by step."""
    state: NDArray[np.float32] | None = None
    """`[1, N, S]`: the state of the policy's memory before the first step, if it has one."""

    def env_steps(self) -> int:
        """Steps that an environment took."""
        return int(self.valid.sum())

    agent_steps = env_steps

    def with_success(self, successes: Mapping[int, Any]) -> "Rollout":
        """The rollout with the success of every episode whose last step told one, by step and environment."""
        told = [
            episode._replace(success=float(successes[t][n])) if t in successes else episode
            for episode, (t, n) in zip(self.episodes, np.argwhere(self.ended), strict=True)
        ]
        return replace(self, episodes=tuple(told))

    def split(self, parts: int) -> list["Rollout"]:
        """The same steps split by environments; the first part has the episodes."""

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
    """The latest episodes of all runners, in the order in which they ended."""

    def __init__(self) -> None:
        self.latest: deque[Episode] = deque(maxlen=WINDOW)
        """Oldest first."""

    def observe(self, rollouts: Iterable[Rollout]) -> None:
        """Add the episodes that ended."""
        for rollout in rollouts:
            self.latest.extend(rollout.episodes)

    def mean_of(self, episodes: int) -> float | None:
        """Mean reward of the latest `episodes`; None until there are that many."""
        if len(self.latest) < episodes:
            return None
        return float(np.mean([episode.reward for episode in list(self.latest)[-episodes:]]))

    def success_of(self, episodes: int) -> float | None:
        """Mean success of the latest `episodes`; None until there were as many, or where one of them has none."""
        latest = [episode.success for episode in list(self.latest)[-episodes:]]
        told = [success for success in latest if success is not None]
        return float(np.mean(told)) if len(told) == len(latest) >= episodes else None

    def means(self) -> tuple[float, float] | None:
        """Mean reward and steps of the latest episodes; None before the first one ended."""
        if not self.latest:
            return None
        latest = self.latest
        return float(np.mean([each.reward for each in latest])), float(np.mean([each.steps for each in latest]))

    def rllib_results(self) -> dict[str, float]:
        """Return and length of the latest episodes by RLlib's names; empty before the first one ended."""
        means = self.means()
        if means is None:
            return {}
        returns = [episode.reward for episode in self.latest]
        found = {EPISODE_RETURN_MEAN: means[0], EPISODE_LEN_MEAN: means[1]}
        return found | {EPISODE_RETURN_MIN: min(returns), EPISODE_RETURN_MAX: max(returns)}

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume, as JSON."""
        return {"latest": [list(episode) for episode in self.latest]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from `state`."""
        self.latest = deque((_episode(*told) for told in state["latest"]), maxlen=WINDOW)


def _episode(
    reward: float,
    steps: int,
    parts: Iterable[float] = (),
    preference: Iterable[float] = (),
    success: float | None = None,
) -> Episode:
    return Episode(reward, steps, tuple(parts), tuple(preference), success)
