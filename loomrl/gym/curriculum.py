"""The choice of the next task. Driven by success alone, never by shaped reward; its only state is its `state_dict`.

Inside a family the level moves by eta * tanh(alpha * (success - target)), in the manner of AdaRFT, with some replay
of lower levels. Between families, tasks go where something can be learnt: p(1 - p), with p corrected for guessing, a
floor for every family, and p drawn back to 1/2 while a family is not tried, because what was known of it goes stale.
"""

import math
import random
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Protocol

from loomrl.config import AdaptiveCurriculum, FixedCurriculum, ProgressiveCurriculum, StagedCurriculum, Threshold
from loomrl.errors import ConfigError
from loomrl.threshold import reaches
from loomrl.types import Task

FLOOR = 0.01
"""The share left to those without a minimum, even if the minimum shares add up to one."""


class Stake(NamedTuple):
    """The claim of one participant."""

    weight: float
    min_share: float = 0.0


def shares(stakes: Mapping[str, Stake]) -> dict[str, float]:
    """Each stake's share: by weight, raised to its minimum, the rest divided by weight again."""
    raised: dict[str, float] = {}
    free = dict(stakes)
    while free:
        rest = max(1.0 - sum(raised.values()), FLOOR)
        total = sum(stake.weight for stake in free.values())
        parts = {name: rest * stake.weight / total for name, stake in free.items()}
        short = {name: stake.min_share for name, stake in free.items() if stake.min_share > parts[name]}
        if not short:
            return raised | parts
        raised |= short
        free = {name: stake for name, stake in free.items() if name not in short}
    return raised


TRAINING_SEEDS = range(2**31)
# A range of its own: no list of held-out tasks has to be kept, also where tasks are generated without end.
HELD_OUT_SEEDS = range(2**31, 2**32)
"""Seeds for evaluation; no curriculum draws them."""


@dataclass(frozen=True, slots=True)
class TaskFamily:
    """A source of tasks. `share` is its environment's weight in the run, `guess` the success of guessing."""

    environment: str
    name: str
    share: float = 1.0
    guess: float = 0.0
    has_levels: bool = True

    def at(self, level: int) -> int:
        """The level of its tasks when this one is asked for: 0 if they have none."""
        return level if self.has_levels else 0

    @property
    def key(self) -> str:
        """`Math/algebra.linear`."""
        return f"{self.environment}/{self.name}"


def family_key(task: Task) -> str:
    """The key of the family that a task was drawn from."""
    return f"{task.environment}/{task.parameters.get('template', task.family)}"


@dataclass(frozen=True, slots=True)
class TaskDraw:
    """One task to attempt next: where it comes from, how hard, which one."""

    family: TaskFamily
    level: int
    seed: int
    memory: Mapping[str, Any] | None = field(default=None, hash=False)
    """The memory that its attempts begin with, if an earlier group left one."""
    preference: Mapping[str, float] | None = field(default=None, hash=False)
    """The preference among objectives that its attempts begin with, if there are several objectives."""
    opponent: Mapping[str, Any] | None = field(default=None, hash=False)
    """Who has the second seat, if a league draws opponents."""
    turns: int | None = None
    """The limit of its attempts' turns, below the environment's own."""

    @property
    def cell(self) -> str:
        """Its family and level."""
        return f"{self.family.key}/{self.level}"


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The result of one attempt."""

    family: str
    level: int
    success: float


class Curriculum(Protocol):
    """A sampler that learns from outcomes."""

    def draw(self, rng: random.Random, *, without: Container[str] = ()) -> TaskDraw:
        """The next task, of a family whose key is not in `without`; at least one must be left."""

    def observe(self, outcomes: Iterable[TaskOutcome]) -> None:
        """Learn from the outcomes of one update."""

    def progress(self) -> dict[str, float]:
        """Level per family key, for all families that can currently be drawn."""

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume, as JSON."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""


@dataclass
class _Standing:
    """The curriculum's estimate for a family: its level, and the success there."""

    level: float
    success: float = 0.5


class AdaptiveLevels:
    """Levels follow success, families follow learnability."""

    def __init__(self, families: Sequence[TaskFamily], settings: AdaptiveCurriculum) -> None:
        self.families = _some(families)
        self.settings = settings
        self._standing = {family.key: _Standing(float(family.at(settings.begin))) for family in self.families}
        self._guess = {family.key: family.guess for family in self.families}

    def draw(self, rng: random.Random, *, without: Container[str] = ()) -> TaskDraw:
        """A family by share and learnability, at its level or, for the replayed share, below it."""
        families = [family for family in self.families if family.key not in without]
        family = _pick(families, {f.key: self.learnability(f.key) for f in families}, rng)
        level = self._standing[family.key].level
        base = math.floor(level)
        drawn = _draw_replay(base, self.settings, rng) or base + (rng.random() < level - base)
        return TaskDraw(family, drawn, rng.choice(TRAINING_SEEDS))

    def learnability(self, key: str) -> float:
        """p(1 - p) scaled to 0..1, with p corrected for guessing, and never below the floor."""
        guess = self._guess[key]
        skill = min(1.0, max(0.0, (self._standing[key].success - guess) / (1 - guess)))
        return max(self.settings.floor, 4 * skill * (1 - skill))

    def observe(self, outcomes: Iterable[TaskOutcome]) -> None:
        """Move the levels once, by the mean success at each family's present level; replays below it do not count."""
        seen: dict[str, list[float]] = {key: [] for key in self._standing}
        for outcome in outcomes:
            if outcome.family in seen and outcome.level >= math.floor(self._standing[outcome.family].level):
                seen[outcome.family].append(outcome.success)
        for key, successes in seen.items():
            if successes:
                self._move(key, math.fsum(successes) / len(successes))
            else:
                self._fade(key)

    def _move(self, key: str, success: float) -> None:
        settings = self.settings
        standing = self._standing[key]
        standing.success = success
        step = settings.eta * math.tanh(settings.alpha * (success - settings.target))
        if standing.level:  # 0: its tasks have none
            standing.level = min(max(standing.level + step, settings.first_level), settings.last_level)

    def _fade(self, key: str) -> None:
        """Move the estimate of an undrawn family back towards the most learnable value, half skill."""
        unknown = self._guess[key] + (1 - self._guess[key]) / 2
        standing = self._standing[key]
        standing.success = unknown + self.settings.memory * (standing.success - unknown)

    def progress(self) -> dict[str, float]:
        """Level per family; a fraction is the chance of the next level."""
        return {key: standing.level for key, standing in self._standing.items()}

    def state_dict(self) -> dict[str, Any]:
        """Level and success per family."""
        return {key: [standing.level, standing.success] for key, standing in self._standing.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`; a state of other families is refused."""
        _same_families(state, self._standing)
        self._standing = {key: _Standing(level, success) for key, (level, success) in state.items()}


class ProgressiveLevels:
    """Every family goes up one level at a time, once its latest attempts there pass the threshold."""

    def __init__(self, families: Sequence[TaskFamily], settings: ProgressiveCurriculum) -> None:
        self.families = _some(families)
        self.settings = settings
        self._level = {family.key: family.at(settings.begin) for family in self.families}
        self._latest = {family.key: _latest(settings.threshold) for family in self.families}

    def draw(self, rng: random.Random, *, without: Container[str] = ()) -> TaskDraw:
        """A family by its environment's share, at its level or, for the replayed share, below it."""
        families = [family for family in self.families if family.key not in without]
        family = _pick(families, dict.fromkeys((f.key for f in families), 1.0), rng)
        level = self._level[family.key]
        return TaskDraw(family, _draw_replay(level, self.settings, rng) or level, rng.choice(TRAINING_SEEDS))

    def observe(self, outcomes: Iterable[TaskOutcome]) -> None:
        """Count the attempts at each family's present level, and go up where they pass."""
        for outcome in outcomes:
            if outcome.level == self._level.get(outcome.family):
                self._latest[outcome.family].append(outcome.success)
        for key, latest in self._latest.items():
            if _passes(self.settings.threshold, latest) and 0 < self._level[key] < self.settings.last_level:
                self._level[key] += 1
                latest.clear()

    def progress(self) -> dict[str, float]:
        """Level per family."""
        return {key: float(level) for key, level in self._level.items()}

    def state_dict(self) -> dict[str, Any]:
        """Level and latest attempts per family."""
        return {key: [level, list(self._latest[key])] for key, level in self._level.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`; a state of other families is refused."""
        _same_families(state, self._level)
        for key, (level, latest) in state.items():
            self._level[key] = level
            self._latest[key] = _latest(self.settings.threshold, latest)


class StagedLevels:
    """Named stages; each ends once the success of its latest attempts passes its threshold."""

    def __init__(self, families: Sequence[TaskFamily], settings: StagedCurriculum) -> None:
        self.settings = settings
        self._inner = [
            open_curriculum(_matching(families, stage.families, stage.name), stage.curriculum)
            for stage in settings.stages
        ]
        self._index = 0
        self._latest = _latest(settings.stages[0].threshold)

    @property
    def stage(self) -> str:
        """The name of the present stage."""
        return self.settings.stages[self._index].name

    def draw(self, rng: random.Random, *, without: Container[str] = ()) -> TaskDraw:
        """A task of the present stage."""
        return self._inner[self._index].draw(rng, without=without)

    def observe(self, outcomes: Iterable[TaskOutcome]) -> None:
        """Update the present stage, and enter the next one if this one is passed."""
        keys = set(self.progress())
        mine = [outcome for outcome in outcomes if outcome.family in keys]
        self._inner[self._index].observe(mine)
        self._latest.extend(outcome.success for outcome in mine)
        if _passes(self.settings.stages[self._index].threshold, self._latest) and self._index + 1 < len(self._inner):
            self._enter(self._index + 1, [])

    def _enter(self, index: int, latest: Sequence[float]) -> None:
        self._index = index
        self._latest = _latest(self.settings.stages[index].threshold, latest)

    def progress(self) -> dict[str, float]:
        """Levels of the present stage."""
        return self._inner[self._index].progress()

    def state_dict(self) -> dict[str, Any]:
        """Stage, its latest attempts, and every stage's own state."""
        inner = [curriculum.state_dict() for curriculum in self._inner]
        return {"stage": self.stage, "latest": list(self._latest), "inner": inner}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`; a state with an unknown stage is refused."""
        names = [stage.name for stage in self.settings.stages]
        if state["stage"] not in names or len(state["inner"]) != len(names):
            raise ConfigError(f"curriculum state at stage {state['stage']!r} does not fit the stages {names}.")
        for curriculum, inner in zip(self._inner, state["inner"], strict=True):
            curriculum.load_state_dict(inner)
        self._enter(names.index(state["stage"]), state["latest"])


def open_curriculum(
    families: Sequence[TaskFamily],
    settings: FixedCurriculum | ProgressiveCurriculum | AdaptiveCurriculum | StagedCurriculum,
) -> Curriculum:
    """The curriculum that the settings describe, over these families."""
    if isinstance(settings, FixedCurriculum):  # it rises from its level to the same level
        settings = ProgressiveCurriculum(first_level=settings.level, last_level=settings.level)
    if isinstance(settings, ProgressiveCurriculum):
        return ProgressiveLevels(families, settings)
    if isinstance(settings, AdaptiveCurriculum):
        return AdaptiveLevels(families, settings)
    return StagedLevels(families, settings)


def _draw_replay(level: int, settings: ProgressiveCurriculum | AdaptiveCurriculum, rng: random.Random) -> int:
    """With the replay probability a lower level, else 0."""
    below = level > settings.first_level and rng.random() < settings.replay
    return rng.randrange(settings.first_level, level) if below else 0


def _latest(threshold: Threshold, known: Iterable[float] = ()) -> deque[float]:
    """A queue for as many successes as the threshold needs."""
    return deque(known, maxlen=threshold.attempts)


def _passes(threshold: Threshold, latest: Sequence[float]) -> bool:
    return len(latest) == threshold.attempts and reaches(math.fsum(latest) / threshold.attempts, threshold.success)


def _same_families(state: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    if set(state) != set(known):
        raise ConfigError(f"curriculum state of {sorted(state)} does not fit {sorted(known)}.")


def _some(families: Sequence[TaskFamily]) -> tuple[TaskFamily, ...]:
    if not families:
        raise ConfigError("a curriculum needs at least one task family.")
    return tuple(families)


def _matching(families: Sequence[TaskFamily], patterns: Sequence[str], stage: str) -> list[TaskFamily]:
    found = [f for f in families if any(fnmatchcase(f.key, p) or fnmatchcase(f.name, p) for p in patterns)]
    if not found:
        known = ", ".join(sorted(f.key for f in families))
        raise ConfigError(f"curriculum stage {stage!r}: no family matches {', '.join(patterns)}. Known: {known}.")
    return found


def _pick(families: Sequence[TaskFamily], weight: Mapping[str, float], rng: random.Random) -> TaskFamily:
    """One family: environments by their share, families of an environment by their weight."""
    totals: dict[str, float] = {}
    for family in families:
        totals[family.environment] = totals.get(family.environment, 0.0) + weight[family.key]
    chances = [family.share * weight[family.key] / totals[family.environment] for family in families]
    return rng.choices(families, chances)[0]
