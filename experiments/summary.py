"""The result of a training of any kind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from loomrl.telemetry.report import AnswerPair, Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The result of a training. `last` and `best` are numbers of policy versions."""

    updates: int
    last: int
    best: int | None
    """None while nothing has succeeded, or too little is known."""
    stopped: str
    """The reason for its end."""
    unit: Literal["updates", "steps"]
    """Unit of the history."""
    before: Mapping[str, float | None]
    """Success or return before the first update, by kind of evaluation, and the `loss` on held-out conversations."""
    after: Mapping[str, float | None]
    comparisons: Sequence[Comparison]
    samples: Sequence[AnswerPair] = ()
