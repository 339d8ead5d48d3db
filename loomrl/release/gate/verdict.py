"""The verdict over all checks, and the strategy of release that the improvement suggests."""

from collections.abc import Sequence

from loomrl.release.gate.check import Check, State
from loomrl.release.gate.proof import Bounded
from loomrl.store.verdicts import VerdictOutcome

BLUE_GREEN = 0.15
CANARY = 0.05
"""Improvements from which a release is all at once, or begins with a larger canary."""


def improved(found: Bounded | None, *, least: float | None = None) -> Check:
    """The improvement as a check: a policy that is proved worse than its baseline is not released.

    `least`: nor one that is not proved better by more than this.
    """
    name = "improvement"
    if found is None:
        return Check(name=name, state=State.NOT_APPLICABLE, reason="there is no baseline")
    reason = f"{found.mean:+.3f} in [{found.low:+.3f}, {found.high:+.3f}] over {found.count} pairs"
    figures = {"mean": found.mean, "low": found.low, "high": found.high, "count": found.count}
    if found.high < 0:
        return Check(name=name, state=State.FAILED, reason=f"worse than the baseline: {reason}", figures=figures)
    if least is not None and found.low <= least:
        reason = f"not proved better than the baseline by more than {least:g}: {reason}"
        return Check(name=name, state=State.FAILED, reason=reason, figures=figures)
    return Check(name=name, state=State.PASSED, reason=reason, figures=figures)


def outcome_of(checks: Sequence[Check], *, needs_approval: bool) -> VerdictOutcome:
    """The outcome: refused by a failed check; else an error if a check has no result."""
    states = {check.state for check in checks}
    if State.FAILED in states:
        return VerdictOutcome.REFUSED
    if State.ERROR in states:
        return VerdictOutcome.ERROR
    return VerdictOutcome.WAITING if needs_approval else VerdictOutcome.ALLOWED


def strategy_of(outcome: VerdictOutcome, found: Bounded | None) -> tuple[str, float]:
    """The strategy of release and its first share: `blue_green`, `canary`, or `stop`."""
    if outcome in (VerdictOutcome.REFUSED, VerdictOutcome.ERROR):
        return "stop", 0.0
    if found is not None and found.mean >= BLUE_GREEN:
        return "blue_green", 1.0
    return "canary", 0.10 if found is not None and found.mean >= CANARY else 0.05
