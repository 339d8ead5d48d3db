"""How WEAVE is made and taught: experts behind a gate, several critics and objectives. Parameters as data."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from loomrl.config.basic import Fraction, NonNegative, Positive, PositiveInt
from loomrl.config.control import ControlPPO
from loomrl.schema import Config


class SampledPreference(Config):
    """Drawn anew for every episode, evenly over all weights that sum to 1; every runner has a region of its own."""

    kind: Literal["sampled"] = "sampled"


class FixedPreference(Config):
    """The same in every episode."""

    kind: Literal["fixed"] = "fixed"
    weights: tuple[NonNegative, ...]
    """One for each objective; they sum to 1."""

    @model_validator(mode="after")
    def _sum_to_one(self) -> Self:
        if not math.isclose(sum(self.weights), 1.0, abs_tol=1e-6):
            raise ValueError(f"weights={self.weights} sum to {sum(self.weights):g}: they must sum to 1")
        return self


Preference = Annotated[SampledPreference | FixedPreference, Field(discriminator="kind")]


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


ALIKE = Exploration()


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
    objectives: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Their names: as many as the environment's vector of rewards has, or names of `info["parts"]`; without any, the
    reward is a number."""
    preference: Preference = SampledPreference()
    scalarisation: Scalarisation = Linear()
    reference: tuple[float, ...] | None = None
    """Returns, one for each objective, that count as nothing: the hypervolume of a front begins there."""
    least_use: Fraction = 0.5
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
        if len(set(self.objectives)) < len(self.objectives):
            raise ValueError(f"objectives={self.objectives}: every name once")
        if not self.objectives:
            return self._scalar()
        weights = self.preference.weights if isinstance(self.preference, FixedPreference) else None
        for name, given in (("preference.weights", weights), ("reference", self.reference)):
            if given is not None and len(given) != len(self.objectives):
                raise ValueError(f"{name}={given}: {len(self.objectives)} are needed, one for each of objectives")
        return self

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
