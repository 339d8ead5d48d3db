"""A check's result, the checks of improvement and origin, and the verdict over all checks."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from loomrl.config.suite import Provenance
from loomrl.release.gate.proof import Bounded
from loomrl.store.verdicts import VerdictOutcome


class CheckState(StrEnum):
    """A check without a result (error) is neither a failure of the policy nor a pass."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A piece of evidence: the task or prompt, the policy's answer, and the reason why it counts."""

    prompt: str
    answer: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """The result of one check."""

    name: str
    """`benchmark Math`, `safety.secrets`."""
    state: CheckState
    reason: str
    """One line with the figures."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Estimates, bounds and counts, as JSON."""
    examples: Sequence[Example] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self) | {"state": self.state.value, "examples": [asdict(each) for each in self.examples]}


BLUE_GREEN = 0.15
CANARY = 0.05
"""Improvements above which the gate advises blue-green, or a larger first canary step."""
LEAST_CHANGE = "least_change"
"""Figure of the check by logs: the lower bound of the change in mean reward."""
MAY_LOSE = 0.05
"""Loss that the default guards accept: if logs exclude more, the canary begins with a larger share."""


def improvement_check(found: Bounded | None, *, least: float | None = None) -> GateCheck:
    """The improvement as a check: a policy that is proved worse than its baseline is not released.

    `least`: nor one that is not proved better by more than this.
    """
    name = "improvement"
    if found is None:
        return GateCheck(name=name, state=CheckState.NOT_APPLICABLE, reason="there is no baseline")
    reason = f"{found.mean:+.3f} in [{found.low:+.3f}, {found.high:+.3f}] over {found.count} pairs"
    figures = {"mean": found.mean, "low": found.low, "high": found.high, "count": found.count}
    if found.high < 0:
        return GateCheck(
            name=name, state=CheckState.FAILED, reason=f"worse than the baseline: {reason}", figures=figures
        )
    if least is not None and found.low <= least:
        reason = f"not proved better than the baseline by more than {least:g}: {reason}"
        return GateCheck(name=name, state=CheckState.FAILED, reason=reason, figures=figures)
    return GateCheck(name=name, state=CheckState.PASSED, reason=reason, figures=figures)


def outcome_of(checks: Sequence[GateCheck], *, needs_approval: bool) -> VerdictOutcome:
    """The outcome: refused by a failed check; else an error if a check has no result."""
    states = {check.state for check in checks}
    if CheckState.FAILED in states:
        return VerdictOutcome.REFUSED
    if CheckState.ERROR in states:
        return VerdictOutcome.ERROR
    return VerdictOutcome.WAITING if needs_approval else VerdictOutcome.ALLOWED


def strategy_of(outcome: VerdictOutcome, found: Bounded | None, checks: Sequence[GateCheck]) -> tuple[str, float]:
    """The strategy of release and its first share: `blue_green`, `canary`, or `stop`."""
    if outcome in (VerdictOutcome.REFUSED, VerdictOutcome.ERROR):
        return "stop", 0.0
    if found is not None and found.mean >= BLUE_GREEN:
        return "blue_green", 1.0
    if any(check.figures.get(LEAST_CHANGE, -1.0) >= -MAY_LOSE for check in checks):
        return "canary", 0.25
    return "canary", 0.10 if found is not None and found.mean >= CANARY else 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionOrigin:
    """The facts about a version in LoomDB and in this installation."""

    lineage: Mapping[str, Any] | None
    """`loomrl.store.policies.lineage`; None if no recorded run made it."""
    gone: Sequence[str] = ()
    """Environment versions that it was trained on and that cannot be opened as they were."""


def provenance(rules: Provenance, origin: VersionOrigin) -> GateCheck:
    """The check of a version's origin; the reason names every fault."""
    name = "provenance"
    if origin.lineage is None:
        state = CheckState.FAILED if rules.unknown == "refuse" else CheckState.NOT_APPLICABLE
        return GateCheck(name=name, state=state, reason="no recorded run made it")
    versions = [origin.lineage, *origin.lineage["ancestors"]]
    faults = [fault for version in versions for fault in _faults(rules, version)]
    faults += [f"environment {each} no longer exists as it was" for each in origin.gone]
    oldest = versions[-1]
    if oldest["parent"] is not None:
        faults.append(f"{oldest['id']}: its parent {oldest['parent']} is not on record")
    figures = {"versions": [version["id"] for version in versions], "faults": faults}
    if faults:
        return GateCheck(name=name, state=CheckState.FAILED, reason="; ".join(faults[:5]), figures=figures)
    reason = f"{len(versions)} version(s) on record, down to {oldest['id']}"
    return GateCheck(name=name, state=CheckState.PASSED, reason=reason, figures=figures)


def _faults(rules: Provenance, version: Mapping[str, Any]) -> list[str]:
    made = version["made_from"]
    id = version["id"]
    faults = []
    if rules.clean and str(made["code"]).endswith("-dirty"):
        faults.append(f"{id}: made by changed code ({made['code']})")
    if not made["code"]:
        faults.append(f"{id}: the code that made it is unknown")
    for environment in made["environments"]:
        if not any(fnmatchcase(environment, pattern) for pattern in rules.environments):
            faults.append(f"{id}: trained on {environment}, allowed are {', '.join(rules.environments)}")
    return faults
