"""Further parts of the reward in training, beside the environment's own: yours, judges', novelty, and efficiency.

A part never changes success, which is what curricula and evaluations read. A part that raises, or gives no finite
number, fails the attempt: that is no reward of 0.
"""

import hashlib
import math
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from loomrl.config.rewards import (
    BrevityPart,
    ClassifierPart,
    CourtesyPart,
    CustomPart,
    EfficiencyPart,
    RankPart,
    RewardConfig,
    RubricPart,
    RulesPart,
)
from loomrl.errors import ConfigError, ScorerError, failure_from
from loomrl.gym.classifier import open_classifier
from loomrl.gym.grade import GRADES, AttemptJudge, Grade
from loomrl.gym.rank import RankJudge
from loomrl.gym.rubric_judge import open_rubric
from loomrl.named import named
from loomrl.safety.open import open_text_rules
from loomrl.safety.rule import TextRule
from loomrl.safety.screen import find_breaks
from loomrl.types import End, Reward, Trajectory, Turn

X = TypeVar("X")
Grades = Mapping[str, Callable[[], Grade]]
REMEMBERED = 4096
"""Answers that novelty remembers; the oldest are forgotten first."""
HALF_AT = 100
"""Words at which an efficient solution is worth half."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class RewardComponent(Generic[X]):
    """A named part of the reward: `compute_fn` scores an attempt, `weight` says how much the score counts.

    In training it may score every turn instead: as many numbers as there are turns, each a part of its turn's reward.
    The same in training and in the pipeline that judges what was served (`loomrl.feedback.reward`): the attempt is a
    `loomrl.types.Trajectory` there.
    """

    name: str
    weight: float
    compute_fn: Callable[[X], float | Sequence[float]]

    def score(self, attempt: X) -> float:
        """The raw score; a component that raises or answers with no finite number is a ScorerError, never a 0."""
        scored = self.scores(attempt)
        if isinstance(scored, tuple):
            raise ScorerError(
                f"reward component {self.name!r} answered with {len(scored)} numbers: one is needed here. Turns are "
                "scored in training only."
            )
        return scored

    def scores(self, attempt: X) -> float | tuple[float, ...]:
        """The raw score, or the raw scores of all turns."""
        try:
            told = self.compute_fn(attempt)
            scored = tuple(map(float, told)) if np.ndim(told) else float(told)  # type: ignore[arg-type]
        except Exception as error:  # the boundary to the author's code
            raise ScorerError(f"reward component {self.name!r} raised {type(error).__name__}: {error}") from error
        if not np.isfinite(scored).all():
            raise ScorerError(f"reward component {self.name!r} answered {scored}: a finite number is needed.")
        return scored


class ActionNovelty:
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


@dataclass(frozen=True, slots=True)
class Courtesy:
    """Politeness in few tokens: the share of polite turns, times 1 for no tokens, falling to 0 at `tokens`."""

    phrases: Sequence[str]
    tokens: int
    power: float

    def __call__(self, attempt: Trajectory) -> float:
        """The score of an attempt."""
        polite = sum(map(self._is_polite, attempt.turns)) / len(attempt.turns)
        said = sum(map(_length, attempt.turns)) / self.tokens
        return float(polite * (1 - min(1.0, said) ** self.power))

    def _is_polite(self, turn: Turn) -> bool:
        said = _plain(turn.action)
        return any(_plain(phrase) in said for phrase in self.phrases)


def _plain(text: str) -> str:
    """Its words in small letters, each between spaces."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "


def _length(turn: Turn) -> int:
    """Tokens of an answer; words if its tokens are unknown."""
    return len(turn.action.split()) if turn.tokens is None else int(turn.tokens.mask_T.sum())


@dataclass(frozen=True, slots=True)
class Constraint:
    """Minus the share of an attempt's turns that break a rule."""

    rules: Mapping[str, TextRule]

    def __call__(self, attempt: Trajectory) -> float:
        """The score of an attempt."""
        return -sum(map(bool, find_breaks(self.rules, attempt))) / len(attempt.turns)


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
        self._given = {component.name: component.weight for component in components}
        self.weights = dict(self._given)

    @property
    def compares(self) -> bool:
        """True if attempts of a group must be shaped together."""
        return any(isinstance(judge, RankJudge) for judge in self.judges.values())

    def shape(self, attempts: Iterable[Trajectory]) -> Iterator[Trajectory]:
        """The attempts with the parts added to their last turn's reward; one that cannot be scored has failed."""
        given = list(attempts)
        scored = [at for at, attempt in enumerate(given) if attempt.failure is None and attempt.turns]
        graded = {name: judge.begin_all([given[at] for at in scored]) for name, judge in self.judges.items()}
        begun = {at: {name: grades[index] for name, grades in graded.items()} for index, at in enumerate(scored)}
        for at, attempt in enumerate(given):
            yield self._add_parts(attempt, begun[at]) if self.components and at in begun else attempt

    def _add_parts(self, attempt: Trajectory, begun: Grades) -> Trajectory:
        own = self.weights.keys() & attempt.reward.parts.keys()
        if own:
            raise ConfigError(f"rewards.parts: {min(own)!r} is a part of {attempt.task.environment}'s own. Rename it.")
        try:
            grades = {name: wait().data() for name, wait in begun.items()}
            graded = replace(attempt, extra={**attempt.extra, GRADES: grades}) if grades else attempt
            scores = {one.name: _scores(one, graded) for one in self.components}
        except ScorerError as error:
            failure = failure_from(error, boundary=ScorerError.boundary)
            return replace(attempt, end=End.FAILED, failure=failure, reward=Reward())
        turns = list(graded.turns)
        for at, turn in enumerate(turns):
            parts = {name: self.weights[name] * by_turn[at] for name, by_turn in scores.items() if at in by_turn}
            turns[at] = replace(turn, reward=_with(turn.reward, parts)) if parts else turn
        totals = {name: self.weights[name] * math.fsum(by_turn.values()) for name, by_turn in scores.items()}
        return replace(graded, turns=tuple(turns), reward=_with(graded.reward, totals))

    def observe(self, attempts: Iterable[Trajectory]) -> None:
        """Learn from the attempts of an update, once it is made: what is no longer new, and which part is behind."""
        trained = list(attempts)
        if trained and self.adaptation:
            self._adapt({component.name: _mean(component, trained) for component in self.components})
        for novelty in self._novelties():
            for attempt in trained:
                novelty.observe(attempt)

    def _adapt(self, means: Mapping[str, float]) -> None:
        mean = math.fsum(means.values()) / len(means)
        # Multiplicative, so that weights stay positive and no part is lost for good.
        raised = {n: w * math.exp(self.adaptation * (mean - means[n])) for n, w in self.weights.items()}
        scale = math.fsum(self.weights.values()) / math.fsum(raised.values())
        self.weights = {name: weight * scale for name, weight in raised.items()}

    @property
    def judges(self) -> dict[str, AttemptJudge]:
        """The parts that a model or a person judges, by name."""
        return {c.name: c.compute_fn for c in self.components if isinstance(c.compute_fn, AttemptJudge)}

    def _judge_hashes(self) -> dict[str, str]:
        return {name: judge.sha256 for name, judge in self.judges.items()}

    def _novelties(self) -> list[ActionNovelty]:
        return [c.compute_fn for c in self.components if isinstance(c.compute_fn, ActionNovelty)]

    def state_dict(self) -> dict[str, Any]:
        """Weights, what is known, and what judges judge by, as JSON."""
        novelty = [one.state_dict() for one in self._novelties()]
        told = {"novelty": novelty, "judges": self._judge_hashes()}
        return {"weights": dict(self.weights), "given": self._given, **told}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`; a state of other components is refused."""
        if set(state["weights"]) != set(self.weights):
            raise ConfigError(f"reward state of {sorted(state['weights'])} does not fit {sorted(self.weights)}.")
        now = self._judge_hashes()
        if other := [name for name in now if state["judges"].get(name) != now[name]]:
            raise ConfigError(
                f"rewards.parts: {other[0]!r} is judged by another calibration, model or wording than the one that the "
                "run began with. Put that one back, or begin a new run."
            )
        if state.get("given", self._given) == self._given:  # other weights are of a fork, which begins with its own
            self.weights = dict(state["weights"])
        for novelty, seen in zip(self._novelties(), state["novelty"], strict=True):
            novelty.load_state_dict(seen)


def open_shaping(config: RewardConfig, *, seed: int = 0) -> Shaping:
    """The parts that an experiment names; the seed decides the orders in which attempts are shown to be ranked."""
    components: list[RewardComponent[Trajectory]] = []
    for part in config.parts:
        if isinstance(part, CustomPart | RubricPart | ClassifierPart):
            components.append(open_component(part))
        elif isinstance(part, RankPart):
            components.append(RewardComponent(part.name, part.weight, RankJudge(part, seed=seed)))
        elif isinstance(part, RulesPart):
            components.append(RewardComponent("rules", part.weight, Constraint(open_text_rules(part.rules))))
        elif isinstance(part, BrevityPart):
            components.append(RewardComponent("brevity", part.weight, Brevity(part.tokens)))
        elif isinstance(part, CourtesyPart):
            courtesy = Courtesy(part.phrases, part.tokens, part.power)
            components.append(RewardComponent("courtesy", part.weight, courtesy))
        elif isinstance(part, EfficiencyPart):
            components.append(RewardComponent("efficiency", part.weight, efficiency))
        else:
            components.append(RewardComponent("novelty", part.weight, ActionNovelty()))
    return Shaping(components, adaptation=config.adaptation)


def open_component(part: CustomPart | RubricPart | ClassifierPart) -> RewardComponent[Trajectory]:
    """A component of one's own or a judge, in training or in the pipeline of what was served."""
    if isinstance(part, RubricPart):
        return RewardComponent(part.name, part.weight, open_rubric(part))
    if isinstance(part, ClassifierPart):
        return RewardComponent(part.name, part.weight, open_classifier(part))
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


def _mean(component: RewardComponent[Trajectory], attempts: Sequence[Trajectory]) -> float:
    return math.fsum(score for one in attempts for score in _scores(component, one).values()) / len(attempts)


def _scores(component: RewardComponent[Trajectory], attempt: Trajectory) -> dict[int, float]:
    """The component's scores by the place of the turn whose reward they are part of: the last one's, or every turn's.

    A judge's score is on record once the attempt is shaped; it is not asked again.
    """
    if isinstance(component.compute_fn, AttemptJudge) and GRADES in attempt.extra:
        return {len(attempt.turns) - 1: float(attempt.extra[GRADES][component.name]["score"])}
    scored = component.scores(attempt)
    if not isinstance(scored, tuple):
        return {len(attempt.turns) - 1: scored}
    if len(scored) != len(attempt.turns):
        raise ScorerError(
            f"reward component {component.name!r} answered with {len(scored)} numbers for {len(attempt.turns)} turns: "
            "return one for every turn, or one number for all."
        )
    return dict(enumerate(scored))


def _with(reward: Reward, parts: Mapping[str, float]) -> Reward:
    return Reward(reward.total + math.fsum(parts.values()), {**reward.parts, **parts}, reward.success)


def _actions(attempt: Trajectory) -> str:
    said = "\x00".join(" ".join(turn.action.split()) for turn in attempt.turns)
    return hashlib.sha256(f"{attempt.task.key}\x00{said}".encode()).hexdigest()[:16]
