"""How WEAVE is made and taught: experts behind a gate, several critics and objectives. Parameters as data."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from loomrl.config.basic import Fraction, NonNegative, Positive, PositiveInt, Share
from loomrl.config.control import ControlPPO
from loomrl.config.objectives import Objectives, listed
from loomrl.schema import Config


class _Drawn(Config):
    """Where the preferences of episodes come from."""

    @property
    def always(self) -> tuple[float, ...] | None:
        """The one that every episode has; None where they differ."""
        return None


class SampledPreference(_Drawn):
    """Drawn anew for every episode, evenly over all weights that sum to 1; every runner has a region of its own."""

    kind: Literal["sampled"] = "sampled"


def _sum_to_one(weights: tuple[float, ...]) -> tuple[float, ...]:
    if not math.isclose(sum(weights), 1.0, abs_tol=1e-6):
        raise ValueError(f"weights={weights} sum to {sum(weights):g}: they must sum to 1")
    return weights


Weights = Annotated[tuple[NonNegative, ...], AfterValidator(_sum_to_one)]
"""One for each objective; they sum to 1."""


class FixedPreference(_Drawn):
    """The same in every episode."""

    kind: Literal["fixed"] = "fixed"
    weights: Weights

    @property
    def always(self) -> tuple[float, ...]:
        """Those."""
        return self.weights


class AdaptivePreference(_Drawn):
    """Moves towards objectives that lag: those whose mean return is furthest behind the best known of the front.

    A share of the episodes has it; the others are drawn as `sampled` ones, so that the policy stays steerable.
    """

    kind: Literal["adaptive"] = "adaptive"
    momentum: Fraction = 0.9
    """Of the preference, from one move to the next."""
    share: Share = 0.5
    """Of episodes that have the present preference."""
    episodes: PositiveInt = 32
    """That end between two moves, and say how far behind every objective is."""


class ConstrainedPreference(_Drawn):
    """Holds objectives above thresholds: safe, then good.

    What is below its threshold counts more, by a multiplier that grows until it is not; the rest is `weights`, or is
    drawn as `sampled` ones.
    """

    kind: Literal["constrained"] = "constrained"
    least: dict[str, float] = Field(min_length=1)
    """Mean discounted return, by objective, below which it is not to be."""
    weights: Weights | None = None
    rate: Positive = 0.1
    """By which a multiplier grows where the mean is a width of the front below its threshold."""
    damping: NonNegative = 1.0
    """Of what is missing now, which is added to the multiplier; without any it swings around where it belongs."""
    ceiling: Positive = 20.0
    """Of a multiplier. Whoever is there is told that the threshold is out of reach."""
    episodes: PositiveInt = 32
    """That end between two moves, and say what the mean is."""

    @property
    def always(self) -> tuple[float, ...] | None:
        """Those."""
        return self.weights


Preference = Annotated[
    SampledPreference | FixedPreference | AdaptivePreference | ConstrainedPreference, Field(discriminator="kind")
]


class Linear(Config):
    """The weighted sum of objectives. It reaches the convex part of a front, and nothing between."""

    kind: Literal["linear"] = "linear"


class Chebyshev(Config):
    """The weighted distance of the worst objective from the best known; it reaches every part of a front.

    Distances are in units of the front that was found so far. Returns up to now are part of what is seen.
    """

    kind: Literal["chebyshev"] = "chebyshev"
    slope: Positive = 0.05
    """Share of the weighted sum that is added, so that no objective is given away for nothing."""


Scalarisation = Annotated[Linear | Chebyshev, Field(discriminator="kind")]


class Exploration(Config):
    """How an expert explores, beside the others."""

    temperature: Positive = 1.0
    """Logits are divided by it, deviations multiplied."""
    epsilon: Fraction = 0.0
    """How often it chooses evenly, whatever it thinks best; not for real-valued actions."""
    entropy: NonNegative = 1.0
    """Of its entropy, times `entropy_coefficient`, is paid for."""
    curiosity: NonNegative = 1.0
    """How much novelty teaches it, beside the others."""


def _sound(given: tuple[Any, ...]) -> tuple[Any, ...]:
    Objectives.of(given)
    return given


class Weave(ControlPPO):
    """PPO of several threads: experts for the policy, critics for the value, objectives for the reward."""

    kind: Literal["weave"] = "weave"  # type: ignore[assignment]
    experts: PositiveInt = 4
    critics: PositiveInt = 4
    exploration: tuple[Exploration, ...] = ()
    """How each expert explores; without any, all do alike."""
    squashed: bool = False
    """Whether real-valued actions stay within their bounds by a hyperbolic tangent, with deviations that follow the
    state; else they are cut at them."""
    objectives: Annotated[tuple[Any, ...], BeforeValidator(listed), AfterValidator(_sound)] = ()
    """Their names: as many as the environment's vector of rewards has, or names of `info["parts"]`; without any, the
    reward is a number. Or a tree, `{task: {completion: 0.8, creativity: 0.2}, safety: {collisions: 1}}`: a preference
    weighs what is at its top, the environment pays its leaves."""
    preference: Preference = SampledPreference()
    scalarisation: Scalarisation = Linear()
    reference: tuple[float, ...] | None = None
    """Returns, one for each objective, that count as nothing: the hypervolume of a front begins there."""
    least_use: Fraction = 0.8
    """Of an even share: an expert that acts less often is brought back, so that none is given up."""
    balance: NonNegative = 1.0
    """How much is lost for every e-fold by which an expert is below that."""
    diversity: NonNegative = 0.0
    """How much the policy gains, per nat, by which an action tells which expert took it."""
    pessimism: NonNegative = 0.0
    """Deviations among critics by which the estimate of value is lowered."""
    wonder: NonNegative = 0.0
    """How much disagreement among critics about where a step led is worth, in its deviations, beside the reward."""
    critic_share: float = Field(0.8, gt=0, le=1)
    """Of steps that each of several critics learns from, so that they differ where little is known."""
    trust_memory: Fraction = 0.9
    """Of the critics' errors from one update to the next; trust is the inverse of them."""

    @property
    def pays_novelty(self) -> bool:
        """Whether novelty has a value of its own, so that it can teach one expert more than another."""
        apart = bool(self.objectives) or any(way.curiosity != 1 for way in self.exploration)
        return self.wonder > 0 or (self.curiosity is not None and apart)

    @model_validator(mode="after")
    def _threads_fit_together(self) -> Self:
        if self.exploration and len(self.exploration) != self.experts:
            raise ValueError(f"exploration: {len(self.exploration)} are given, one for each of {self.experts} experts")
        for name in ("pessimism", "wonder"):
            if getattr(self, name) and self.critics == 1:
                raise ValueError(f"{name}: one critic agrees with itself, ask for more critics")
        if self.diversity and self.experts == 1:
            raise ValueError("diversity: one expert differs from none, ask for more experts")
        if not self.objectives:
            return self._scalar()
        names, asked = self.tree.names, self.preference
        for name, given in (("preference.weights", asked.always), ("reference", self.reference)):
            if given is not None and len(given) != len(names):
                raise ValueError(f"{name}={given}: {len(names)} are needed, one for each of objectives")
        strange = sorted({*asked.least} - {*names}) if isinstance(asked, ConstrainedPreference) else ()
        if strange:
            raise ValueError(f"preference.least: no objective is named {', '.join(strange)}; known: {', '.join(names)}")
        return self

    @property
    def tree(self) -> Objectives:
        """The objectives: what a preference weighs, and what of it the environment pays."""
        return Objectives.of(self.objectives)

    def _scalar(self) -> Self:
        """What has no effect without objectives."""
        asked = (
            ("preference", self.preference, SampledPreference()),
            ("scalarisation", self.scalarisation, Linear()),
            ("reference", self.reference, None),
        )
        for name, given, usual in asked:
            if given != usual:
                raise ValueError(f"{name} has no effect without objectives: name the objectives, or leave it out")
        return self
