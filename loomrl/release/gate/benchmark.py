"""Scores of a policy and its baseline on the same tasks: benchmark, regression, improvement."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from loomrl.config.suite import LoggedReturn
from loomrl.errors import ConfigError
from loomrl.evaluation.offpolicy import OffPolicy
from loomrl.evaluation.statistics import Interval
from loomrl.release.gate.check import CheckState, Example, GateCheck
from loomrl.release.gate.proof import Bounded, difference, share, worse


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkScores:
    """Scores in 0..1 on the tasks of one benchmark, in one order. None: the attempt failed."""

    benchmark: str
    families: Sequence[str]
    """The family of each task."""
    challenger: Sequence[float | None]
    baseline: Sequence[float | None] | None
    """None without a baseline."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Kind of failure → count."""
    examples: Sequence[Example] = ()
    """Tasks that the challenger did not solve."""

    def as_dict(self) -> dict[str, Any]:
        """The input of the checks, as plain JSON values."""
        return {
            "benchmark": self.benchmark,
            "families": list(self.families),
            "challenger": list(self.challenger),
            "baseline": None if self.baseline is None else list(self.baseline),
            "failures": dict(self.failures),
        }

    @property
    def pairs(self) -> list[tuple[str, tuple[float, float]]]:
        """The task's family with the scores of baseline and challenger, where both attempts ended."""
        if self.baseline is None:
            return []
        rows = zip(self.families, self.baseline, self.challenger, strict=True)
        return [(family, (old, new)) for family, old, new in rows if old is not None and new is not None]

    def failed(self, may_fail: float) -> str | None:
        """A reason if more than this share of the attempts failed."""
        attempts = [*self.challenger, *(self.baseline or ())]
        return too_many_failed(sum(score is None for score in attempts), len(attempts), may_fail, self.failures)


def too_many_failed(failed: int, attempts: int, may_fail: float, failures: Mapping[str, int]) -> str | None:
    """A reason if more than the allowed share of attempts failed. Failures that differ in numbers are one kind."""
    if failed <= may_fail * attempts:
        return None
    alike: dict[str, tuple[int, str]] = {}
    for kind, count in sorted(failures.items()):
        before, first = alike.get(key := re.sub(r"\d+", "0", kind), (0, kind))
        alike[key] = before + count, first
    kinds = "; ".join(f"{count} × {first}" for count, first in sorted(alike.values(), reverse=True))
    return f"{failed} of {attempts} attempts failed (may_fail={may_fail:g}): {kinds}"


def benchmark(scores: BenchmarkScores, at_least: float | None, *, error_rate: float, may_fail: float) -> GateCheck:
    """The challenger's mean success, against the threshold."""
    name = f"benchmark {scores.benchmark}"
    broken = scores.failed(may_fail)
    if broken is not None:
        return GateCheck(name=name, state=CheckState.ERROR, reason=broken, figures={"failures": dict(scores.failures)})
    done = [score for score in scores.challenger if score is not None]
    found = share(math.fsum(done), len(done), error_rate=error_rate)
    figures = {"success": asdict(found), "at_least": at_least, "failures": dict(scores.failures)}
    if at_least is None:
        return GateCheck(name=name, state=CheckState.PASSED, reason=f"success {found}, no threshold", figures=figures)
    state = CheckState.PASSED if found.low >= at_least else CheckState.FAILED
    verb = "proved" if state is CheckState.PASSED else "not proved"
    reason = f"success {found}: at least {at_least:g} is {verb}"
    return GateCheck(name=name, state=state, reason=reason, figures=figures, examples=scores.examples)


def regression(every: Sequence[BenchmarkScores], margin: float, *, error_rate: float, may_fail: float) -> GateCheck:
    """Each family against the baseline's; fails where the estimate is beyond the margin and worsening is proved."""
    if any(scores.baseline is None for scores in every):
        return GateCheck(name="regression", state=CheckState.NOT_APPLICABLE, reason="there is no baseline")
    broken = next(filter(None, (scores.failed(may_fail) for scores in every)), None)
    if broken is not None:
        return GateCheck(name="regression", state=CheckState.ERROR, reason=broken)
    families = _by_family(every)
    budget = error_rate / len(families)
    figures = {}
    bad = []
    for family, pairs in families.items():
        found = difference(pairs, error_rate=budget)
        p = worse([new - old for old, new in pairs])
        figures[family] = {**asdict(found), "p": p}
        if found.mean < -margin and p <= budget:
            bad.append(f"{family} {found.mean:+.3f} in [{found.low:+.3f}, {found.high:+.3f}], p={p:.2g}")
    if bad:
        reason = f"worse than the baseline by more than {margin:g}: {'; '.join(bad)}"
        return GateCheck(name="regression", state=CheckState.FAILED, reason=reason, figures=figures)
    least = min(figures, key=lambda family: float(figures[family]["mean"]))
    reason = f"no family is proved worse by more than {margin:g}; lowest {least} {figures[least]['mean']:+.3f}"
    return GateCheck(name="regression", state=CheckState.PASSED, reason=reason, figures=figures)


def improvement(every: Sequence[BenchmarkScores], *, error_rate: float) -> Bounded | None:
    """The mean difference over all tasks; None without a baseline."""
    pairs = [pair for scores in every for _, pair in scores.pairs]
    return difference(pairs, error_rate=error_rate / 2) if pairs else None


def refuse_blind(sizes: Mapping[str, int], margin: float, *, error_rate: float, is_binary: bool) -> None:
    """A ConfigError if a family's sample cannot show a worsening by the margin, even where no other pair differs."""
    budget = error_rate / len(sizes)
    needed = math.ceil(-math.log2(budget))
    least = math.ceil((needed - 1) / margin) if is_binary else needed
    small = {family: count for family, count in sizes.items() if count < least}
    if small:
        family, count = min(small.items())
        raise ConfigError(
            f"regression.margin={margin:g}: thresholds that cannot be met: {family} has {count} tasks, too few to "
            f"prove a difference of {margin:g} with error_rate={error_rate:g} shared by {len(sizes)} families. "
            f"At least {least} per family are needed: raise benchmarks.N.episodes, name fewer families, or raise the "
            "margin."
        )


def _by_family(every: Sequence[BenchmarkScores]) -> dict[str, list[tuple[float, float]]]:
    families: dict[str, list[tuple[float, float]]] = {}
    for scores in every:
        for family, pair in scores.pairs:
            families.setdefault(f"{scores.benchmark}/{family}", []).append(pair)
    return families


def check_logged(rule: LoggedReturn, found: OffPolicy) -> GateCheck:
    """The lower bound against the threshold; without a result if the logs are too much another policy's."""
    name = f"logged {rule.data.name}"
    estimate: Interval = getattr(found, rule.estimator)
    if found.effective < rule.effective:
        reason = (
            f"too little to say: the logs are worth {found.effective:.1f} episodes of this policy, and "
            f"{rule.effective:g} are needed: log a policy that is more like it, or more episodes"
        )
        silent = {"effective": found.effective, "needed": rule.effective, "left_out": found.left_out}
        return GateCheck(name=name, state=CheckState.ERROR, reason=reason, figures=silent)
    figures = {**found.as_dict(), "estimator": rule.estimator, "at_least": rule.at_least}
    told = f"{rule.estimator} {estimate.mean:.4g} in [{estimate.low:.4g}, {estimate.high:.4g}]"
    state = CheckState.PASSED if estimate.low >= rule.at_least else CheckState.FAILED
    verb = "proved" if state is CheckState.PASSED else "not proved"
    return GateCheck(name=name, state=state, reason=f"{told}: at least {rule.at_least:g} is {verb}", figures=figures)
