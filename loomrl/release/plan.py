"""A plan in steps, whatever its strategy; and the strategy by the improvement that the gate found."""

from dataclasses import dataclass

from loomrl.config.release import GuardSetting, ReleasePlan
from loomrl.errors import ConfigError
from loomrl.release.guard import Better, Guard
from loomrl.threshold import reaches

BLUE_GREEN_FROM, CANARY_FROM = 0.15, 0.05
"""Improvement of success from which a version is switched at once, or starts with a tenth of the traffic."""
SMALL_SHARE = 0.05
"""First share of a version that is hardly better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a release."""

    share: float
    """Of the traffic; of a shadow, of the calls that it gets a copy of."""
    minutes: float
    units: int
    is_shadow: bool = False

    def __str__(self) -> str:
        return f"{100 * self.share:g} %" + (" in shadow" if self.is_shadow else "")


def steps_of(plan: ReleasePlan) -> tuple[Step, ...]:
    """The steps of a plan whose strategy is settled."""
    ramp = tuple(Step(share=step.share, minutes=step.minutes, units=step.units) for step in plan.steps)
    shadow = Step(share=plan.shadow.share, minutes=plan.shadow.minutes, units=plan.shadow.units, is_shadow=True)
    match plan.strategy:
        case "shadow":
            return (shadow,)
        case "blue_green":
            return (shadow, ramp[-1])
        case "immediate":
            return ramp[-1:]
        case "canary":
            return ramp
        case "auto":
            raise AssertionError("the strategy is settled when a release begins")


def guards_of(plan: ReleasePlan) -> tuple[Guard, ...]:
    """The guards that evidence is collected for."""
    return tuple(_guard(setting) for setting in plan.guards)


def settled(plan: ReleasePlan, improvement: float | None) -> ReleasePlan:
    """The plan with a strategy; a ConfigError if the version is worse. `improvement`: None if no gate was run."""
    if plan.strategy != "auto":
        return plan
    if improvement is None:
        return plan.override({"strategy": "canary"})
    if improvement < 0:
        raise ConfigError(
            f"the gate found this version worse, by {-improvement:.3g}. It is not released by itself: choose a "
            "strategy (--strategy canary, shadow, …) if it should be tried all the same."
        )
    if reaches(improvement, BLUE_GREEN_FROM):
        return ReleasePlan.parse(plan.model_dump(mode="json") | {"strategy": "blue_green"}, origin="plan")
    first = plan.steps[0]
    if reaches(improvement, CANARY_FROM) or first.share <= SMALL_SHARE:
        return plan.override({"strategy": "canary"})
    return plan.override({"strategy": "canary", "steps.0.share": SMALL_SHARE})


def _guard(setting: GuardSetting) -> Guard:
    return Guard(
        metric=setting.metric,
        better=Better(setting.better),
        low=setting.low,
        high=setting.high,
        margin=setting.margin,
        times=setting.times,
        quantile=setting.quantile,
        required=setting.waits == "always",
    )
