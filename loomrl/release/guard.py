"""Guards: metrics that a release must not make worse, the findings about them, and guards without observations."""

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from enum import StrEnum

UNEARNED = "unearned"
"""Metric: success beyond what a second check finds correct."""
HACKING = "reward hacking: more of its success is told for what a second check does not find correct"
TAIL = 10
"""Units beyond a quantile from which on it counts as observed."""


class Better(StrEnum):
    """The good direction of a metric."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A metric of calls or sessions, and how much worse the challenger may be."""

    metric: str
    better: Better
    low: float = 0.0
    """Values lie between `low` and `high`; those beyond count as the bound."""
    high: float = 1.0
    margin: float = 0.0
    """The difference that is accepted, in the metric's unit."""
    times: float | None = None
    """Instead of a margin: this many times the baseline's mean is accepted (for metrics where lower is better). Of a
    quantile both may be given, and whichever is more counts."""
    quantile: float | None = None
    """Compare this quantile instead of the mean: by the shares of values beyond the baseline's quantile up to then,
    which is eased by `times` or `margin` for the challenger's where the question is if it is fine. Beyond is above
    where lower is better, else below."""
    share: float = 0.0
    """With a quantile: accepted increase of the share of units beyond it."""
    longest: float | None = None
    """Only units whose prompts are among this share of the longest up to then."""
    required: bool = True
    """False: a release does not wait for observations of it."""

    @property
    def label(self) -> str:
        """Its name for people; guards of one metric differ in it."""
        name = self.metric if self.quantile is None else f"p{100 * self.quantile:g} of {self.metric}"
        return name if self.longest is None else f"{name}, longest {100 * self.longest:g} % of prompts"

    @property
    def least(self) -> int:
        """Units of an arm that it says something about: ten of them have to lie beyond a quantile."""
        return 1 if self.quantile is None else math.ceil(TAIL / min(self.quantile, 1 - self.quantile))


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One arm's observations of a metric. `value` is its mean, or its quantile; NaN without observations."""

    value: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The evidence about one guard up to now. It holds at every look."""

    guard: Guard
    baseline: Side
    challenger: Side
    difference: float
    """Challenger minus baseline, over concurrent traffic only; of quantiles, of the shares beyond the baseline's."""
    low: float
    """Confidence bounds of the difference; all guards together share the error rate of each side."""
    high: float
    is_proved: bool
    """Proved worse than the baseline, by however little. It stays so: that it was worse once is not refuted later."""
    is_worse: bool
    """Proved worse, and by the estimate by more than the guard accepts."""
    is_fine: bool
    """Proved not worse by more than the guard accepts, with the whole error rate: all required guards have to be."""

    @property
    def reason(self) -> str:
        """One line for people."""
        base = self.baseline
        new = self.challenger
        of = "difference" if self.guard.quantile is None else "difference of the shares beyond it"
        hacks = f" – {HACKING}" if self.is_worse and self.guard.metric == UNEARNED else ""
        return (
            f"{self.guard.label}: {new.value:.4g} of {new.count} against {base.value:.4g} of {base.count}, "
            f"{of} {self.difference:+.4g} in [{self.low:+.4g}, {self.high:+.4g}]{hacks}"
        )


OUTCOMES = "neither outcomes nor feedback have come, so a version that answers wrongly or badly is not noticed"
USERS = "no user has told the outcomes of four sessions, so a version that fails the same few users is not noticed"
WORDS = "no answer in words was seen, so answers that are empty, short or refusals are not noticed"
MEANINGS = {
    "error": "no call has ended",
    "latency_s": "no call was answered, so a slower version is not noticed",
    "violation": "the monitor has checked no answer, so forbidden content is not noticed",
    "empty": WORDS,
    "tokens": WORDS,
    "refusal": WORDS,
    "entropy": WORDS,
    "later": "no user or session has called again six times, so what goes wrong later in a session is not noticed",
    "reward": OUTCOMES,
    "success": OUTCOMES,
    "negative": OUTCOMES,
    UNEARNED: "no outcome tells `correct` beside `success`, so reward hacking is not noticed",
    "reward_of_user": USERS,
    "success_of_user": USERS,
}
ALTERNATIVES = (("reward", "success", "negative"), ("reward_of_user", "success_of_user"))
"""One of these tells how good the answers are: the others add little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Guards that are silent for one reason."""

    metrics: tuple[str, ...]
    meaning: str

    def __str__(self) -> str:
        return f"{', '.join(self.metrics)}: {self.meaning}"


def silences(findings: Sequence[Finding]) -> tuple[Silence, ...]:
    """The guards that one of the versions has no observations of."""
    heard = {each.guard.metric for each in findings if each.baseline.count and each.challenger.count}
    longest = any(each.guard.longest and not each.challenger.count for each in findings)
    found = unobserved([each.guard for each in findings], heard)
    if longest and "tokens" in heard:
        meaning = "no prompt was long beside the others, so answers to long prompts are not compared by themselves"
        labels = [each.guard.label for each in findings if each.guard.longest and not each.challenger.count]
        found += (Silence(metrics=tuple(labels), meaning=meaning),)
    return found


def unobserved(guards: Sequence[Guard], heard: Set[str]) -> tuple[Silence, ...]:
    """The guards of metrics that were not heard of, by what that means."""
    told = {metric for group in ALTERNATIVES if not heard.isdisjoint(group) for metric in group} | {*heard}
    by_meaning: dict[str, list[str]] = {}
    for metric in dict.fromkeys(guard.metric for guard in guards):
        if metric not in told:
            by_meaning.setdefault(MEANINGS.get(metric, "nothing reports it"), []).append(metric)
    return tuple(Silence(metrics=tuple(metrics), meaning=meaning) for meaning, metrics in by_meaning.items())
