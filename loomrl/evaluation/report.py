"""Reports on language policies: success with confidence, per environment, family and level."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from loomrl.evaluation.front_report import FrontReport
from loomrl.evaluation.several import Several, judge_several
from loomrl.evaluation.statistics import Interval, wilson, wilson_of_groups
from loomrl.gym.answer import parse_submission
from loomrl.gym.curriculum import family_key
from loomrl.safety.rule import TextRule
from loomrl.safety.screen import find_breaks
from loomrl.types import End, Failure, Trajectory


@dataclass(frozen=True, slots=True)
class Score:
    """Success, reward and its parts over some attempts. FAILED ones are counted and left out of every mean."""

    success: Interval
    reward: float | None
    parts: Mapping[str, float]
    turns: float | None
    completed: float | None
    """Share of attempts that terminated, solved or not."""
    reasoning: float | None
    """Mean number of words outside the answer."""
    failures: int


@dataclass(frozen=True, slots=True)
class Report:
    """The complete evaluation of one policy."""

    policy: str
    confidence: float
    overall: Score
    by_environment: Mapping[str, Score]
    by_family: Mapping[str, Score]
    by_level: Mapping[str, Score]
    failures: Mapping[str, int]
    """Kind of failure → count."""
    causes: Mapping[str, str]
    """Kind of failure → an example message, with the remedy if there is one."""
    violations: Mapping[str, Interval] = field(default_factory=dict)
    """Rule → share of attempts in which a turn breaks it."""
    solved_within: tuple[float, ...] = ()
    """Share of attempts that were solved within 1, 2, … turns, up to the most that one took."""
    left_out: tuple[str, ...] = ()
    """Families that were not judged, and rows of those that were in part: the figures are not about them."""
    several: Several | None = None
    """What several attempts at each task say together."""
    front: FrontReport | None = None
    """The same by preference, of a policy of several objectives."""

    @property
    def failed(self) -> float:
        """Share of all attempts that failed: the means are over the others."""
        score = self.overall
        return score.failures / ((score.failures + score.success.count) or 1)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self) | {"front": None if self.front is None else self.front.as_dict()}


def judge(
    policy: str,
    trajectories: Iterable[Trajectory],
    *,
    confidence: float = 0.95,
    rules: Mapping[str, TextRule] = MappingProxyType({}),
    left_out: Sequence[str] = (),
) -> Report:
    """The report over finished attempts, which of them break these rules, and what was not judged."""
    attempts = list(trajectories)

    def scored(
        key: Callable[[Trajectory], str], counts: Callable[[Trajectory], bool] = lambda t: True
    ) -> dict[str, Score]:
        cells: dict[str, list[Trajectory]] = {}
        for attempt in filter(counts, attempts):
            cells.setdefault(key(attempt), []).append(attempt)
        return {name: score(cell, confidence=confidence) for name, cell in sorted(cells.items())}

    return Report(
        policy=policy,
        confidence=confidence,
        overall=score(attempts, confidence=confidence),
        by_environment=scored(lambda t: t.task.environment),
        by_family=scored(lambda t: f"{t.task.environment}/{t.task.family}"),
        by_level=scored(lambda t: f"{t.task.environment}/{t.task.level:02d}", lambda t: t.task.level > 0),
        failures=dict(Counter(_kind(t.failure) for t in attempts if t.failure)),
        causes={kind: min(said) for kind, said in _said(attempts).items()},
        violations=_violations(attempts, rules, confidence),
        solved_within=_solved_within(attempts),
        several=judge_several(_grouped(attempts, lambda t: t.group), confidence=confidence),
        left_out=tuple(left_out),
    )


def _grouped(attempts: Iterable[Trajectory], key: Callable[[Trajectory], Hashable]) -> list[list[Trajectory]]:
    """Attempts that did not fail, by this key."""
    groups: dict[Hashable, list[Trajectory]] = {}
    for attempt in attempts:
        if attempt.end is not End.FAILED:
            groups.setdefault(key(attempt), []).append(attempt)
    return list(groups.values())


def _drawn(attempt: Trajectory) -> Hashable:
    """What the attempt is at: attempts at one task are alike, also by other preferences, or as several groups."""
    task = attempt.task
    return task.environment, family_key(task), task.level, task.seed


def _solved_within(attempts: Iterable[Trajectory]) -> tuple[float, ...]:
    valid = [attempt for attempt in attempts if attempt.end is not End.FAILED]
    solved = Counter(len(attempt.turns) for attempt in valid if attempt.reward.success >= 1)
    turns = range(1, max(solved, default=0) + 1)
    return tuple(count / len(valid) for count in accumulate(solved[turn] for turn in turns))


def _violations(
    attempts: Iterable[Trajectory], rules: Mapping[str, TextRule], confidence: float
) -> dict[str, Interval]:
    """Each rule by itself: one that is broken often hides no other."""
    valid = [attempt for attempt in attempts if attempt.end is not End.FAILED]
    return {
        name: wilson(
            sum(any(find_breaks({name: rule}, attempt)) for attempt in valid), len(valid), confidence=confidence
        )
        for name, rule in rules.items()
    }


def failures_in(report: Mapping[str, Any]) -> list[str]:
    """Failures with counts and messages, from a report as plain data."""
    causes = report.get("causes", {})  # a report of control has neither
    return [f"{count} × {kind}" + (f": {causes[kind]}" if causes.get(kind) else "")
            for kind, count in sorted(report.get("failures", {}).items())]  # fmt: skip


def _kind(failure: Failure) -> str:
    return f"{failure.boundary}: {failure.kind}"


def _said(attempts: Iterable[Trajectory]) -> dict[str, list[str]]:
    said: dict[str, list[str]] = {}
    for attempt in attempts:
        if attempt.failure is not None:
            said.setdefault(_kind(attempt.failure), []).append(" ".join(attempt.failure.message.split()))
    return said


def score(attempts: Iterable[Trajectory], *, confidence: float) -> Score:
    """Means over the attempts that did not fail; independent of the attempts' order to the last digit."""
    every = list(attempts)
    valid = [attempt for attempt in every if attempt.end is not End.FAILED]
    names = sorted({name for attempt in valid for name in attempt.reward.parts})
    by_task = [[attempt.reward.success for attempt in group] for group in _grouped(valid, _drawn)]
    return Score(
        success=wilson_of_groups(by_task, confidence=confidence),
        reward=_mean(t.reward.total for t in valid),
        parts={name: _mean(t.reward.parts.get(name, 0.0) for t in valid) or 0.0 for name in names},
        turns=_mean(float(len(t.turns)) for t in valid),
        completed=_mean(float(t.end is End.TERMINATED) for t in valid),
        reasoning=_mean(float(reasoning_words(t)) for t in valid),
        failures=len(every) - len(valid),
    )


def reasoning_words(attempt: Trajectory) -> int:
    """Words of an attempt outside its answer."""
    submissions = ((turn.action, parse_submission(turn.action)) for turn in attempt.turns)
    return sum(len((text if found is None else found.reasoning).split()) for text, found in submissions)


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else None
