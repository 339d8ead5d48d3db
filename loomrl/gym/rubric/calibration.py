"""A map from a judge's score to people's, as a small file that belongs to one rubric and one model."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from loomrl.config.basic import PositiveInt, Share
from loomrl.config.rewards import RubricPart
from loomrl.errors import ConfigError
from loomrl.files import write_whole
from loomrl.gym.rubric.form import fingerprint
from loomrl.schema import Config

Scores = Annotated[tuple[Share, ...], Field(min_length=2)]


class Calibration(Config):
    """A monotone map, straight between its knots and flat beyond them."""

    kind: Literal["rubric_calibration"] = "rubric_calibration"
    rubric: str
    """The fingerprint of the rubric: criteria, weights, model, votes."""
    model: str
    """The judge's model."""
    judge: Scores
    """Scores of the judge, rising."""
    people: Scores
    """What people say where the judge says that: nowhere falling."""
    ratings: PositiveInt
    """Trajectories that it was fitted to."""
    by: Literal["feedback", "inbox"]
    """Where people's ratings came from."""
    report: dict[str, Any]
    """The agreement with people."""
    created_at: float
    """When it was made, in seconds since 1970."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.judge) != len(self.people):
            raise ValueError(f"{len(self.judge)} scores of the judge, and {len(self.people)} of people")
        if any(after <= before for before, after in zip(self.judge, self.judge[1:], strict=False)):
            raise ValueError("judge: each score must be higher than the one before it")
        if any(after < before for before, after in zip(self.people, self.people[1:], strict=False)):
            raise ValueError("people: no score may be lower than the one before it")
        if self.people[0] == self.people[-1]:
            raise ValueError("people: all scores are alike, so that every attempt would earn the same")
        return self

    def of(self, score: float) -> float:
        """People's score where the judge gives this one."""
        return float(np.interp(score, self.judge, self.people))

    def write(self, file: Path) -> None:
        """Replace the file."""
        write_whole(file, json.dumps(self.plain, indent=1, ensure_ascii=False).encode() + b"\n")


def read_calibration(part: RubricPart) -> Calibration | None:
    """The map that a part names, if it names one; a ConfigError if it belongs to another rubric or model."""
    if part.calibration is None:
        return None
    where = f"calibration={part.calibration!r}"
    try:
        raw = json.loads(Path(part.calibration).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: {error}. `loomrl rewards calibrate` makes such a file.") from None
    found = Calibration.parse(raw, origin=where)
    if found.rubric != fingerprint(part):
        model = f"model {found.model!r}, not {part.judge.model!r}" if found.model != part.judge.model else ""
        raise ConfigError(
            f"{where} was made for {model or 'other criteria, weights, votes or words of the chat'}: it says nothing "
            f"of this rubric. Make it anew with `loomrl rewards calibrate`, or leave `calibration` out."
        )
    return found
