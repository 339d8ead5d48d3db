"""Further parts of the reward in training, beside the environment's own: yours, novelty, and efficiency.

A part never changes success, which is what curricula and evaluations read. A part that raises, or gives no finite
number, fails the attempt: that is no reward of 0.
"""

import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from loomrl.config.rewards import BrevityPart, CustomPart, EfficiencyPart, RewardConfig, RulesPart
from loomrl.errors import ConfigError, ScorerError, failure_from
from loomrl.named import named
from loomrl.safety.attempt import broken
from loomrl.safety.open import open_text_rules
from loomrl.safety.rule import TextRule
from loomrl.types import End, Reward, Trajectory, Turn

X = TypeVar("X")
REMEMBERED = 4096
"""Answers that novelty remembers; the oldest are forgotten first."""
HALF_AT = 100
"""Words at which an efficient solution is worth half."""


@dataclass(frozen=True)
class RewardComponent(Generic[X]):
    """A named part of the reward: `compute_fn` scores an attempt, `weight` says how much the score counts.

    The same in training and in the pipeline that judges what was served (`loomrl.feedback.reward`): the attempt is a
    `loomrl.types.Trajectory` there.
    """

    name: str
    weight: float
    compute_fn: Callable[[X], float]

    def score(self, attempt: X) -> float:
        """The raw score; a component that raises or answers with no finite number is a ScorerError, never a 0."""
        try:
            score = float(self.compute_fn(attempt))
        except Exception as error:  # the boundary to the author's code
            raise ScorerError(f"reward component {self.name!r} raised {type(error).__name__}: {error}") from error
        if not math.isfinite(score):
            raise ScorerError(f"reward component {self.name!r} answered {score}: a finite number is needed.")
        return score


class Novelty:
    """Novelty of an attempt's actions: 1 if they were never trained on, 1/√2 if once."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, int] = OrderedDict()

    def __call__(self, attempt: Trajectory) -> float:
        """The score of an attempt."""
        return 1 / math.sqrt(1 + self._seen.get(_actions(attempt), 0))

    def observe(self, attempt: Trajectory) -> None:
        """Remember the actions of an attempt that was trained on."""
        key = _actions(attempt)
        self._seen[key] = self._seen.pop(key, 0) + 1
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)

    def state_dict(self) -> dict[str, int]:
        """The counts as JSON."""
        return dict(self._seen)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Resume from `state`."""
        self._seen = OrderedDict(state)


def efficiency(attempt: Trajectory) -> float:
    """Success in few words: half of it at a hundred words."""
    words = sum(len(turn.action.split()) for turn in attempt.turns)
    return attempt.reward.success * HALF_AT / (HALF_AT + words)


@dataclass(frozen=True, slots=True)
class Brevity:
    """Few tokens in all answers: 1 for none, 0 from `tokens` on."""

    tokens: int

    def __call__(self, attempt: Trajectory) -> float:
        """The score of an attempt."""
        return max(0.0, 1 - sum(map(_length, attempt.turns)) / self.tokens)


def _length(turn: Turn) -> int:
    """Tokens of an answer; words, where nobody has the tokens."""
    return len(turn.action.split()) if turn.tokens is None else int(turn.tokens.mask_T.sum())


@dataclass(frozen=True, slots=True)
class Constraint:
    """Minus the share of an attempt's turns that break a rule."""

    rules: Mapping[str, TextRule]

    def __call__(self, attempt: Trajectory) -> float:
        """The score of an attempt."""
        return -sum(map(bool, broken(self.rules, attempt))) / len(attempt.turns)


class Shaping:
    """The further parts of a run. Attempts of one update are shaped alike: weights and novelty move between updates.

    With `adaptation` > 0 weight moves to the parts whose mean score is furthest behind (exponentiated gradient; the sum
    of the weights stays).
    """

    def __init__(self, components: Sequence[RewardComponent[Trajectory]], *, adaptation: float = 0.0) -> None:
        names = [component.name for component in components]
        if len(set(names)) < len(names):
            raise ConfigError(f"rewards.parts {names}: each name once.")
        if any(not math.isfinite(c.weight) or (adaptation and c.weight <= 0) for c in components):
            raise ConfigError("reward weights must be finite, and positive if they adapt.")
        self.components = tuple(components)
        self.adaptation = adaptation
        self.weights = {component.name: component.weight for component in components}

    def shaped(self, attempt: Trajectory) -> Trajectory:
        """The attempt with the parts added to its last turn's reward; one that cannot be scored has failed."""
        if not self.components or attempt.failure is not None or not attempt.turns:
            return attempt
        own = self.weights.keys() & attempt.reward.parts.keys()
        if own:
            raise ConfigError(f"rewards.parts: {min(own)!r} is a part of {attempt.task.environment}'s own. Rename it.")
        try:
            parts = {one.name: self.weights[one.name] * one.score(attempt) for one in self.components}
        except ScorerError as error:
            failure = failure_from(error, boundary=ScorerError.boundary)
            return replace(attempt, end=End.FAILED, failure=failure, reward=Reward())
        *earlier, last = attempt.turns
        turns = (*earlier, replace(last, reward=_with(last.reward, parts)))
        return replace(attempt, turns=turns, reward=_with(attempt.reward, parts))

    def observe(self, attempts: Iterable[Trajectory]) -> None:
        """Learn from the attempts of an update, once it is made: what is no longer new, and which part is behind."""
        trained = list(attempts)
        if trained and self.adaptation:
            self._adapt({c.name: math.fsum(map(c.score, trained)) / len(trained) for c in self.components})
        for novelty in self._novelties():
            for attempt in trained:
                novelty.observe(attempt)

    def _adapt(self, means: Mapping[str, float]) -> None:
        mean = math.fsum(means.values()) / len(means)
        raised = {n: w * math.exp(self.adaptation * (mean - means[n])) for n, w in self.weights.items()}
        scale = math.fsum(self.weights.values()) / math.fsum(raised.values())
        self.weights = {name: weight * scale for name, weight in raised.items()}

    def _novelties(self) -> list[Novelty]:
        return [c.compute_fn for c in self.components if isinstance(c.compute_fn, Novelty)]

    def state_dict(self) -> dict[str, Any]:
        """Weights and what is known, as JSON."""
        return {"weights": dict(self.weights), "novelty": [one.state_dict() for one in self._novelties()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`; a state of other components is refused."""
        if set(state["weights"]) != set(self.weights):
            raise ConfigError(f"reward state of {sorted(state['weights'])} does not fit {sorted(self.weights)}.")
        self.weights = dict(state["weights"])
        for novelty, seen in zip(self._novelties(), state["novelty"], strict=True):
            novelty.load_state_dict(seen)


def open_shaping(config: RewardConfig) -> Shaping:
    """The parts that an experiment names."""
    components: list[RewardComponent[Trajectory]] = []
    for part in config.parts:
        if isinstance(part, CustomPart):
            components.append(open_component(part))
        elif isinstance(part, RulesPart):
            components.append(RewardComponent("rules", part.weight, Constraint(open_text_rules(part.rules))))
        elif isinstance(part, BrevityPart):
            components.append(RewardComponent("brevity", part.weight, Brevity(part.tokens)))
        elif isinstance(part, EfficiencyPart):
            components.append(RewardComponent("efficiency", part.weight, efficiency))
        else:
            components.append(RewardComponent("novelty", part.weight, Novelty()))
    return Shaping(components, adaptation=config.adaptation)


def open_component(part: CustomPart) -> RewardComponent[Trajectory]:
    """A component of one's own, in training or in the pipeline of what was served."""
    found = named(part.entry_point, what="rewards.parts.entry_point")
    try:
        made = found(**part.settings) if isinstance(found, type) else found
    except TypeError as error:
        raise ConfigError(f"rewards.parts: {part.entry_point}, settings={part.settings}: {error}.") from error
    if not isinstance(made, RewardComponent):
        raise ConfigError(
            f"rewards.parts: {part.entry_point} is {type(made).__name__}. Derive it from "
            "loomrl.rewards.RewardComponent, and call super().__init__(name=…, weight=…, compute_fn=…)."
        )
    return made if part.weight is None else RewardComponent(made.name, part.weight, made.compute_fn)


def _with(reward: Reward, parts: Mapping[str, float]) -> Reward:
    return Reward(reward.total + math.fsum(parts.values()), {**reward.parts, **parts}, reward.success)


def _actions(attempt: Trajectory) -> str:
    said = "\x00".join(" ".join(turn.action.split()) for turn in attempt.turns)
    return hashlib.sha256(f"{attempt.task.key}\x00{said}".encode()).hexdigest()[:16]
