"""Memories that outlive an episode: each group begins with one snapshot, and leaves one.

All attempts of a group carry the same snapshot in their task, so they are comparable, and each can be played again from
its trajectory alone. What an attempt leaves is in its trajectory's `extra`. Of a group, one attempt's memory is
committed: that of the most successful one, the first of them where several are; of a group without any success, none.
The same holds where attempts are made one by one, as in evaluations and by hand: each is a group of its own.
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
"""A memory as JSON; what is in it is the environment's own affair."""


def with_memory(task: Task, snapshot: Snapshot | None) -> Task:
    """The task, to begin with this memory; None leaves it to the environment."""
    return task if snapshot is None else replace(task, parameters={**task.parameters, MEMORY: snapshot})


def remembers(environment: BaseEnvironment) -> bool:
    """Whether attempts in it may leave a memory."""
    return type(environment).memory is not BaseEnvironment.memory


class MemoryBank:
    """The newest snapshot of every family that has one."""

    def __init__(self) -> None:
        self._snapshots: dict[str, Snapshot] = {}

    def snapshot(self, family: str) -> Snapshot | None:
        """What a group of this family, named by its key, begins with."""
        return self._snapshots.get(family)

    def commit(self, group: Group) -> bool:
        """Keep what the best attempt of a group left; whether there was anything to keep."""
        leaving = [attempt for attempt in group.usable if MEMORY in attempt.extra and attempt.reward.success > 0]
        if not leaving:
            return False
        best = max(leaving, key=lambda attempt: attempt.reward.success)
        self.keep(best.task, best.extra[MEMORY])
        return True

    def keep(self, task: Task, snapshot: Snapshot) -> None:
        """Let later tasks of this one's family begin with this."""
        self._snapshots[family_key(task)] = snapshot

    def given(self, task: Task) -> Task:
        """The task with its family's newest snapshot, unless it has a memory of its own or there is none."""
        return task if MEMORY in task.parameters else with_memory(task, self.snapshot(family_key(task)))

    def state_dict(self) -> dict[str, Any]:
        """All snapshots, as JSON."""
        return dict(self._snapshots)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self._snapshots = dict(state)
