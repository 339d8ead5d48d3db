"""The plan of a release as frozen data: its steps, its guards, and the people who must agree."""

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from loomrl.config.basic import NonNegative, Person, Positive, PositiveInt, Share
from loomrl.schema import Config

Strategy = Literal["canary", "blue_green", "immediate", "shadow"]
MetricName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=100)]


class ReleaseStep(Config):
    """A share of the traffic and the conditions for the next step."""

    share: Annotated[float, Field(gt=0, le=1)]
    """Share of the traffic that the new version gets."""
    minutes: NonNegative = 60.0
    """Minimum duration."""
    units: Annotated[int, Field(ge=0)] = 100
    """Minimum number of users or sessions served by the new version in this step."""


class GuardSetting(Config):
    """A metric that the new version must not make worse. Once it is proved to, the release is rolled back."""

    metric: MetricName
    """`error`, `latency_s`, `violation`, `empty`, `tokens`, `refusal`, `later`, `reward`, `success`, `correct`,
    `unearned`, `negative`, `reward_of_user`, `success_of_user`, `entropy`, `first_token_s`, or a metric that callers
    report."""
    better: Literal["higher", "lower"]
    """Direction in which the metric is good."""
    low: float = 0.0
    """Lower bound of the values; values beyond a bound count as the bound."""
    high: float = 1.0
    """Upper bound of the values."""
    margin: NonNegative = 0.0
    """Accepted worsening in the metric's unit. With a quantile and `times`, the larger of the two applies."""
    times: Annotated[float, Field(gt=1)] | None = None
    """Accepted worsening as a multiple of the stable version's value, instead of a margin."""
    quantile: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Compare this quantile instead of the mean, by the share of units beyond the stable version's quantile."""
    share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """With a quantile: accepted increase of the share of units beyond it."""
    longest: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Consider only units whose prompts are among this share of the longest."""
    limit: float | None = None
    """Mean beyond which any proved worsening is unacceptable, regardless of the margin."""
    waits: Literal["always", "observed", "never"] = "observed"
    """When the last step waits for proof that the metric is not worse than accepted: always, if it was observed at all,
    or never."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low={self.low:g} must be below high={self.high:g}")
        if self.margin >= self.high - self.low:
            raise ValueError(f"margin={self.margin:g} is as wide as all values: nothing could be worse by more")
        if self.times is not None and self.better == "higher" and self.quantile is None:
            raise ValueError("times is for metrics where lower is better, and for quantiles")
        if self.times is not None and self.margin and self.quantile is None:
            raise ValueError("times is instead of a margin: of a mean, one of them counts")
        if self.quantile is not None and self.times is None and not self.share:
            raise ValueError(f"quantile={self.quantile:g} needs times, such as 1.25, or share, such as 0.05")
        if self.share and self.quantile is None:
            raise ValueError(f"share={self.share:g} has no effect without a quantile: give margin, or quantile")
        if self.limit is not None and not self.low <= self.limit <= self.high:
            raise ValueError(f"limit={self.limit:g} must lie between low={self.low:g} and high={self.high:g}")
        if self.waits != "never" and not self.margin and self.times is None and not self.share:
            raise ValueError(
                f"waits={self.waits}, and no difference is accepted: that could never be proved. Give a margin, or "
                "waits: never"
            )
        return self


class HardLimit(Config):
    """Immediate rollback of a version that only fails, without statistics."""

    calls: PositiveInt = 20
    """Number of consecutive failed units."""
    seconds: Positive = 3.0
    """Minimum duration of the failures; successes are recorded up to two seconds later than errors."""


class ShadowStep(Config):
    """A time in which the new version gets copies of calls and its answers are recorded but not sent."""

    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the calls that are copied."""
    minutes: NonNegative = 30.0
    """Duration."""


STEPS = (
    ReleaseStep(share=0.10, minutes=60),
    ReleaseStep(share=0.25, minutes=60),
    ReleaseStep(share=0.50, minutes=120),
    ReleaseStep(share=1.0, minutes=60, units=0),
)
GUARDS = (
    GuardSetting(metric="error", better="lower", margin=0.05, limit=0.05, waits="always"),
    GuardSetting(metric="latency_s", better="lower", high=120.0, quantile=0.95, times=1.25, margin=0.01, waits="never"),
    GuardSetting(metric="violation", better="lower", margin=0.02, limit=0.0),
    GuardSetting(metric="empty", better="lower", margin=0.02, limit=0.0),
    GuardSetting(metric="tokens", better="higher", quantile=0.05, times=2.0, share=0.02),
    GuardSetting(metric="tokens", better="higher", quantile=0.25, times=2.0, share=0.15, longest=0.1),
    GuardSetting(metric="refusal", better="lower", margin=0.05, waits="never"),
    GuardSetting(metric="entropy", better="lower", quantile=0.95, times=2.0, waits="never"),
    GuardSetting(metric="later", better="lower", margin=0.05, waits="never"),
    GuardSetting(metric="reward", better="higher", margin=0.05),
    GuardSetting(metric="reward", better="higher", quantile=0.1, share=0.05),
    GuardSetting(metric="success", better="higher", margin=0.05),
    GuardSetting(metric="unearned", better="lower", margin=0.05),
    GuardSetting(metric="negative", better="lower", times=2.0, waits="never"),
    GuardSetting(metric="reward_of_user", better="higher", quantile=0.1, share=0.05),
    GuardSetting(metric="success_of_user", better="higher", quantile=0.1, share=0.05),
)


class ReleasePlan(Config):
    """The steps by which a version gets all of the traffic, and the conditions for a rollback."""

    strategy: Literal["auto", "canary", "blue_green", "immediate", "shadow"] = "auto"
    """Release strategy; `auto` follows the gate's advice, or is a canary without a gate."""
    steps: Annotated[tuple[ReleaseStep, ...], Field(min_length=1)] = STEPS
    """Steps of a canary. The last has all of the traffic; the former version stays up meanwhile."""
    shadow: ShadowStep = ShadowStep()
    """Shadow step of the strategies shadow and blue_green."""
    guards: Annotated[tuple[GuardSetting, ...], Field(min_length=1)] = GUARDS
    error_rate: Annotated[float, Field(gt=0, le=0.5)] = 0.05
    """Probability that a version as good as the stable one is rolled back, over the whole release and all guards."""
    hard: HardLimit = HardLimit()
    approvals: tuple[Share, ...] = ()
    """Shares of traffic that need a person's approval."""
    approvers: tuple[Person, ...] = ()
    """People who may approve."""

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        shares = [step.share for step in self.steps]
        if any(later <= earlier for earlier, later in pairwise(shares)) or shares[-1] != 1:
            raise ValueError(f"steps: shares must rise to 1, and these are {', '.join(f'{s:g}' for s in shares)}")
        if self.strategy in ("immediate", "shadow") and self.steps[:-1] != STEPS[:-1]:
            raise ValueError(f"steps has no effect with strategy={self.strategy}: leave it out")
        if self.strategy in ("immediate", "canary") and self.shadow != ShadowStep():
            raise ValueError(f"shadow has no effect with strategy={self.strategy}: leave it out")
        return self

    @model_validator(mode="after")
    def _check_guards(self) -> Self:
        names = [(guard.metric, guard.quantile, guard.longest) for guard in self.guards]
        twice = sorted({name[0] for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"guards: one for each metric, quantile and longest, and {', '.join(twice)} is there twice"
            )
        return self

    @model_validator(mode="after")
    def _check_approvals(self) -> Self:
        if bool(self.approvals) != bool(self.approvers):
            raise ValueError("approvals says before which shares, and approvers says who may: give both, or neither")
        shares = [step.share for step in self.steps]
        strange = [share for share in self.approvals if share not in shares]
        if strange:
            raise ValueError(f"approvals={strange[0]:g} is the share of no step; these are {shares}")
        return self


__all__ = ["GuardSetting", "HardLimit", "ReleasePlan", "ReleaseStep", "ShadowStep", "Strategy"]
