"""What training of any kind has to tell at its end."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from loomrl.telemetry.page import Sample
from loomrl.telemetry.page_table import Comparison

Listener = Callable[[int, Mapping[str, float]], None]
"""Told of every update: its number, and its metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How training went. `last` and `best` are numbers of policy versions."""

    updates: int
    last: int
    best: int
    stopped: str
    """Why it is over."""
    unit: Literal["updates", "steps"]
    """What the history counts."""
    before: Mapping[str, float | None]
    """Success or return before the first update, by way of acting."""
    after: Mapping[str, float | None]
    comparisons: Sequence[Comparison]
    samples: Sequence[Sample] = ()
