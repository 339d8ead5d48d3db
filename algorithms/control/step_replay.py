"""The replay memory of an off-policy algorithm: a ring of steps in contiguous memory, drawn uniformly or by priority.

`NStep` makes the steps from rollouts: n rewards as one, and the observation after them. `sequences` are for a policy
with a memory, which learns from steps in their order.

Axes: `_B` steps that are drawn, `_N` environments.
"""

import mmap
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loomrl.algorithms.control.rollout import Rollout
from loomrl.config.control import Prioritized, Replay
from loomrl.errors import ArtifactError, ConfigError
from loomrl.process import free_memory

GIGABYTE = 2**30
BYTES = 8
"""Bytes of a priority."""
Columns = Mapping[str, tuple[tuple[int, ...], Any]]
"""Name → shape and dtype of one step's entry."""


@dataclass(frozen=True, slots=True)
class ReplaySample:
    """Steps to learn from: their places, importance weights and columns."""

    places_B: NDArray[np.int64]
    weights_B: NDArray[np.float32]
    columns: dict[str, NDArray[Any]]


class Ring:
    """The latest `capacity` entries: steps, or sequences of them. New ones overwrite the oldest."""

    def __init__(self, columns: Columns, settings: Replay, *, seed: int) -> None:
        self.capacity = settings.capacity
        size = sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in columns.values()) * self.capacity
        tree = SumTree.size(self.capacity) if settings.prioritized is not None else 0
        self._file = _room(size, tree, settings)
        self.columns = {name: self._column(shape, kind) for name, (shape, kind) in columns.items()}
        self.steps = 0
        """Total entries ever stored."""
        self._chance = np.random.default_rng(seed)
        self._tree = SumTree(self.capacity, settings.prioritized) if settings.prioritized is not None else None

    def __len__(self) -> int:
        return min(self.steps, self.capacity)

    @property
    def chance(self) -> dict[str, Any]:
        """State of the random generator that draws."""
        return dict(self._chance.bit_generator.state)

    @chance.setter
    def chance(self, state: Mapping[str, Any]) -> None:
        self._chance.bit_generator.state = state

    def _column(self, shape: tuple[int, ...], kind: Any) -> NDArray[Any]:
        whole = (self.capacity, *shape)
        if self._file is None:
            return np.zeros(whole, kind)
        with tempfile.TemporaryFile(dir=self._file) as file:
            file.truncate(max(1, int(np.prod(whole)) * np.dtype(kind).itemsize))
            mapped = mmap.mmap(file.fileno(), 0)
        return np.frombuffer(mapped, kind, count=int(np.prod(whole))).reshape(whole)

    def append(self, steps: Mapping[str, NDArray[Any]]) -> None:
        """Store these entries, in order."""
        count = len(next(iter(steps.values())))
        places = (self.steps + np.arange(count)) % self.capacity
        for name, column in self.columns.items():
            column[places] = steps[name]
        self.steps += count
        if self._tree is not None:
            self._tree.welcome(places)

    def draw(self, count: int) -> ReplaySample:
        """`count` random entries; one can be drawn twice."""
        if self._tree is None:
            places_B = self._chance.integers(len(self), size=count)
            weights_B = np.ones(count, np.float32)
        else:
            places_B, weights_B = self._tree.draw(self._chance.random(count), len(self))
        return ReplaySample(places_B, weights_B, {name: column[places_B] for name, column in self.columns.items()})

    def update_priorities(self, drawn: ReplaySample, errors_B: NDArray[np.floating[Any]]) -> None:
        """Update priorities with the critics' errors on drawn steps."""
        if self._tree is not None:
            self._tree.update(drawn.places_B, errors_B)

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume, with filled places only."""
        count = len(self)
        return {
            "steps": self.steps,
            "capacity": self.capacity,
            "chance": self._chance.bit_generator.state,
            "columns": {name: column[:count].copy() for name, column in self.columns.items()},
            "tree": None if self._tree is None else self._tree.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`, which must have the same settings."""
        for name, kept in state["columns"].items():
            if kept.shape[1:] != self.columns[name].shape[1:]:
                raise ArtifactError(
                    f"the replay memory's {name} have the shape {kept.shape[1:]} in this checkpoint and "
                    f"{self.columns[name].shape[1:]} here: set rollout.steps as it was, or start a new run."
                )
        for name, theirs, ours in (
            ("capacity", state["capacity"], self.capacity),
            ("prioritized", state["tree"] is not None, self._tree is not None),
        ):
            if theirs != ours:
                raise ArtifactError(
                    f"replay.{name} is {theirs} in this checkpoint and {ours} here: set it so, or start a new run."
                )
        self.steps = state["steps"]
        self._chance.bit_generator.state = state["chance"]
        for name, kept in state["columns"].items():
            self.columns[name][: len(kept)] = kept
        if self._tree is not None:
            self._tree.load_state_dict(state["tree"])


class SumTree:
    """Priorities as leaves of a sum tree: drawing and updating take time proportional to its height."""

    def __init__(self, capacity: int, settings: Prioritized) -> None:
        self._settings = settings
        self._leaves = self.size(capacity) // BYTES // 2
        self._sums = np.zeros(2 * self._leaves)
        self._highest = 1.0

    @staticmethod
    def size(capacity: int) -> int:
        """Bytes of the tree for this capacity."""
        return int(BYTES * 2 << (capacity - 1).bit_length())

    def welcome(self, places: NDArray[np.int64]) -> None:
        """New steps get the highest priority so far."""
        self._set(places, np.full(len(places), self._highest))

    def update(self, places_B: NDArray[np.int64], errors_B: NDArray[np.floating[Any]]) -> None:
        """Priorities follow errors."""
        priorities = (np.abs(errors_B).astype(float) + 1e-6) ** self._settings.alpha
        self._highest = max(self._highest, float(priorities.max()))
        self._set(places_B, priorities)

    def draw(self, chance_B: NDArray[np.float64], count: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Places by priority, from one number in 0..1 per stratum, and importance weights that correct for it."""
        total = self._sums[1]
        target_B = (np.arange(len(chance_B)) + chance_B) / len(chance_B) * total
        node_B = np.ones(len(chance_B), np.int64)
        while node_B[0] < self._leaves:
            left_B = 2 * node_B
            beyond_B = target_B >= self._sums[left_B]
            target_B -= np.where(beyond_B, self._sums[left_B], 0.0)
            node_B = left_B + beyond_B
        places_B = np.minimum(node_B - self._leaves, count - 1)
        share_B = np.maximum(self._sums[places_B + self._leaves], 1e-12) / total
        weights_B = (count * share_B) ** -self._settings.beta
        return places_B, (weights_B / weights_B.max()).astype(np.float32)

    def _set(self, places: NDArray[np.int64], priorities: NDArray[np.float64]) -> None:
        nodes = places + self._leaves
        self._sums[nodes] = priorities
        while len(nodes) and nodes[0] > 1:
            nodes = np.unique(nodes // 2)
            self._sums[nodes] = self._sums[2 * nodes] + self._sums[2 * nodes + 1]

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume."""
        return {"leaves": self._sums[self._leaves :].copy(), "highest": self._highest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        self._highest = state["highest"]
        self._set(np.arange(self._leaves), state["leaves"])


def _room(size: int, tree: int, settings: Replay) -> str | None:
    """The storage for this many bytes: None is memory, else a folder; a ConfigError if neither has room."""
    in_memory = size <= settings.memory_gb * GIGABYTE
    needed = tree + size * in_memory
    free = free_memory()
    if needed > free:
        raise ConfigError(
            f"replay.capacity={settings.capacity} needs {needed / GIGABYTE:.1f} GB of memory, of which "
            f"{free / GIGABYTE:.1f} are free. Lower it"
            + (
                ", or lower replay.memory_gb, beyond which a file is used."
                if in_memory
                else ": priorities need that much."
            )
        )
    if in_memory:
        return None
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if size > free:
        raise ConfigError(
            f"replay.capacity={settings.capacity} needs {size / GIGABYTE:.1f} GB in {folder}, where "
            f"{free / GIGABYTE:.1f} are free. Lower it, or set TMPDIR to a larger disk."
        )
    return folder


Rows = dict[str, NDArray[Any]]


def sequences(rollout: Rollout, rewards: NDArray[np.float32], gamma: float) -> Rows:
    """Each environment's steps of a rollout as one row, with the state of the memory before them; those where nothing
    acted are left out.
    """
    assert rollout.state is not None, "sequences are of a policy with a memory"
    rows: Rows = {
        "seen": rollout.seen,
        "actions": rollout.actions,
        "rewards": rewards,
        "ahead": np.float32(gamma) * ~rollout.terminated,
        "valid": rollout.valid,
        "state": rollout.state,
    }
    acted_N = rollout.valid.any(0)
    by_place = {name: column.swapaxes(0, 1)[acted_N] for name, column in rows.items()}
    return by_place | {"state": by_place["state"][:, 0]}


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
