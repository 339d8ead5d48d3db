"""Learning rates and clipping, shared by language and control algorithms."""

from typing import Annotated, Literal

from pydantic import Field

from loomrl.config.basic import Fraction, Positive, Share
from loomrl.schema import Config


class ConstantRate(Config):
    """One learning rate throughout."""

    kind: Literal["constant"] = "constant"
    warmup: int = Field(0, ge=0)
    """Updates over which the learning rate rises from 0."""


class LinearRate(Config):
    """Falls in a straight line to a floor at the last update."""

    kind: Literal["linear"] = "linear"
    warmup: int = Field(0, ge=0)
    """Updates over which the learning rate rises from 0."""
    floor: Share = 0.0
    """Final learning rate, as a share of the initial one."""


class CosineRate(Config):
    """Falls along half a cosine to a floor at the last update."""

    kind: Literal["cosine"] = "cosine"
    warmup: int = Field(0, ge=0)
    """Updates over which the learning rate rises from 0."""
    floor: Share = 0.0
    """Final learning rate, as a share of the initial one."""


class AdaptiveRate(Config):
    """Shrinks after an update with a large KL, grows after one with a small KL."""

    kind: Literal["adaptive"] = "adaptive"
    target_kl: Positive = 0.01
    """Target KL of an update."""
    factor: float = Field(1.5, gt=1)
    """Factor by which the learning rate changes."""
    lowest: Positive = 1e-7
    """Lower bound of the learning rate."""
    highest: Positive = 1e-2
    """Upper bound of the learning rate."""


Schedule = Annotated[ConstantRate | LinearRate | CosineRate | AdaptiveRate, Field(discriminator="kind")]


class Clip(Config):
    """The range of probability ratios, `1 - low … 1 + high`, outside which the gradient is zero."""

    low: Fraction = 0.2
    """How far a ratio may fall below 1."""
    high: Positive = 0.2
    """How far a ratio may rise above 1."""
    dual: float | None = Field(None, gt=1)
    """Bound on the loss of samples with negative advantage and a large ratio (dual clip); null for none."""
