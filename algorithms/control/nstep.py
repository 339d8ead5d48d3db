"""From rollouts to n-step transitions: n rewards as one, and the observation after them.

Axes: `_M` rows of steps, `_N` environments, `_S` steps.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loomrl.algorithms.control.rollout import Rollout

Rows = dict[str, NDArray[Any]]


class NStep:
    """Steps with the discounted rewards of the next `n`; those at the end wait for the runner's next rollout.

    Waiting steps are dropped if their runner restarts its episodes: their continuation is unknown.
    """

    def __init__(self, n: int, gamma: float, *, share: tuple[int, int] = (0, 1)) -> None:
        """`share`: the learner's rank and the number of learners; each has its part of every runner's environments."""
        self._n = n
        self._gamma = gamma
        self._share = share
        self._waiting: dict[int, tuple[str, Rows]] = {}
        """By runner: its route, and the steps at its end."""

    def __call__(self, rollout: Rollout, rewards: NDArray[np.float32]) -> Rows:
        """Columns of steps: `seen`, `actions`, `rewards`, `after`, and `ahead`, the discount of the value after
        them.
        """
        rows: Rows = {
            "seen": rollout.seen[:-1],
            "after": rollout.seen[1:],
            "actions": rollout.actions,
            "rewards": rewards,
            "terminated": rollout.terminated,
            "ended": rollout.ended,
            "valid": rollout.valid,
        }
        runner, way = rollout.route
        before, kept = self._waiting.get(runner, ("", {}))
        if kept and before == way:
            rows = {name: np.concatenate([kept[name], column]) for name, column in rows.items()}
        whole = max(0, len(rows["rewards"]) - self._n + 1)
        if self._n > 1:
            self._waiting[runner] = way, {name: column[whole:].copy() for name, column in rows.items()}
        return self._sum_steps(rows, whole)

    def _sum_steps(self, rows: Rows, whole: int) -> Rows:
        shape = rows["rewards"][:whole].shape
        total = np.zeros(shape, np.float32)
        alive = np.ones(shape, bool)
        ahead = np.zeros(shape, np.float32)
        after = rows["after"][:whole].copy()
        for k in range(self._n):
            total += np.where(alive, np.float32(self._gamma**k) * rows["rewards"][k : k + whole], 0)
            counts = np.float32(self._gamma ** (k + 1)) * ~rows["terminated"][k : k + whole]
            ahead = np.where(alive, counts, ahead).astype(np.float32)
            after[alive] = rows["after"][k : k + whole][alive]
            alive &= ~rows["ended"][k : k + whole]
        valid = rows["valid"][:whole]
        columns = {"seen": rows["seen"][:whole], "actions": rows["actions"][:whole], "after": after}
        columns |= {"rewards": total, "ahead": ahead}
        return {name: column[valid] for name, column in columns.items()}

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume."""
        return {"waiting": dict(self._waiting), "share": self._share}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`. If the share differs, waiting steps belong to other environments and are dropped."""
        is_ours = tuple(state["share"]) == self._share
        self._waiting = dict(state["waiting"]) if is_ours else {}
