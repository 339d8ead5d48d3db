"""Episodes on record: what a policy saw and did, what it was paid, and how likely it was to do so.

Axes: `_T` steps of an episode, `_S` steps of all episodes, `_N` actions.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loomrl.control.space import Acts, Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Logged:
    """An episode. Observations are a network's input, actions as a policy samples them: counted from 0, not scaled."""

    seen: Array
    """`[T + 1, …]`: before every step, and after the last one."""
    actions: Array
    """`[T]` or `[T, D]`."""
    rewards_T: NDArray[np.float32]
    terminated: bool
    """False if it was truncated: its last observation has a value."""
    logprobs_T: NDArray[np.float32] | None = None
    """Log-probability of each action under the policy that took it; None if it is unknown."""

    def __len__(self) -> int:
        return len(self.rewards_T)


def taken(kind: Acts) -> Callable[[Array], Array]:
    """From the environment's actions to those of a policy that is not squashed: the inverse of `translator`."""
    if kind.kind == "discrete":
        return lambda actions_N: np.asarray(actions_N, np.int64).reshape(-1) - kind.starts[0]
    if kind.kind == "box":
        return lambda actions_N: np.asarray(actions_N, np.float32).reshape(len(actions_N), kind.count)
    starts = np.array(kind.starts or 0)
    return lambda actions_N: np.asarray(actions_N, np.int64).reshape(len(actions_N), kind.count) - starts


def steps_of(episodes: Sequence[Logged], *, gamma: float) -> dict[str, Array]:
    """All steps as columns: `seen`, `after`, `actions`, `rewards`, and `ahead`, the discount of what follows."""
    ahead = [np.full(len(one), gamma, np.float32) for one in episodes]
    for discount_T, one in zip(ahead, episodes, strict=True):
        discount_T[-1] *= not one.terminated
    return {
        "seen": np.concatenate([one.seen[:-1] for one in episodes]),
        "after": np.concatenate([one.seen[1:] for one in episodes]),
        "actions": np.concatenate([one.actions for one in episodes]),
        "rewards": np.concatenate([one.rewards_T for one in episodes]),
        "ahead": np.concatenate(ahead),
    }


def deviation_of_returns(episodes: Sequence[Logged], *, gamma: float) -> float:
    """Standard deviation of the discounted sum of rewards so far, over all steps; what rewards are divided by."""
    sums: list[float] = []
    for one in episodes:
        so_far = 0.0
        for reward in one.rewards_T.tolist():
            so_far = so_far * gamma + reward
            sums.append(so_far)
    return float(np.std(sums))


def digest(episodes: Sequence[Logged]) -> str:
    """SHA-256 of all that is learnt from."""
    whole = hashlib.sha256()
    for one in episodes:
        for column in (one.seen, one.actions, one.rewards_T):
            whole.update(np.ascontiguousarray(column).tobytes())
        whole.update(bytes([one.terminated]))
    return whole.hexdigest()


def summary(episodes: Sequence[Logged]) -> Mapping[str, Any]:
    """Episodes, steps, and the mean return, as JSON."""
    returns = [float(one.rewards_T.sum(dtype=np.float64)) for one in episodes]
    return {
        "episodes": len(episodes),
        "steps": sum(map(len, episodes)),
        "return": float(np.mean(returns)),
        "least": min(returns),
        "greatest": max(returns),
        "with_logprobs": all(one.logprobs_T is not None for one in episodes),
    }
