"""The comparison of two arms of an endpoint by concurrent units, and the test that units divide as the shares say."""

import math
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from loomrl.errors import ConfigError
from loomrl.release.betting import Capital, Floats, least_difference
from loomrl.release.guard import Better, Finding, Guard, Side
from loomrl.store.observations import Observation

PROMPT = "prompt_chars"
"""The metric by which prompts are long or short."""
FEWEST_PROMPTS = 20
"""Prompts before one is called long."""


@dataclass(frozen=True, slots=True)
class BetScores:
    """Scores of units in order, for bets on harm (`score`, `below`) and on harmlessness (`-score`, `above`).

    A unit falls to the challenger with a known chance p, so `(is challenger - p) * (harm - centre)` has the mean
    `p * (1 - p) * (harm of challenger - harm of baseline)` at that moment, however both change over time, for any
    centre that is known beforehand.
    """

    score: Floats
    weight: Floats
    below: Floats
    above: Floats


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean harm of earlier units; it starts as if half a unit had been seen."""

    total: Floats | float = 0.5
    count: float = 1.0


def score(harm: Floats, is_challenger: Floats, chance: Floats, before: Mean) -> tuple[BetScores, Mean]:
    """Scores of harms in [0, 1], and the mean after them. Units are the last axis; others come before it."""
    start = np.broadcast_to(before.total, harm.shape[:-1])[..., None]
    totals = np.cumsum(np.concatenate([start, harm], axis=-1), axis=-1)
    centre = totals[..., :-1] / (before.count + np.arange(harm.shape[-1]))
    found = BetScores(
        (is_challenger - chance) * (harm - centre),
        chance * (1 - chance),
        np.maximum((1 - chance) * centre, chance * (1 - centre)),
        np.maximum((1 - chance) * (1 - centre), chance * centre),
    )
    return found, Mean(totals[..., -1], before.count + harm.shape[-1])


def beyond(values: Floats, is_challenger: Floats, guard: Guard, ordered: list[float]) -> tuple[Floats, Floats]:
    """1 for values beyond the baseline's quantile up to then, else 0; NaN before there is one.

    Beyond is above it where lower is better, else below it. The second array eases the quantile for the challenger, by
    the guard's `times` or its margin. `ordered` are the baseline's values up to then, sorted; those of `values` are
    added.
    """
    assert guard.quantile is not None
    plain = np.full(len(values), math.nan)
    eased = np.full(len(values), math.nan)
    times = guard.times or 1.0
    for place, (value, index) in enumerate(zip(values.tolist(), is_challenger.tolist(), strict=True)):
        if ordered:
            limit = quantile_of(ordered, guard.quantile)
            if guard.better is Better.LOWER:
                accepted = max(limit * times, limit + guard.margin) if index else limit
                plain[place] = value > limit
                eased[place] = value > accepted
            else:
                accepted = min(limit / times, limit - guard.margin) if index else limit
                plain[place] = value < limit
                eased[place] = value < accepted
        if not index:
            insort(ordered, value)
    return plain, eased


def quantile_of(ordered: list[float], quantile: float) -> float:
    """The smallest value that at least this share of the sorted values does not exceed."""
    return ordered[max(0, math.ceil(quantile * len(ordered)) - 1)]


class ArmComparison:
    """Evidence about a challenger arm against the baseline arm, valid whenever it is looked at.

    All guards together have one `error_rate`: the chance that a challenger that is at no moment worse in anything is
    ever found worse in something. A challenger that is worse by more than a guard accepts is ever found fine by that
    guard with at most the same chance; since all required guards must find it fine, that is not divided. Several
    challengers of one baseline divide the error rate among them.
    """

    def __init__(self, guards: Sequence[Guard], *, baseline: str, challenger: str, error_rate: float = 0.05) -> None:
        if baseline == challenger:
            raise ConfigError(f"baseline={baseline!r}: the challenger is the same arm. Compare two arms.")
        if not 0 < error_rate < 1:
            raise ConfigError(f"error_rate={error_rate}: must lie between 0 and 1, for example 0.05.")
        self.baseline = baseline
        self.challenger = challenger
        self.not_finite: Counter[str] = Counter()
        """Observations that were not finite, by metric; they count nowhere else."""
        self._tracks = [_Track(guard, error_rate / max(1, len(guards)), error_rate) for guard in guards]
        self._metrics = {guard.metric for guard in guards}
        self._seen: dict[str, set[int]] = {metric: set() for metric in self._metrics}
        self._longest = {guard.longest: set[int]() for guard in guards if guard.longest is not None}
        """Share → units whose prompts are among the longest."""
        self._prompts: list[float] = []
        """Lengths, sorted."""
        self._chances: dict[int, float] = {}

    def observe(self, observations: Iterable[Observation], shares: Callable[[int], Mapping[str, float]]) -> None:
        """Take observations in the order of the log. `shares` gives those of the arms under a revision.

        Observations of other arms do not count, nor those of a revision under which one of the two had no share:
        nothing was concurrent then. All have to be assigned by these shares (see `Observation.test`).
        """
        batches: dict[str, list[tuple[float, float, float]]] = {metric: [] for metric in self._metrics}
        units: dict[str, list[int]] = {metric: [] for metric in self._metrics}
        for observation in observations:
            if observation.metric == PROMPT and self._longest and observation.arm in (self.baseline, self.challenger):
                self._sort_prompt(observation)
            if observation.metric not in batches or observation.arm not in (self.baseline, self.challenger):
                continue
            if not math.isfinite(observation.value):
                self.not_finite[observation.metric] += 1
                continue
            chance = self._chance(observation.revision, shares)
            seen = self._seen[observation.metric]
            if observation.unit in seen or not 0 < chance < 1:
                continue
            seen.add(observation.unit)
            is_challenger = float(observation.arm == self.challenger)
            batches[observation.metric].append((observation.value, is_challenger, chance))
            units[observation.metric].append(observation.unit)
        for track in self._tracks:
            batch = batches[track.guard.metric]
            if track.guard.longest is not None:
                among = self._longest[track.guard.longest]
                whose = units[track.guard.metric]
                batch = [each for each, unit in zip(batch, whose, strict=True) if unit in among]
            if batch:
                track.take(*np.asarray(batch, np.float64).T)

    def findings(self, *, with_bounds: bool = True) -> tuple[Finding, ...]:
        """The evidence about each guard, in their order.

        Verdicts cost the same after any number of units, bounds a pass over all of them. Without bounds they are
        those that hold before the first unit.
        """
        return tuple(track.finding(with_bounds=with_bounds) for track in self._tracks)

    @property
    def clipped(self) -> dict[str, int]:
        """Observations beyond their guard's bounds, by metric; they count as the bound."""
        return {track.guard.metric: track.clipped for track in self._tracks if track.clipped}

    def _sort_prompt(self, prompt: Observation) -> None:
        """A unit's prompt against all before it, of both arms; its length does not depend on the arm."""
        if len(self._prompts) >= FEWEST_PROMPTS:
            for share, units in self._longest.items():
                if prompt.value > quantile_of(self._prompts, 1 - share):
                    units.add(prompt.unit)
        insort(self._prompts, prompt.value)

    def _chance(self, revision: int, shares: Callable[[int], Mapping[str, float]]) -> float:
        """The challenger's chance among units of the two arms; 0 if it has none."""
        if revision not in self._chances:
            given = shares(revision)
            new = given.get(self.challenger, 0.0)
            old = given.get(self.baseline, 0.0)
            self._chances[revision] = new / (new + old) if new > 0 and old > 0 else 0.0
        return self._chances[revision]


def check_guard(guard: Guard) -> None:
    """A ConfigError for settings that contradict each other."""
    name = f"guard {guard.metric!r}"
    if not guard.low < guard.high:
        raise ConfigError(f"{name}: low={guard.low} must be below high={guard.high}.")
    if guard.margin < 0:
        raise ConfigError(f"{name}: margin={guard.margin} must not be negative.")
    if guard.quantile is not None and not 0 < guard.quantile < 1:
        raise ConfigError(f"{name}: quantile={guard.quantile} must lie between 0 and 1, for example 0.95.")
    if guard.better is Better.HIGHER and guard.times is not None and guard.quantile is None:
        raise ConfigError(f"{name}: times needs a metric where lower is better, or a quantile. Give a margin.")
    if guard.times is None:
        return
    if guard.times < 1:
        raise ConfigError(f"{name}: times={guard.times} must be at least 1.")
    if guard.margin and guard.quantile is None:
        raise ConfigError(f"{name}: times={guard.times} is instead of margin={guard.margin}. Leave one out.")
    if guard.quantile is None and guard.low != 0:
        raise ConfigError(f"{name}: times needs low=0, not {guard.low}. Give a margin.")


@dataclass(slots=True)
class _ArmValues:
    count: int = 0
    total: float = 0.0
    ordered: list[float] = field(default_factory=list)
    """Only for quantiles."""

    def value(self, quantile: float | None) -> float:
        if not self.count:
            return math.nan
        return self.total / self.count if quantile is None else quantile_of(self.ordered, quantile)


class _Sums:
    """The running mean of harms, and the sums of scores and weights."""

    def __init__(self) -> None:
        self._mean = Mean()
        self.score = self.weight = 0.0

    def take(self, harm: Floats, is_challenger: Floats, chance: Floats) -> BetScores:
        found, self._mean = score(harm, is_challenger, chance, self._mean)
        self.score = _add(self.score, found.score)
        self.weight = _add(self.weight, found.weight)
        return found

    @property
    def difference(self) -> float:
        return self.score / self.weight if self.weight else math.nan


class _Track:
    """The observations of one guard."""

    def __init__(self, guard: Guard, share_of_error: float, error_rate: float) -> None:
        check_guard(guard)
        self.guard = guard
        self.clipped = 0
        self._share_of_error = share_of_error
        self._error_rate = error_rate
        self._range = guard.high - guard.low if guard.quantile is None else 1.0
        self._accepted = guard.margin / self._range if guard.quantile is None else guard.share
        self._arms = (_ArmValues(), _ArmValues())
        self._plain = _Sums()
        self._eased = _Sums()
        self._worse, self._fine = Capital(0.0), Capital(-self._accepted)
        self._history: list[BetScores] = []
        self._bounds: tuple[float, float] | None = (-1.0, 1.0)

    def take(self, values: Floats, is_challenger: Floats, chance: Floats) -> None:
        """Finite values in order. The eased harm is the one after what the guard accepts by `times`."""
        plain, eased = (self._beyond if self.guard.quantile is not None else self._harms)(values, is_challenger)
        known = ~np.isnan(plain)
        plain = plain[known]
        eased = eased[known]
        is_challenger = is_challenger[known]
        chance = chance[known]
        if not len(plain):
            return
        found = self._plain.take(plain, is_challenger, chance)
        self._worse.grow(found.score, found.weight, found.below)
        self._history.append(found)
        self._bounds = None
        found = self._eased.take(eased, is_challenger, chance)
        self._fine.grow(-found.score, found.weight, found.above)

    def _harms(self, values: Floats, is_challenger: Floats) -> tuple[Floats, Floats]:
        """Harms of values compared by their mean: 0 is the best value, 1 the worst."""
        guard = self.guard
        inside = np.clip(values, guard.low, guard.high)
        self.clipped += int((inside != values).sum())
        for index, arm in enumerate(self._arms):
            mine = inside[is_challenger == index]
            arm.count += len(mine)
            arm.total = _add(arm.total, mine)
        harm = (inside - guard.low if guard.better is Better.LOWER else guard.high - inside) / self._range
        return harm, np.where(is_challenger == 1, harm / (guard.times or 1.0), harm)

    def _beyond(self, values: Floats, is_challenger: Floats) -> tuple[Floats, Floats]:
        """Harms of values compared by a quantile: 1 beyond the baseline's quantile up to then, else 0; NaN before there
        is one."""
        baseline, challenger = self._arms
        found = beyond(values, is_challenger, self.guard, baseline.ordered)
        for value in values[is_challenger == 1].tolist():
            insort(challenger.ordered, value)
        baseline.count = len(baseline.ordered)
        challenger.count = len(challenger.ordered)
        return found

    def finding(self, *, with_bounds: bool) -> Finding:
        """The evidence up to now."""
        guard = self.guard
        if self._bounds is None and with_bounds:
            self._bounds = self._interval()
        difference, (low, high) = self._plain.difference, self._bounds or (-1.0, 1.0)
        if guard.better is Better.HIGHER and guard.quantile is None:
            difference, low, high = -difference, -high, -low
        old, new = (Side(value=arm.value(guard.quantile), count=arm.count) for arm in self._arms)
        return Finding(
            guard=guard,
            baseline=old,
            challenger=new,
            difference=difference * self._range,
            low=low * self._range,
            high=high * self._range,
            is_proved=self._is_proved,
            is_worse=self._is_proved and self._eased.difference > self._accepted,
            is_fine=self._fine.log_now >= -math.log(self._error_rate),
        )

    @property
    def _is_proved(self) -> bool:
        """Once true, always true: later observations do not refute that it was worse."""
        return self._worse.log_most >= -math.log(self._share_of_error)

    def _interval(self) -> tuple[float, float]:
        """Bounds of the difference of harms; each fails with the chance that a false alarm has."""
        scored, weight, below, above = (
            np.concatenate([getattr(part, name) for part in self._history])
            for name in ("score", "weight", "below", "above")
        )
        self._history = [BetScores(scored, weight, below, above)]
        low = least_difference(scored, weight, below, self._share_of_error)
        high = -least_difference(-scored, weight, above, self._share_of_error)
        return low, high


def _add(before: float, values: Floats) -> float:
    """The sum, added one by one, so that it is the same however the values come in batches."""
    return float(np.cumsum(np.concatenate([[before], values]))[-1])


CONCENTRATION = 100.0
"""The units that the expectation counts for: more notices small mismatches sooner, and large ones later."""


class Mismatch:
    """A test for a mismatch of shares that may be looked at after every unit (sample ratio mismatch).

    The Dirichlet-multinomial test of Lindon & Malek ("Anytime-valid inference for multinomial count data"), for shares
    that may change between units: an arm that got more units than its shares said is expected to get more again.
    """

    def __init__(self, *, error_rate: float = 0.001) -> None:
        self.error_rate = error_rate
        self.counts: Counter[str] = Counter()
        self.expected: dict[str, float] = {}
        self._log_now = self._log_most = 0.0

    def observe(self, arm: str, shares: Mapping[str, float]) -> None:
        """One more unit that was assigned to `arm`. Call it once per unit; `shares` sum to 1."""
        share = shares.get(arm, 0.0)
        if share <= 0:
            self._log_now = self._log_most = math.inf
        else:
            tilted = {name: each * self._tilt(name, each) for name, each in shares.items() if each > 0}
            self._log_now += math.log(tilted[arm] / sum(tilted.values()) / share)
            self._log_most = max(self._log_most, self._log_now)
        self.counts[arm] += 1
        for name, each in shares.items():
            self.expected[name] = self.expected.get(name, 0.0) + each

    def _tilt(self, arm: str, share: float) -> float:
        prior = CONCENTRATION * share
        return (prior + self.counts[arm]) / (prior + self.expected.get(arm, 0.0))

    @property
    def p_value(self) -> float:
        """The least since the beginning: under the shares it ever falls to p with a chance of at most p."""
        return math.exp(-self._log_most)

    @property
    def is_mismatched(self) -> bool:
        """Proved that the units do not fall as the shares say: no comparison of these arms may be believed."""
        return self.p_value <= self.error_rate
