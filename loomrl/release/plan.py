"""A plan in steps, whatever its strategy."""

from dataclasses import dataclass

from loomrl.config.release import GuardSetting, ReleasePlan
from loomrl.release.guard import Better, Guard


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """A step of a release."""

    share: float
    """Of the traffic; of a shadow, of the calls that it gets a copy of."""
    minutes: float
    units: int
    is_shadow: bool = False

    def __str__(self) -> str:
        return f"{100 * self.share:g} %" + (" in shadow" if self.is_shadow else "")


def steps_of(plan: ReleasePlan) -> tuple[PlanStep, ...]:
    """The steps of a plan whose strategy is settled."""
    ramp = tuple(PlanStep(share=step.share, minutes=step.minutes, units=step.units) for step in plan.steps)
    shadow = PlanStep(share=plan.shadow.share, minutes=plan.shadow.minutes, units=0, is_shadow=True)
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


def choose_strategy(plan: ReleasePlan, strategy: str, first_share: float) -> ReleasePlan:
    """The plan with the strategy that the gate advises, and its first share, unless the plan says one itself."""
    if plan.strategy != "auto":
        return plan
    if strategy != "canary":
        return plan.override({"strategy": strategy})
    return plan.override({"strategy": strategy, "steps.0.share": min(first_share, plan.steps[0].share)})


def _guard(setting: GuardSetting) -> Guard:
    return Guard(
        metric=setting.metric,
        better=Better(setting.better),
        low=setting.low,
        high=setting.high,
        margin=setting.margin,
        times=setting.times,
        quantile=setting.quantile,
        share=setting.share,
        longest=setting.longest,
        required=setting.waits == "always",
    )
