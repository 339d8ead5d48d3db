"""Charts as pictures, with Pillow's own bitmap letters: the same on every machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import cos, pi, sin
from typing import TYPE_CHECKING, Any

from loomrl.envs.multimodal.canvas import INK, new_canvas, png

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


if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

LEFT = 24
BOTTOM = 14
ABOVE = 8
"""Pixels around the plot: for numbers, for letters, and to the upper edge."""


def draw_chart(chart: Chart) -> bytes:
    """The chart as a picture."""
    image, pen = new_canvas(chart.width, chart.height)
    if chart.kind == "pie":
        _draw_pie(pen, chart)
        return png(image)
    _draw_axes(pen, chart)
    (_draw_bars if chart.kind == "bar" else _draw_lines)(pen, chart)
    return png(image)


@lru_cache(maxsize=1)
def _font() -> Any:
    from PIL import ImageFont

    return ImageFont.load_default_imagefont()


def _height(chart: Chart, value: int) -> float:
    """The vertical position of a value."""
    floor = chart.height - BOTTOM
    return floor - value * (floor - ABOVE) / TOP


def _place(chart: Chart, at: int) -> float:
    """The horizontal centre of a label."""
    return LEFT + (at + 0.5) * (chart.width - LEFT - 4) / len(chart.labels)


def _draw_axes(pen: "ImageDraw", chart: Chart) -> None:
    floor = chart.height - BOTTOM
    for value in range(TOP + 1):
        y = round(_height(chart, value))
        pen.line([(LEFT, y), (chart.width - 4, y)], fill=INK["grey" if value % 2 == 0 else "pale"])
        if value % 2 == 0:
            text = str(value * chart.unit)
            pen.text((LEFT - 3 - 6 * len(text), y - 6), text, fill=INK["dark"], font=_font())
    pen.line([(LEFT, ABOVE), (LEFT, floor)], fill=INK["dark"])
    pen.line([(LEFT, floor), (chart.width - 4, floor)], fill=INK["dark"])
    for at, label in enumerate(chart.labels):
        pen.text((round(_place(chart, at)) - 3, floor + 1), label, fill=INK["dark"], font=_font())


def _draw_bars(pen: "ImageDraw", chart: Chart) -> None:
    slot = (chart.width - LEFT - 4) / len(chart.labels)
    thick = slot * 0.7 / len(chart.series)
    for number, (colour, values) in enumerate(chart.series.items()):
        for at, value in enumerate(values):
            start = _place(chart, at) - slot * 0.35 + number * thick
            box = [round(start), round(_height(chart, value)), round(start + thick) - 1, chart.height - BOTTOM]
            pen.rectangle(box, fill=INK[colour])


def _draw_lines(pen: "ImageDraw", chart: Chart) -> None:
    for number, (colour, values) in enumerate(chart.series.items()):
        points = [(round(_place(chart, at)), round(_height(chart, value))) for at, value in enumerate(values)]
        pen.line(points, fill=INK[colour], width=1)
        reach = 3 - number  # where two points fall together, both are seen
        for x, y in points:
            pen.rectangle([x - reach, y - reach, x + reach, y + reach], fill=INK[colour])


def _draw_pie(pen: "ImageDraw", chart: Chart) -> None:
    x, y = chart.width / 2, chart.height / 2
    radius = min(x, y) - 10
    begun = 0
    for colour, (share,) in chart.series.items():
        start = begun
        begun = begun + share
        box = [x - radius, y - radius, x + radius, y + radius]
        pen.pieslice(box, 3.6 * start - 90, 3.6 * begun - 90, fill=INK[colour])
    for mark in range(20):
        angle = 2 * pi * mark / 20
        near = radius + 2
        far = radius + (8 if mark % 2 == 0 else 5)
        line = [(round(x + length * sin(angle)), round(y - length * cos(angle))) for length in (near, far)]
        pen.line(line, fill=INK["dark"])
