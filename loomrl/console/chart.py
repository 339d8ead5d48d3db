"""Charts of a page as data, which `static/charts.js` draws with uPlot, and small marks inside tables."""

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
WIDE = 120.0


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


def sparkline(values: Sequence[float], *, high: float = 28.0) -> Markup:
    """A small curve with a dot at its end."""
    there = [value for value in values if math.isfinite(value)]
    if len(there) < 2:
        return Markup("")
    low = min(there)
    top = max(there)
    span = top - low or 1.0
    places = [
        (2 + (WIDE - 6) * at / (len(there) - 1), 3 + (high - 6) * (top - value) / span)
        for at, value in enumerate(there)
    ]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    x, y = places[-1]
    return Markup(
        f'<svg class="spark" width="{WIDE:g}" height="{high:g}" viewBox="0 0 {WIDE:g} {high:g}" aria-hidden="true">'
        f'<path d="M{path}"/><circle cx="{x:.1f}" cy="{y:.1f}" r="2"/></svg>'
    )


def interval_marks(*intervals: Mapping[str, Any] | None, least: float = 0.0, most: float = 1.0) -> Markup:
    """Means with their intervals on one scale, one below the other; empty if none is known."""
    known = [each for each in intervals if each is not None and each.get("mean") is not None]
    if not known or not most > least:
        return Markup("")

    def x(value: float) -> float:
        return 2 + (WIDE - 4) * (min(max(value, least), most) - least) / (most - least)

    marks = ""
    for row, each in enumerate(intervals):
        y = 8 + 8 * row
        kind = "before" if len(intervals) > 1 and row == 0 else "after"
        if each is None or each.get("mean") is None:
            continue
        if each.get("low") is not None and each.get("high") is not None:
            marks += f'<path class="range {kind}" d="M{x(each["low"]):.1f} {y}H{x(each["high"]):.1f}"/>'
        marks += f'<circle class="{kind}" cx="{x(each["mean"]):.1f}" cy="{y}" r="3.5"/>'
    high = 8 + 8 * len(intervals)
    scale = f'<path class="scale" d="M2 {high / 2:g}H{WIDE - 2:g}"/>'
    return Markup(
        f'<svg class="interval" width="{WIDE:g}" height="{high}" viewBox="0 0 {WIDE:g} {high}" aria-hidden="true">'
        f"{scale}{marks}</svg>"
    )


def share_bar(shares: Sequence[tuple[str, float]]) -> Markup:
    """Shares of a whole, one after the other; the class of each part is given."""
    parts = []
    at = 0.0
    for kind, share in shares:
        parts.append(f'<rect class="{kind}" x="{at:.2f}" width="{max(0.0, 100 * share - 0.3):.2f}" height="8"/>')
        at += 100 * share
    return Markup(
        f'<svg class="shares" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">{"".join(parts)}</svg>'
    )
