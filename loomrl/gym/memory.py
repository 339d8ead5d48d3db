"""Memories that outlive an episode: each group begins with one snapshot, and leaves one.

All attempts of a group carry the same snapshot in their task, so they are comparable, and each can be replayed from its
trajectory alone. The memory that an attempt leaves is in its trajectory's `extra`. One attempt's memory is committed
per group: that of the most successful, the first in a tie; without any success, none. Attempts made one by one, as in
evaluations and by hand, are groups of one.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from loomrl.gym.base import BaseEnvironment
from loomrl.gym.curriculum import family_key
from loomrl.types import Group, Task

MEMORY = "memory"
"""The key of a memory, in a task's parameters as in a trajectory's `extra`."""

Snapshot = Mapping[str, Any]
"""A memory as JSON; its content is up to the environment."""


def with_memory(task: Task, snapshot: Snapshot | None) -> Task:
    """The task with this initial memory; None leaves it unchanged."""
    return task if snapshot is None else replace(task, parameters={**task.parameters, MEMORY: snapshot})


def remembers(environment: BaseEnvironment) -> bool:
    """True if attempts in this environment may leave a memory."""
    return type(environment).memory is not BaseEnvironment.memory


class MemoryBank:
    """The newest snapshot of every family that has one."""

    def __init__(self) -> None:
        self._snapshots: dict[str, Snapshot] = {}

    def snapshot(self, family: str) -> Snapshot | None:
        """The initial memory of a group of this family, by key."""
        return self._snapshots.get(family)

    def commit(self, group: Group) -> bool:
        """Keep the best attempt's memory of a group; True if there was one."""
        leaving = [attempt for attempt in group.usable if MEMORY in attempt.extra and attempt.reward.success > 0]
        if not leaving:
            return False
        # One attempt is committed, not a mixture: later attempts stay comparable and can be replayed.
        best = max(leaving, key=lambda attempt: attempt.reward.success)
        self.keep(best.task, best.extra[MEMORY])
        return True

    def keep(self, task: Task, snapshot: Snapshot) -> None:
        """Make this the initial memory of later tasks of the same family."""
        self._snapshots[family_key(task)] = snapshot

    def attach(self, task: Task) -> Task:
        """The task with its family's newest snapshot, unless it already has a memory or there is none."""
        return task if MEMORY in task.parameters else with_memory(task, self.snapshot(family_key(task)))

    def state_dict(self) -> dict[str, Any]:
        """All snapshots, as JSON."""
        return dict(self._snapshots)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        self._snapshots = dict(state)
