"""The opinion of one component about a trajectory, with its evidence."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Source = Literal["automated", "human", "linter", "test_results", "benchmark"]
NEUTRAL = 0.5
"""Counts where a component says nothing."""
DIGITS = 6
"""Decimals of a score: sums of scores are exact then, in whatever order they were made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A value between 0 and 1, or None where nothing is known; `reasoning` is one line for people."""

    value: float | None
    reasoning: str
    source: Source = "automated"
    evidence: Mapping[str, Any] = field(default_factory=dict)
    applies: bool = True
    """False: there is nothing to judge, such as code; then nothing is unknown either."""

    def data(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "value": self.value,
            "reasoning": self.reasoning,
            "source": self.source,
            "evidence": self.evidence,
            "applies": self.applies,
        }


def score_of(data: Mapping[str, Any]) -> Score:
    """The score of `Score.data`, whatever stands beside it."""
    return Score(**{name: data[name] for name in Score.__slots__})


def known(value: float, reasoning: str, *, source: Source = "automated", **evidence: Any) -> Score:
    """A score with a value within 0..1."""
    assert 0 <= value <= 1, f"score {value}: {reasoning}"
    return Score(value=round(value, DIGITS), reasoning=reasoning, source=source, evidence=evidence)


def missing(reasoning: str, **evidence: Any) -> Score:
    """Unknown: neutral, and the reward is less certain."""
    return Score(value=None, reasoning=reasoning, evidence=evidence)


def inapplicable(reasoning: str) -> Score:
    """Nothing to judge: neutral, and no less certain."""
    return Score(value=None, reasoning=reasoning, applies=False)
