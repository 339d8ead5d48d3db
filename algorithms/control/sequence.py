"""Rollouts as sequences, for policies with a memory: a minibatch has all steps of some environments, in order.

Axes: `_T` steps, `_N` environments, `_B` those of a minibatch.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from loomrl.algorithms.control.rollout import Rollout
from loomrl.control.memory import History

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
