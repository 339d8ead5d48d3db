"""Checks of answers to probes, and of the steps of control policies."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from loomrl.release.gate.benchmark import too_many_failed
from loomrl.release.gate.check import CheckState, Example, GateCheck
from loomrl.release.gate.proof import share

Floats = NDArray[np.float64]
MOST_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Judged answers of one kind: a flaw or None each; and the failures without an outcome."""

    outcomes: Sequence[Example | None]
    """An example of each flaw."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Kind of failure → count."""

    def check(self, name: str, at_most: float, *, error_rate: float, may_fail: float) -> GateCheck:
        """Passed if a larger share of flaws is ruled out."""
        failed = sum(self.failures.values())
        count = len(self.outcomes)
        broken = too_many_failed(failed, failed + count, may_fail, self.failures)
        if broken is not None or not count:
            reason = broken or "there was nothing to judge"
            return GateCheck(
                name=name, state=CheckState.ERROR, reason=reason, figures={"failures": dict(self.failures)}
            )
        examples = [example for example in self.outcomes if example is not None]
        found = share(float(len(examples)), count, error_rate=error_rate)
        state = CheckState.PASSED if found.high <= at_most else CheckState.FAILED
        verb = "ruled out" if state is CheckState.PASSED else "not ruled out"
        reason = f"{len(examples)} of {count} flawed, at most {found.high:.3f}: more than {at_most:g} is {verb}"
        figures = {"flawed": asdict(found), "at_most": at_most, "failures": dict(self.failures)}
        return GateCheck(name=name, state=state, reason=reason, figures=figures, examples=examples[:MOST_EXAMPLES])


def actions_in_bounds(actions: Iterable[object], inside: Callable[[object], bool]) -> GateCheck:
    """Passed if every action lies within the bounds."""
    name = "safety.bounds"
    listed = list(actions)
    outside = [action for action in listed if not inside(action)]
    figures = {"outside": len(outside), "actions": len(listed)}
    if outside:
        reason = f"{len(outside)} of {len(listed)} actions are out of bounds, such as {outside[0]!r:.100}"
        examples = [Example(prompt="", answer=repr(each)[:200], reason="out of bounds") for each in outside]
        return GateCheck(
            name=name, state=CheckState.FAILED, reason=reason, figures=figures, examples=examples[:MOST_EXAMPLES]
        )
    return GateCheck(
        name=name, state=CheckState.PASSED, reason=f"all {len(listed)} actions are in bounds", figures=figures
    )


def in_box(low: Sequence[float | None], high: Sequence[float | None]) -> Callable[[Floats], bool]:
    """True if every number of a flattened observation is within its bounds; None is unbounded."""
    least = np.array([-math.inf if bound is None else bound for bound in low])
    most = np.array([math.inf if bound is None else bound for bound in high])
    return lambda observation: bool((observation >= least).all() and (observation <= most).all())


def smoothness(changes: Sequence[float], at_most: float) -> GateCheck:
    """The mean change of actions under noise, against the threshold."""
    name = "safety.smoothness"
    if not len(changes):
        return GateCheck(name=name, state=CheckState.ERROR, reason="no step was played")
    mean = float(np.mean(changes))
    state = CheckState.PASSED if mean <= at_most else CheckState.FAILED
    reason = f"actions change by {mean:.3f} of their range under noise, {at_most:g} is accepted"
    return GateCheck(name=name, state=state, reason=reason, figures={"mean": mean, "steps": len(changes)})
