"""Judges whose opinion of an attempt stays with it on record: rubrics, rankings and reward models."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loomrl.types import Trajectory

GRADES = "grades"
"""Key in an attempt's `extra` of its grades, by part of the reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """A judge's opinion of an attempt."""

    score: float
    who: str
    """The judge's model."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Its reasons, by what they are about."""

    def data(self) -> dict[str, Any]:
        """The grade as JSON."""
        return {"judge": self.who, "score": self.score, "reasons": dict(self.reasons)}


class AttemptJudge(ABC):
    """Grades attempts, together where it compares them. Safe to use from several threads."""

    @property
    @abstractmethod
    def sha256(self) -> str:
        """Content hash of all that decides a score."""

    @abstractmethod
    def begin_all(self, attempts: Sequence[Trajectory]) -> list[Callable[[], Grade]]:
        """Begin to judge attempts that did not fail; each function waits for its attempt's grade, or raises a
        ScorerError.
        """

    def __call__(self, attempt: Trajectory) -> float:
        """The score of one attempt, waited for."""
        return self.begin_all([attempt])[0]().score


def reasons_of(attempt: Trajectory) -> dict[str, str]:
    """The reasons that judges gave for parts of the reward, by part, in lines."""
    grades: Mapping[str, Any] = attempt.extra.get(GRADES) or {}
    said = {
        name: "\n".join(f"{about}: {reason}" for about, reason in grade["reasons"].items())
        for name, grade in grades.items()
    }
    return {name: text for name, text in said.items() if text}
