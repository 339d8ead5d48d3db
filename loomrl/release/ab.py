"""The result of an A/B test: every arm against the first, valid whenever it is looked at."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from loomrl.errors import ConfigError
from loomrl.release.comparison import ArmComparison, Mismatch, check_guard
from loomrl.release.guard import UNEARNED, Better, Finding, Guard
from loomrl.store.ab_tests import AbTest
from loomrl.store.observations import Observation

ERROR_RATE = 0.05
LOWER = (
    *("error", "violation", "negative", "latency_s", "first_token_s", "refusal", "tokens", "empty", "later"),
    UNEARNED,
)
"""Metrics of the gateway where lower is better."""
HIGHEST = {"latency_s": 60.0, "first_token_s": 60.0, "tokens": 4096.0, "entropy": 5.0}
"""Upper bound of a metric's values; 1 for other metrics."""


@dataclass(frozen=True, slots=True)
class ArmResult:
    """An arm of a test. The first one has no findings: it is what the others are compared with."""

    name: str
    share: float
    units: int
    findings: tuple[Finding, ...]
    """The finding on the metric first, then those on the guards."""
    is_better: bool
    """Proved better in the metric."""


@dataclass(frozen=True, slots=True)
class AbResult:
    """The result of a test so far."""

    arms: tuple[ArmResult, ...]
    mismatch: float
    """P-value of the shares: if units are not divided as planned, something else is wrong."""
    is_mismatched: bool
    silent: tuple[str, ...]
    """Metrics without observations."""

    @property
    def decision(self) -> str:
        """One line for people."""
        if self.is_mismatched:
            return f"not valid: units did not fall to the arms as their shares say (p = {self.mismatch:.2g})"
        worse = [f"{arm.name} ({f.guard.metric})" for arm in self.arms for f in arm.findings if f.is_worse]
        better = [
            arm.name for arm in self.arms if arm.is_better and not any(finding.is_worse for finding in arm.findings)
        ]
        said = [f"better: {', '.join(better)}"] * bool(better) + [f"worse: {', '.join(worse)}"] * bool(worse)
        return "; ".join(said) or "nothing is proved yet"


@dataclass(slots=True)
class AbReading:
    """Reads a test's observations and computes its result. The challengers and their guards share one error rate."""

    test: AbTest
    _units: dict[str, set[int]] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _mismatch: Mismatch = field(default_factory=Mismatch)
    _comparisons: dict[str, tuple[ArmComparison, ArmComparison]] = field(init=False)
    """Challenger → it against the first, and the first against it: the other direction of the metric."""

    def __post_init__(self) -> None:
        test = self.test
        first, *others = test.shares
        guards = guards_of(test)
        rate = ERROR_RATE / 2 / len(others)
        self._comparisons = {
            other: (
                ArmComparison(guards, baseline=first, challenger=other, error_rate=rate),
                ArmComparison(guards[:1], baseline=other, challenger=first, error_rate=rate),
            )
            for other in others
        }
        self._units = {name: set() for name in test.shares}

    def observe(self, observations: Iterable[Observation]) -> None:
        """Add observations in the order of the log; only those of this test count."""
        mine = [each for each in observations if self._is_mine(each)]
        everybody = set().union(*self._units.values())
        for each in mine:
            self._seen.add(each.metric)
            if each.unit not in everybody:
                everybody.add(each.unit)
                self._units[each.arm].add(each.unit)
                self._mismatch.observe(each.arm, self.test.shares)
        for pair in self._comparisons.values():
            for comparison in pair:
                comparison.observe(mine, lambda _: self.test.shares)

    def result(self) -> AbResult:
        """The result so far."""
        test = self.test
        arms = []
        for name, share in test.shares.items():
            findings: tuple[Finding, ...] = ()
            is_better = False
            if name in self._comparisons:
                there, back = self._comparisons[name]
                findings = there.findings()
                is_better = back.findings()[0].is_worse
            arms.append(ArmResult(name, share, len(self._units[name]), findings, is_better))
        silent = tuple(metric for metric in (test.metric, *test.guards) if metric not in self._seen)
        return AbResult(tuple(arms), self._mismatch.p_value, self._mismatch.is_mismatched, silent)

    def _is_mine(self, each: Observation) -> bool:
        test = self.test
        return each.test == test.name and each.at >= test.started_at and each.arm in test.shares


def guards_of(test: AbTest) -> list[Guard]:
    """The metric, then the guards; the names of the gateway's metrics tell the good direction."""
    metric = Guard(metric=test.metric, better=Better(test.better), low=test.low, high=test.high)
    found = [metric, *(_guard(name, margin) for name, margin in test.guards.items())]
    for guard in found:
        check_guard(guard)
    return found


def check_test(test: AbTest) -> None:
    """A ConfigError for settings that contradict each other."""
    where = f"A/B test {test.name!r}"
    total = sum(test.shares.values())
    if len(test.shares) < 2:
        raise ConfigError(f"{where}: at least two arms are needed, such as --arm stable:0.5 --arm new=RUN/7:0.5.")
    if not all(share > 0 for share in test.shares.values()) or not math.isclose(total, 1.0, abs_tol=1e-6):
        shares = ", ".join(f"{name} {share:g}" for name, share in test.shares.items())
        raise ConfigError(f"{where}: the arms' shares ({shares}) must be above 0 and sum to 1, not {total:g}.")
    if not 0 < test.end - test.start <= 1:
        raise ConfigError(f"{where}: share={test.end - test.start:g} of the layer must be above 0 and at most 1.")
    if test.metric in test.guards:
        raise ConfigError(f"{where}: {test.metric!r} is the metric already; leave it out of the guards.")
    guards_of(test)


def _guard(metric: str, margin: float) -> Guard:
    better = Better.LOWER if metric in LOWER else Better.HIGHER
    return Guard(metric=metric, better=better, high=HIGHEST.get(metric, 1.0), margin=margin)


def as_json(result: AbResult) -> Mapping[str, object]:
    """The result as JSON."""
    return {
        "decision": result.decision,
        "mismatch": {"p_value": result.mismatch, "is_mismatched": result.is_mismatched},
        "silent": list(result.silent),
        "arms": [
            {
                "name": arm.name,
                "share": arm.share,
                "units": arm.units,
                "is_better": arm.is_better,
                "findings": [_finding(finding) for finding in arm.findings],
            }
            for arm in result.arms
        ],
    }


def _finding(finding: Finding) -> dict[str, object]:
    def number(value: float) -> float | None:
        return value if math.isfinite(value) else None

    return {
        "metric": finding.guard.metric,
        "value": number(finding.challenger.value),
        "baseline": number(finding.baseline.value),
        "count": finding.challenger.count,
        "baseline_count": finding.baseline.count,
        "difference": number(finding.difference),
        "low": number(finding.low),
        "high": number(finding.high),
        "is_worse": finding.is_worse,
        "is_fine": finding.is_fine,
    }
