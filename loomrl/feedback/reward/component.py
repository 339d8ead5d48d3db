"""The opinion of one component about a trajectory, with its evidence."""

import json
import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any, Literal

import numpy as np

from loomrl.serving.wording import CLOSING, OPENING
from loomrl.threshold import reaches
from loomrl.types import End, Feedback, Source, Task, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation of so many numbers."""

    count: int
    mean: float
    deviation: float


NOTHING = Spread(0, math.nan, math.nan)


class NumberLog:
    """The last `limit` trajectories with their numbers, in the order in which they were judged last.

    Numbers are counted in units of 1 / `per`, as integers: the statistics are exact, and equal whether the trail grew
    number by number or was read from the record.
    """

    def __init__(self, limit: int, *, per: int = 1) -> None:
        self._limit = limit
        self._per = per
        self._kept: OrderedDict[str, dict[str, int]] = OrderedDict()
        self._sums: dict[str, list[int]] = {}
        """Name → count, sum, sum of squares."""

    def add(self, trajectory: str, numbers: Mapping[str, float]) -> None:
        """Take a trajectory's numbers, in place of earlier ones; the oldest trajectory leaves if there is no room."""
        self.drop(trajectory)
        entry = {name: round(number * self._per) for name, number in numbers.items()}
        self._kept[trajectory] = entry
        self._count(entry, 1)
        if len(self._kept) > self._limit:
            self._count(self._kept.popitem(last=False)[1], -1)

    def drop(self, trajectory: str) -> None:
        """Forget a trajectory, if it is here."""
        entry = self._kept.pop(trajectory, None)
        if entry is not None:
            self._count(entry, -1)

    def spread(self, name: str) -> Spread:
        """Mean and deviation of the numbers of this name."""
        count, total, squares = self._sums.get(name, (0, 0, 0))
        if not count:
            return NOTHING
        variance = squares * count - total * total  # of integers: never negative
        return Spread(count, total / count / self._per, math.sqrt(variance) / count / self._per)

    def bounds(self, name: str) -> tuple[float, float]:
        """The least and the highest number of this name; there is one."""
        numbers = [entry[name] for entry in self._kept.values() if name in entry]
        return min(numbers) / self._per, max(numbers) / self._per

    def _count(self, entry: Mapping[str, int], sign: int) -> None:
        for name, number in entry.items():
            sums = self._sums.setdefault(name, [0, 0, 0])
            sums[0] += sign
            sums[1] += sign * number
            sums[2] += sign * number * number


ScoreSource = Literal["automated", "human", "linter", "test_results", "benchmark"]
NEUTRAL = 0.5
"""Counts where a component says nothing."""
DIGITS = 6
"""Decimals of a score: sums of scores are exact then, in whatever order they were made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentScore:
    """A value between 0 and 1, or None where nothing is known; `reasoning` is one line for people."""

    value: float | None
    reasoning: str
    source: ScoreSource = "automated"
    evidence: Mapping[str, Any] = field(default_factory=dict)
    applies: bool = True
    """False: there is nothing to judge, such as code; then nothing is unknown either."""

    def data(self) -> dict[str, Any]:
        """The score as JSON."""
        return {
            "value": self.value,
            "reasoning": self.reasoning,
            "source": self.source,
            "evidence": self.evidence,
            "applies": self.applies,
        }


def score_of(data: Mapping[str, Any]) -> ComponentScore:
    """The score of `ComponentScore.data`, whatever stands beside it."""
    return ComponentScore(**{name: data[name] for name in ComponentScore.__slots__})


def known_score(value: float, reasoning: str, *, source: ScoreSource = "automated", **evidence: Any) -> ComponentScore:
    """A score with a value within 0..1."""
    assert 0 <= value <= 1, f"score {value}: {reasoning}"
    return ComponentScore(value=round(value, DIGITS), reasoning=reasoning, source=source, evidence=evidence)


def missing_score(reasoning: str, **evidence: Any) -> ComponentScore:
    """An unknown score: neutral, and the reward is less certain."""
    return ComponentScore(value=None, reasoning=reasoning, evidence=evidence)


def inapplicable_score(reasoning: str) -> ComponentScore:
    """A score without anything to judge: neutral, and the reward is not less certain."""
    return ComponentScore(value=None, reasoning=reasoning, applies=False)


SAID = ("thumb", "stars", "correction", "choice", "abandoned")
DERIVED = ("asked_again", "corrected", "left")


def user_feedback(feedback: Sequence[Feedback]) -> ComponentScore:
    """The mean of what was said, oldest first: of each kind about each answer the newest. It goes before signals."""
    for kinds, source, what in ((SAID, "human", "people said"), (DERIVED, "automated", "their behaviour says")):
        if found := newest(feedback, kinds):
            return _mean(found, source, what)  # type: ignore[arg-type]
    return missing_score("silence: nobody said anything")


def newest(feedback: Sequence[Feedback], kinds: tuple[str, ...]) -> list[Feedback]:
    """The newest feedback of each kind about each answer; `feedback` is oldest first."""
    found: dict[tuple[object, ...], Feedback] = {}
    for each in feedback:
        if each.kind in kinds:
            other = each.data.get("over") or each.data.get("under") or ""
            found[each.source, each.kind, each.call, str(other)] = each
    return list(found.values())


def _mean(given: Sequence[Feedback], source: ScoreSource, what: str) -> ComponentScore:
    value = fsum(each.value for each in given) / len(given)
    told = ", ".join(f"{each.kind} {each.value:g}" for each in given[:5])
    more = f" and {len(given) - 5} more" if len(given) > 5 else ""
    signals = [{"id": each.id, "kind": each.kind, "value": each.value} for each in given]
    return known_score(min(max(value, 0.0), 1.0), f"{what}: {told}{more}", source=source, signals=signals)


OUTCOME = "outcome"
PLAYED = (Source.ROLLOUT, Source.EVALUATION)
"""Attempts in environments, which know whether their task was solved."""


def worth(fraction: float) -> float:
    """1 for a task that is done, 0 for one that is not begun, 0.5 and more for one that is done in part."""
    if reaches(fraction, 1.0):
        return 1.0
    return 0.5 + 0.5 * fraction if fraction > 0 else 0.0


def own_completion(trajectory: Trajectory) -> ComponentScore:
    """The completion that the trajectory itself tells: a caller's word at the session's end, or the environment's."""
    if trajectory.end is End.FAILED:
        assert trajectory.failure is not None, "it has failed"
        return missing_score(
            f"it failed at the boundary {trajectory.failure.boundary!r}, which says nothing of the policy"
        )
    if trajectory.source is Source.FOREIGN:
        return _foreign_completion(trajectory.extra.get("foreign", {}).get("turns", ()))
    if trajectory.source in PLAYED:
        success = trajectory.reward.success
        return known_score(worth(success), f"the environment's success is {success:g}", success=success)
    session: Mapping[str, Any] = trajectory.extra.get("session") or {}
    told = session.get("success")
    if told is not None:
        return known_score(worth(told), f"the caller said at its end that success is {told:g}", success=told)
    outcome = trajectory.reward.parts.get("outcome")
    if outcome is None:
        return missing_score("nobody said how it ended")
    if not 0 <= outcome <= 1:
        return missing_score(
            f"the caller gave a reward of {outcome:g}, which tells no share of the task", reward=outcome
        )
    return known_score(worth(outcome), f"the caller gave a reward of {outcome:g} at its end", reward=outcome)


def is_told(own: ComponentScore) -> bool:
    """True if somebody or something else than the agent itself said how it ended."""
    return own.value is not None and not own.evidence.get("self_reported")


def _foreign_completion(turns: Sequence[Mapping[str, Any]]) -> ComponentScore:
    """Completion as an external agent reports it: done if the last turn succeeded, else the share of turns that did."""
    if not turns:
        return missing_score("its agent reported no turns")
    succeeded = sum(bool(turn["success"]) for turn in turns)
    fraction = 1.0 if turns[-1]["success"] else succeeded / len(turns)
    reasoning = f"by the agent's own report {succeeded} of {len(turns)} turns succeeded"
    said = reasoning + (", the last one too" if turns[-1]["success"] else ", the last one not")
    return known_score(worth(fraction), said, succeeded=succeeded, turns=len(turns), self_reported=True)


def completion(own: ComponentScore, feedback: Sequence[Feedback]) -> ComponentScore:
    """The newest outcome that was told later, in place of what the trajectory tells; else that."""
    told = [each for each in feedback if each.kind == OUTCOME]
    if not told:
        return own
    last = told[-1]
    reasoning = f"the outcome told later is {last.value:g}"
    return known_score(worth(last.value), reasoning, feedback=last.id, told=last.value, instead_of=own.data())


def before_outcomes(score: ComponentScore) -> ComponentScore:
    """The completion without people's outcomes, from a completion on record."""
    own = score.evidence.get("instead_of")
    return score if own is None else score_of(own)


CUT = 2.0
"""Deviations from the mean beyond which nothing counts."""
LEAST_SHARE = 0.1
"""A deviation counts as at least this share of the mean: a second more in a minute is no outlier."""


def task_type(task: Task) -> str:
    """Tasks of one type are compared with each other."""
    return f"{task.environment}/{task.family}/{task.level}"


def measures(trajectory: Trajectory) -> dict[str, int]:
    """Cost of an attempt: `turns`, `tokens` (or `words`, where some tokens are not stored), `repeats` of tool calls
    with the same arguments, and `ms` where the time is the policy's own.
    """
    if trajectory.end is End.FAILED:
        return {}
    turns = [turn for sequence in trajectory.sequences for turn in sequence]
    found = {"turns": len(turns) if trajectory.steps is None else len(turns) + len(trajectory.steps)}
    if turns:
        found |= _said(turns)
    reported = trajectory.extra.get("foreign", {}).get("metadata", {}).get("total_tokens")
    if reported is not None:
        found["tokens"] = reported
        found.pop("words", None)
    seconds = _seconds(trajectory)
    if seconds is not None:
        found["ms"] = round(1000 * seconds)
    return found


def efficiency(taken: Mapping[str, int], habits: NumberLog, *, least: int) -> ComponentScore:
    """The mean over what was measured: 0.5 is usual, 1 two deviations less than usual, 0 two more."""
    if not taken:
        return missing_score("nothing was measured")
    usual = {name: habits.spread(name) for name in taken}
    enough = {name: spread for name, spread in usual.items() if spread.count >= least}
    if not enough:
        most = max(spread.count for spread in usual.values())
        return missing_score(f"{most} of this type were seen before, and {least} tell what is usual", **taken)
    varying = {name: spread for name, spread in enough.items() if spread.deviation or taken[name] != spread.mean}
    marks = {name: _mark(taken[name], spread) for name, spread in (varying or enough).items()}
    told = ", ".join(f"{taken[name]} {name} (usual {enough[name].mean:.4g})" for name in marks)
    evidence: dict[str, Any] = {name: [taken[name], *_round(enough[name])] for name in marks}
    return known_score(fsum(marks.values()) / len(marks), told, **evidence)


def _mark(taken: int, usual: Spread) -> float:
    deviation = max(usual.deviation, LEAST_SHARE * usual.mean)
    z = (usual.mean - taken) / deviation if deviation else 0.0 if taken == usual.mean else -CUT
    return (min(max(z, -CUT), CUT) + CUT) / (2 * CUT)


def _round(spread: Spread) -> tuple[float, float]:
    return round(spread.mean, 3), round(spread.deviation, 3)


def _said(turns: list[Turn]) -> dict[str, int]:
    found = {"repeats": _repeats(turns)}
    if any(turn.tokens is None for turn in turns):
        found["words"] = sum(len(turn.action.split()) for turn in turns)
    else:
        found["tokens"] = sum(int(np.count_nonzero(turn.tokens.mask_T)) for turn in turns if turn.tokens is not None)
    return found


def _repeats(turns: list[Turn]) -> int:
    calls = [call for turn in turns if OPENING in turn.action for call in _calls(turn.action)]
    return len(calls) - len(set(calls))


def _calls(action: str) -> Iterator[str]:
    for piece in action.split(OPENING)[1:]:
        text = piece.partition(CLOSING)[0].strip()
        try:
            yield json.dumps(json.loads(text), sort_keys=True)
        except (ValueError, RecursionError):
            yield text


def _seconds(trajectory: Trajectory) -> float | None:
    """The time that the policy took. From the beginning to the end of a session its people were thinking, too."""
    if trajectory.source in PLAYED and trajectory.finished_at > trajectory.started_at:
        return trajectory.finished_at - trajectory.started_at
    if trajectory.source is Source.FOREIGN:
        ms = [turn["ms"] for turn in trajectory.extra.get("foreign", {}).get("turns", ()) if "ms" in turn]
        return fsum(ms) / 1000 if ms else None
    answering: float | None = (trajectory.extra.get("session") or {}).get("seconds")
    return answering
