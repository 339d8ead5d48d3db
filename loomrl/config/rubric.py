"""Rubrics: what a judge is asked of an attempt, criterion by criterion."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from loomrl.config.basic import PathText, Positive, PositiveInt, Seconds
from loomrl.config.judge import JudgeModel
from loomrl.schema import Config


class Criterion(Config):
    """A statement that is true of a good attempt."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=64)]
    """Name of the criterion in the judge's answer and in reports."""
    says: Annotated[str, Field(pattern=r"\w", max_length=2000)]
    """A plain statement, such as: The answer names its source."""
    weight: Positive = 1.0
    """Weight of the criterion; the weights of a rubric are divided by their sum."""


class RubricPart(Config):
    """A judge's opinion per criterion: the weighted share of true statements, from 0 to 1."""

    kind: Literal["rubric"] = "rubric"
    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=64)] = "rubric"
    """Name of the part in rewards; rubrics need different names."""
    judge: JudgeModel
    """The judge model; its server must support `response_format: json_schema`."""
    criteria: Annotated[tuple[Criterion, ...], Field(min_length=1, max_length=20)]
    """Criteria to judge, all in one request."""
    weight: Positive = 1.0
    """Weight of this part in the reward."""
    votes: Annotated[int, Field(ge=1, le=9)] = 1
    """Number of judge answers per attempt, odd; the median per criterion counts. Each answer sees the criteria and
    verdicts in a different order."""
    calibration: PathText | None = None
    """File that maps this judge's scores to people's, made by `loomrl rewards calibrate`; null leaves scores
    unchanged."""
    together: PositiveInt = 8
    """Attempts that are judged at a time."""
    max_tokens: PositiveInt = 1024
    """Maximum tokens of an answer, which has a sentence for each criterion."""
    timeout_s: Seconds = 45.0
    """Time limit of an answer, tries included."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for texts in ([one.name for one in self.criteria], [" ".join(one.says.split()) for one in self.criteria]):
            twice = sorted({text for text in texts if texts.count(text) > 1})
            if twice:
                raise ValueError(f"criteria: {twice[0]!r} is there more than once. Change one of them")
        if not self.votes % 2:
            raise ValueError(f"votes={self.votes} is even, and has no vote in the middle. Take {self.votes + 1}")
        return self
