"""The judgement of what was served as frozen data: components, weights, and what they are compared with."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from loomrl.config.basic import NonNegative
from loomrl.config.judge import JudgeModel
from loomrl.config.rewards import CustomPart
from loomrl.config.rubric import RubricPart
from loomrl.schema import Config


class RewardWeights(Config):
    """How much each component counts; the weights are divided by their sum."""

    task_completion: NonNegative = 0.40
    """Was the task done?"""
    efficiency: NonNegative = 0.20
    """How much it took, compared with tasks of its type."""
    code_quality: NonNegative = 0.15
    """Quality of the Python code in its answers."""
    user_feedback: NonNegative = 0.25
    """What people said of it, and what its session showed."""


class RewardWatch(Config):
    """The watch for reward hacking: components that part ways between one window and those before it."""

    window: Annotated[int, Field(ge=50)] = 1000
    """Rewards in a window."""
    reference: Annotated[int, Field(ge=1, le=20)] = 4
    """Windows before it that it is compared with."""
    error_rate: Annotated[float, Field(gt=0, le=0.5)] = 0.05
    """Chance of any false alarm, however long the watch lasts."""


def _custom_by_default(raw: Any) -> Any:
    return {"kind": "custom", **raw} if isinstance(raw, Mapping) else raw


Part = Annotated[
    Annotated[CustomPart | RubricPart, Field(discriminator="kind")],
    BeforeValidator(_custom_by_default),
]


class RewardPipeline(Config):
    """The pipeline that turns what was served into rewards between 0 and 1; 0.5 is what says nothing."""

    weights: RewardWeights = RewardWeights()
    parts: tuple[Part, ...] = ()
    """Rubrics, and components of your own (`loomrl.rewards.RewardComponent`), with scores within 0..1."""
    normalization: Literal["z_score", "min_max", "none"] = "z_score"
    """Of every component, against the trajectories judged before. `z_score`: two deviations below their mean are 0,
    two above are 1. `min_max`: their least score is 0, their highest is 1.
    """
    window: Annotated[int, Field(ge=2, le=100_000)] = 1000
    """So many of these trajectories; and as many of a task's type, to which its efficiency is compared."""
    least: Annotated[int, Field(ge=2)] = 30
    """With fewer scores than this a component is not normalised, and efficiency is unknown."""
    judge: JudgeModel | None = None
    """Judges completion where nobody told it."""
    code: Literal["auto", "off"] = "auto"
    """`auto`: the quality of Python code in answers is measured where a sandbox is found."""
    watch: RewardWatch = RewardWatch()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not sum(self.weights.plain.values()):
            raise ValueError("weights: all are 0, and nothing would count. Give one of them a weight above 0")
        if self.least > self.window:
            raise ValueError(f"least={self.least} must not be above window={self.window}: nothing would be normalised")
        custom = [part for part in self.parts if isinstance(part, CustomPart)]
        unweighted = [part.entry_point for part in custom if part.weight is not None and part.weight < 0]
        if unweighted:
            raise ValueError(f"parts: {unweighted[0]} has a negative weight. Let the score fall instead")
        return self
