"""Success of several attempts at each task: whether one of them is right, and whether most of them are.

Axes: `_T` tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, fsum

from loomrl.evaluation.statistics import Interval, wilson, wilson_of_shares
from loomrl.gym.answer import parse_submission
from loomrl.types import Trajectory


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
    votes_T = [_voted(attempts) for attempts in attempts_T]
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


def _voted(attempts: Sequence[Trajectory]) -> float | None:
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
