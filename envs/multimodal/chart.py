"""Charts: the values that a picture is drawn from."""

from collections.abc import Mapping
from dataclasses import dataclass

LABELS = "ABCDEFGHIJ"
TOP = 12
"""The highest value, in units."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart's data: one value per label for every series, in units; for a pie, percents by colour."""

    kind: str
    series: Mapping[str, tuple[int, ...]]
    unit: int = 1
    width: int = 128
    height: int = 112

    @property
    def labels(self) -> str:
        """One letter per value."""
        return LABELS[: len(next(iter(self.series.values())))]
