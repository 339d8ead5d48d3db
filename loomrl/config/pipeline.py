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
    """Weights of the components; they are divided by their sum."""

    task_completion: NonNegative = 0.40
    """Weight of task completion."""
    efficiency: NonNegative = 0.20
    """Weight of efficiency, compared with tasks of the same type."""
    code_quality: NonNegative = 0.15
    """Weight of the quality of Python code in the answers."""
    user_feedback: NonNegative = 0.25
    """Weight of people's feedback and of signals in the session."""


class RewardWatch(Config):
    """Detection of reward hacking: components that diverge between a window and those before it."""

    window: Annotated[int, Field(ge=50)] = 1000
    """Rewards in a window."""
    reference: Annotated[int, Field(ge=1, le=20)] = 4
    """Number of earlier windows to compare with."""
    error_rate: Annotated[float, Field(gt=0, le=0.5)] = 0.05
    """Probability of any false alarm, for any duration."""


def _custom_by_default(raw: Any) -> Any:
    return {"kind": "custom", **raw} if isinstance(raw, Mapping) else raw


Part = Annotated[
    Annotated[CustomPart | RubricPart, Field(discriminator="kind")],
    BeforeValidator(_custom_by_default),
]


class RewardPipeline(Config):
    """The pipeline that turns what was served into rewards between 0 and 1; 0.5 means no evidence."""

    weights: RewardWeights = RewardWeights()
    parts: tuple[Part, ...] = ()
    """Rubrics and custom components (`loomrl.rewards.RewardComponent`) with scores within 0..1."""
    normalization: Literal["z_score", "min_max", "none"] = "z_score"
    """Normalisation of every component by the trajectories judged before. `z_score`: two standard deviations below the
    mean are 0, two above are 1. `min_max`: the lowest score is 0, the highest is 1."""
    window: Annotated[int, Field(ge=2, le=100_000)] = 1000
    """Number of earlier trajectories for normalisation, and of the same task type for efficiency."""
    least: Annotated[int, Field(ge=2)] = 30
    """Minimum number of scores to normalise a component or to judge efficiency."""
    judge: JudgeModel | None = None
    """Model that judges completion where no outcome was reported."""
    code: Literal["auto", "off"] = "auto"
    """Measure the quality of Python code in answers; `auto` does so where a sandbox is found."""
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
