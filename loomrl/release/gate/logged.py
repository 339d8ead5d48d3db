"""The return that logged episodes foretell, as a check of the gate."""

from loomrl.config.suite import LoggedReturn
from loomrl.evaluation.offpolicy import OffPolicy
from loomrl.evaluation.statistics import Interval
from loomrl.release.gate.check import Check, State


def logged(rule: LoggedReturn, found: OffPolicy) -> Check:
    """The lower bound against the threshold; without a result if the logs are too much another policy's."""
    name = f"logged {rule.data.name}"
    estimate: Interval = getattr(found, rule.estimator)
    figures = {**found.as_dict(), "estimator": rule.estimator, "at_least": rule.at_least}
    told = f"{rule.estimator} {estimate.mean:.4g} in [{estimate.low:.4g}, {estimate.high:.4g}]"
    if found.effective < rule.effective:
        reason = (
            f"{told}, but the logs are worth {found.effective:.1f} episodes of this policy, and {rule.effective:g} are "
            "needed: log a policy that is more like it, or more episodes"
        )
        return Check(name=name, state=State.ERROR, reason=reason, figures=figures)
    state = State.PASSED if estimate.low >= rule.at_least else State.FAILED
    verb = "proved" if state is State.PASSED else "not proved"
    return Check(name=name, state=state, reason=f"{told}: at least {rule.at_least:g} is {verb}", figures=figures)
