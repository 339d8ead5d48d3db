"""A runner's result: arrays of steps, the episodes that ended in them, and sequences for memories.

Axes: `_T` steps, `_N` environments.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.utils.metrics import EPISODE_LEN_MEAN, EPISODE_RETURN_MAX, EPISODE_RETURN_MEAN, EPISODE_RETURN_MIN
from torch import Tensor

from loomrl.control.distribution import ActionDistribution, Gaussian
from loomrl.control.memory import History
from loomrl.control.space import ActionView
from loomrl.telemetry.metric import Metric

WINDOW = 100
"""Episodes over which a mean return is reported, as usual in the field."""
POLICY_RETURN = "module_episode_returns_mean"
"""RLlib's name for the mean return of one policy's episodes."""


class Episode(NamedTuple):
    """An episode that terminated or was truncated; one cut short by a reset does not count."""

    reward: float
    steps: int
    parts: tuple[float, ...] = ()
    """Its return by objective, if there are several; `reward` is then weighted by the episode's preference."""
    preference: tuple[float, ...] = ()
    success: float | None = None
    """`info["is_success"]` of its last step, from 0 to 1; None if there was none."""
    correct: float | None = None
    """`info["correct"]` of its last step: success by a second check."""

    @property
    def unearned(self) -> float | None:
        """Success beyond what the second check finds; None without one."""
        if self.success is None or self.correct is None:
            return None
        return max(0.0, self.success - self.correct)

    @classmethod
    def of(cls, earned: Any, steps: int) -> "Episode":
        """An episode that earned a number, or one for each objective."""
        return cls(float(earned.sum()), steps, tuple(earned.tolist()) if earned.ndim else ())


class Final(NamedTuple):
    """Last observations of episodes, in a step that already showed the next ones' first."""

    step: int
    places: NDArray[np.intp]
    seen: NDArray[Any]


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
    policy: str = DEFAULT_MODULE_ID
    """The policy that acted."""

    def env_steps(self) -> int:
        """Steps that an environment took."""
        return int(self.valid.sum())

    agent_steps = env_steps

    def with_told(self, told: Mapping[str, Mapping[int, Any]]) -> "Rollout":
        """The rollout with what the last step of every episode told, by field, step and environment; NaN is nothing."""
        episodes = []
        for episode, (t, n) in zip(self.episodes, np.argwhere(self.ended), strict=True):
            values = {name: float(by_step[t][n]) for name, by_step in told.items() if t in by_step}
            known: dict[str, Any] = {name: each for name, each in values.items() if not np.isnan(each)}
            episodes.append(episode._replace(**known))
        return replace(self, episodes=tuple(episodes))

    def with_resets(self, finals: Sequence[Final]) -> "Rollout":
        """The rollout with a row after each end, which shows the last observation and only begins the next episode.

        Environments with fewer ends than others count as truncated before rows that fill them up.
        """
        if not finals:
            return self
        steps, count = self.ended.shape
        each = np.arange(count)
        begun = np.concatenate([np.zeros((1, count), np.int64), np.cumsum(self.ended, axis=0)])
        row_TN = np.arange(steps + 1)[:, None] + begun
        rows = int(row_TN[-1].max())
        step_RN = np.zeros((rows + 1, count), np.int64)
        step_RN[row_TN, each] = np.arange(steps + 1)[:, None]
        step_RN = np.maximum.accumulate(step_RN)
        seen = self.seen[step_RN, each]
        for step, places, shown in finals:
            seen[row_TN[step, places] + 1, places] = shown
        valid = np.zeros((rows, count), bool)
        valid[row_TN[:-1], each] = True
        taken = np.minimum(step_RN[:-1], steps - 1), each
        ended = self.ended[taken] & valid
        filled = np.flatnonzero(row_TN[-1] < rows)
        before = row_TN[-1, filled] - 1, filled
        ended[before] |= valid[before]
        rewards = self.rewards[taken]
        rewards[~valid] = 0.0
        return replace(
            self,
            seen=seen,
            actions=self.actions[taken],
            inputs=self.inputs[taken],
            rewards=rewards,
            terminated=self.terminated[taken] & valid,
            ended=ended,
            valid=valid,
            discounted=None if self.discounted is None else self.discounted[taken],
        )

    def split(self, parts: int) -> list["Rollout"]:
        """The same steps split by environments; the first part has the episodes."""

        def cut(array: NDArray[Any] | None) -> list[Any]:
            return [None] * parts if array is None else np.split(array, parts, axis=1)

        others = "episodes", "route", "policy"
        arrays = {name: cut(getattr(self, name)) for name in self.__slots__ if name not in others}
        return [
            replace(
                self,
                **{name: pieces[part] for name, pieces in arrays.items()},
                episodes=self.episodes if not part else (),
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
    *told: float | None,
) -> Episode:
    return Episode(reward, steps, tuple(parts), tuple(preference), *told)


Table = dict[str, Tensor]
"""Columns of equal length: `seen`, `actions`, and those that an algorithm adds.

A minibatch of sequences has these for the steps with an action, but `seen` for all, `[T · B, …]`; and `acted`, the mask
of the former among the latter, and the parts of their History, `state` and `begins`.
"""


def flatten_observations(rollout: Rollout, device: Any) -> tuple[Tensor, History | None]:
    """All observations of a rollout, `[(T + 1) · N, …]`, and their past if the policy has a memory."""
    seen = torch.from_numpy(rollout.seen).flatten(0, 1).to(device)
    if rollout.state is None:
        return seen, None
    return seen, History(torch.from_numpy(rollout.state[0]).to(device), _begins(rollout).to(device))


def history_in(batch: Table) -> History | None:
    """The past of a minibatch, if it is one of sequences."""
    return History(batch["state"], batch["begins"]) if "state" in batch else None


class Sequences:
    """The steps of rollouts by environment, with their rows in the table of steps that have an action."""

    def __init__(self, rollouts: Sequence[Rollout], device: Any) -> None:
        row = 0
        rows_TN = []
        for rollout in rollouts:
            rows_TN.append(torch.full(rollout.valid.shape, -1))
            rows_TN[-1][torch.from_numpy(rollout.valid)] = torch.arange(row, row + rollout.env_steps())
            row += rollout.env_steps()
        self._row_TN = torch.cat(rows_TN, 1).to(device)
        self._begins_TN = torch.cat([_begins(rollout)[:-1] for rollout in rollouts], 1).to(device)
        self._seen_TN = torch.cat([torch.from_numpy(rollout.seen[:-1]) for rollout in rollouts], 1).to(device)
        states = [torch.from_numpy(rollout.state[0]) for rollout in rollouts if rollout.state is not None]
        self._state_NS = torch.cat(states).to(device)
        self.steps, self.count = self._row_TN.shape

    def dealt(self, table: Table, hands: Iterable[Tensor]) -> Iterator[Table]:
        """A minibatch for each of these choices of environments."""
        for chosen_B in hands:
            row_TB = self._row_TN[:, chosen_B]
            acted_TB = row_TB >= 0
            rows = row_TB[acted_TB]
            yield {name: column[rows] for name, column in table.items() if name != "seen"} | {
                "seen": self._seen_TN[:, chosen_B].flatten(0, 1),
                "acted": acted_TB.flatten(),
                "state": self._state_NS[chosen_B],
                "begins": self._begins_TN[:, chosen_B],
            }


def _begins(rollout: Rollout) -> Tensor:
    """`[T + 1, N]`: true after a step that only reset an environment."""
    valid_TN = torch.from_numpy(rollout.valid)
    return torch.cat([torch.zeros_like(valid_TN[:1]), ~valid_TN])


AT_BOUND = 0.99
"""A squashed action never reaches its bounds, which are -1 and 1."""
LOG_STD_MOST = 2.0
"""The bound of squashed distributions; others never come near."""


def spread_of(rollouts: Sequence[Rollout], kind: ActionView, distribution: ActionDistribution) -> dict[Metric, float]:
    """How real-valued actions lie between their bounds; nothing of choices, and of actions without bounds."""
    if not isinstance(distribution, Gaussian) or not np.isfinite([*kind.low, *kind.high]).all():
        return {}
    low, high = (-1.0, 1.0) if distribution.squashed else (np.array(kind.low), np.array(kind.high))
    half = (high - low) / 2
    edge = half * (AT_BOUND if distribution.squashed else 1.0)
    far_SD = abs(np.concatenate([rollout.actions[rollout.valid] for rollout in rollouts]) - (high + low) / 2)
    log_std_SD = np.concatenate([np.split(rollout.inputs[rollout.valid], 2, -1)[1] for rollout in rollouts])
    if not len(far_SD):
        return {}
    return {
        Metric.POLICY_SATURATED: float((far_SD >= edge).mean()),
        Metric.POLICY_DEVIATION: float((np.exp(log_std_SD.clip(max=LOG_STD_MOST)) / half).mean()),
    }
