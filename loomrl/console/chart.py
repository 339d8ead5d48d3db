"""Charts of a page as data, which `static/charts.js` draws with uPlot."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from markupsafe import Markup

from loomrl.record import word

Form = Literal["number", "percent", "signed"]
XForm = Literal["number", "clock", "passed"]
"""A number, a time in seconds since 1970, or seconds since a beginning."""
Columns = Mapping[str, Sequence[float | None]]
MOST_POINTS = 1000
"""Longer lines keep the lowest and the highest value of every stretch, so that no peak is lost."""


def line_chart(
    title: str, x: Sequence[float], lines: Columns, *, form: Form = "number", x_form: XForm = "number", **more: Any
) -> Markup:
    """Lines over the same x; empty without any value. `more`: `note`, `marks` and `shades` as `charts.js` has them."""
    if not any(_is_number(value) for values in lines.values() for value in values):
        return Markup("")
    kept = _thin(lines)
    drawn = [{"name": name, "values": [_plain(values[at]) for at in kept]} for name, values in lines.items()]
    return figure("lines", title, x=[x[at] for at in kept], lines=drawn, form=form, xForm=x_form, **more)


def bar_chart(title: str, values: Sequence[tuple[str, float]], *, form: Form = "number", note: str = "") -> Markup:
    """A bar for each named value; empty without any."""
    if not values:
        return Markup("")
    names = [word.short(name, 28) for name, _ in values]
    return figure("bars", title, note=note, names=names, values=[value for _, value in values], form=form)


def figure(kind: Literal["lines", "bars", "parallel"], title: str, **spec: Any) -> Markup:
    """The figure that `charts.js` fills. Text in it is visible letter by letter, as everywhere in the console."""
    data = json.dumps(_visible({"kind": kind, "title": title, **spec}), ensure_ascii=False, allow_nan=False)
    return Markup('<figure data-chart="{}"><figcaption>{}</figcaption></figure>').format(data, word.visible(title))


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return word.visible(value)
    if isinstance(value, Mapping):
        return {name: _visible(each) for name, each in value.items()}
    return [_visible(each) for each in value] if isinstance(value, Sequence) else value


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _plain(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def _thin(lines: Columns) -> Sequence[int]:
    """Indices of the points that are drawn."""
    count = max(map(len, lines.values()))
    if count <= MOST_POINTS:
        return range(count)
    size = math.ceil(2 * count / MOST_POINTS)
    kept = {0, count - 1}
    for values in lines.values():
        for start in range(0, count, size):
            stretch = [at for at in range(start, min(start + size, count)) if _is_number(values[at])]
            if stretch:
                kept |= {min(stretch, key=values.__getitem__), max(stretch, key=values.__getitem__)}  # type: ignore[arg-type]
    return sorted(kept)


def sparkline(values: Sequence[float]) -> Markup:
    """A small curve in the cell of a table, which `charts.js` draws too; empty for fewer than two values."""
    there = [float(f"{value:.4g}") for value in values if math.isfinite(value)]
    return Markup('<span class="spark" data-spark="{}"></span>').format(json.dumps(there)) if there[1:] else Markup("")
