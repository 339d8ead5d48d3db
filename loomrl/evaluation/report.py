"""Reports on language policies: success with confidence, per environment, family and level."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from math import comb, fsum
from types import MappingProxyType
from typing import Any

from loomrl.evaluation.front import FrontReport
from loomrl.evaluation.statistics import Interval, wilson, wilson_of_groups, wilson_of_shares
from loomrl.gym.answer import parse_submission
from loomrl.gym.curriculum import family_key
from loomrl.safety.rule import TextRule
from loomrl.safety.screen import find_breaks
from loomrl.types import End, Failure, Trajectory


@dataclass(frozen=True, slots=True)
class Several:
    """The evaluation of a policy with several attempts at each task."""

    pass_at: tuple[Interval, ...]
    """pass@1, pass@2, …: the chance that at least one of so many attempts at a task succeeds. Tasks of which too many
    attempts failed are left out.
    """
    majority: Interval | None
    """The chance that the answer which most attempts at a task gave is right. Those without one do not vote; a task
    without any is not solved. None where no answer is between tags.
    """


def judge_several(attempts_T: Sequence[Sequence[Trajectory]], *, confidence: float) -> Several | None:
    """The report over attempts that did not fail; None of single ones."""
    most = max(map(len, attempts_T), default=0)
    if most < 2:
        return None
    counts_T = [(len(attempts), sum(attempt.reward.success >= 1 for attempt in attempts)) for attempts in attempts_T]
    chances = [[pass_at(k, count, right) for count, right in counts_T if count >= k] for k in range(1, most + 1)]
    votes_T = [_vote(attempts) for attempts in attempts_T]
    return Several(
        pass_at=tuple(
            wilson_of_shares(each, most // k, confidence=confidence) for k, each in enumerate(chances, start=1)
        ),
        majority=(
            None
            if all(vote is None for vote in votes_T)
            else wilson(fsum(vote or 0.0 for vote in votes_T), len(votes_T), confidence=confidence)
        ),
    )


def pass_at(k: int, count: int, right: int) -> float:
    """The chance that k of these attempts, drawn without replacement, have a right one among them."""
    return 1 - comb(count - right, k) / comb(count, k)


def _vote(attempts: Sequence[Trajectory]) -> float | None:
    """Mean success of the attempts with the most frequent answer, averaged over ties; None without any answer."""
    by_answer: dict[str, list[float]] = {}
    for attempt in attempts:
        if (answer := _answer(attempt)) is not None:
            by_answer.setdefault(answer, []).append(attempt.reward.success)
    if not by_answer:
        return None
    most = max(map(len, by_answer.values()))
    first = [fsum(each) / len(each) for each in by_answer.values() if len(each) == most]
    return fsum(first) / len(first)


def _answer(attempt: Trajectory) -> str | None:
    """The last answer between tags, as it was written."""
    found = (parse_submission(turn.action) for turn in reversed(attempt.turns))
    return next((submission.answer for submission in found if submission is not None), None)


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
    """Success of several attempts at each task together."""
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

    def score_by(
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
        by_environment=score_by(lambda t: t.task.environment),
        by_family=score_by(lambda t: f"{t.task.environment}/{t.task.family}"),
        by_level=score_by(lambda t: f"{t.task.environment}/{t.task.level:02d}", lambda t: t.task.level > 0),
        failures=dict(Counter(_kind(t.failure) for t in attempts if t.failure)),
        causes={kind: min(said) for kind, said in _said(attempts).items()},
        violations=_violations(attempts, rules, confidence),
        solved_within=_solved_within(attempts),
        several=judge_several(_group_by(attempts, lambda t: t.group), confidence=confidence),
        left_out=tuple(left_out),
    )


def _group_by(attempts: Iterable[Trajectory], key: Callable[[Trajectory], Hashable]) -> list[list[Trajectory]]:
    """Attempts that did not fail, by this key."""
    groups: dict[Hashable, list[Trajectory]] = {}
    for attempt in attempts:
        if attempt.end is not End.FAILED:
            groups.setdefault(key(attempt), []).append(attempt)
    return list(groups.values())


def _task_key(attempt: Trajectory) -> Hashable:
    """The attempt's task: equal for attempts of several groups, or by other preferences."""
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
    by_task = [[attempt.reward.success for attempt in group] for group in _group_by(valid, _task_key)]
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
