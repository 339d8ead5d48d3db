"""Rubrics: what a judge is asked of an attempt, criterion by criterion."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from loomrl.config.basic import PathText, Positive, PositiveInt, Seconds
from loomrl.config.judge import JudgeModel
from loomrl.schema import Config


class Criterion(Config):
    """One statement that a good attempt makes true."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=64)]
    """Its name in the judge's answer and in reports."""
    says: Annotated[str, Field(pattern=r"\w", max_length=2000)]
    """A plain statement, such as: The answer names its source."""
    weight: Positive = 1.0
    """How much it counts; the weights of a rubric are divided by their sum."""


class RubricPart(Config):
    """A judge's opinion, criterion by criterion: the weighted share of the statements that are true, from 0 to 1."""

    kind: Literal["rubric"] = "rubric"
    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=64)] = "rubric"
    """The part's name in rewards: several rubrics need several."""
    judge: JudgeModel
    """The model that is asked; its server must follow `response_format: json_schema`."""
    criteria: Annotated[tuple[Criterion, ...], Field(min_length=1, max_length=20)]
    """What it is asked, all at once."""
    weight: Positive = 1.0
    """Weight of this part in the reward."""
    votes: Annotated[int, Field(ge=1, le=9)] = 1
    """Answers about each attempt, an odd number: of each criterion the median counts. Each has another order of
    criteria and verdicts.
    """
    calibration: PathText | None = None
    """A map from this judge's score to people's, made by `loomrl rewards calibrate`; None takes the score as it is."""
    together: PositiveInt = 8
    """Attempts that are judged at a time."""
    max_tokens: PositiveInt = 1024
    """Of an answer, with a sentence for each criterion."""
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
