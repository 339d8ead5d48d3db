"""Small pictures as SVG, made on the server. Colours come from the style sheet."""

import math
from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup, escape

WIDE = 120.0
HIGH = 28.0


def sparkline(values: Sequence[float]) -> Markup:
    """A small curve with a dot at its end."""
    there = [value for value in values if math.isfinite(value)]
    if len(there) < 2:
        return Markup("")
    low, high = min(there), max(there)
    span = high - low or 1.0
    places = [
        (2 + (WIDE - 6) * at / (len(there) - 1), 3 + (HIGH - 6) * (high - value) / span)
        for at, value in enumerate(there)
    ]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    x, y = places[-1]
    return Markup(
        f'<svg class="spark" width="{WIDE:g}" height="{HIGH:g}" viewBox="0 0 {WIDE:g} {HIGH:g}" aria-hidden="true">'
        f'<path d="M{path}"/><circle cx="{x:.1f}" cy="{y:.1f}" r="2"/></svg>'
    )


def interval(
    low: float | None, mean: float | None, high: float | None, *, least: float = 0.0, most: float = 1.0
) -> Markup:
    """A mean with its interval on a scale."""
    if mean is None or low is None or high is None or not most > least:
        return Markup("")

    def x(value: float) -> float:
        return 2 + (WIDE - 4) * (min(max(value, least), most) - least) / (most - least)

    return Markup(
        f'<svg class="interval" width="{WIDE:g}" height="16" viewBox="0 0 {WIDE:g} 16" aria-hidden="true">'
        f'<path class="scale" d="M2 8H{WIDE - 2:g}"/><path class="range" d="M{x(low):.1f} 8H{x(high):.1f}"/>'
        f'<circle cx="{x(mean):.1f}" cy="8" r="3.5"/></svg>'
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


def plot(columns: Sequence[Sequence[float]], *, label: str, wide: float = 640.0, high: float = 120.0) -> Markup:
    """Curves over the same steps, in the colours c1, c2, … of the style sheet, with the ends of both axes."""
    there = [value for column in columns for value in column if math.isfinite(value)]
    if not there:
        return Markup("")
    low = min(there)
    top = max(there)
    span = top - low or 1.0
    left = 64.0
    right = wide - 6
    bottom = high - 20
    longest = max(map(len, columns))
    paths = []
    for number, column in enumerate(columns):
        spots = [
            f"{left + (right - left) * at / max(1, longest - 1):.1f} {6 + (bottom - 6) * (top - value) / span:.1f}"
            for at, value in _thin(column)
            if math.isfinite(value)
        ]
        if spots:
            paths.append(f'<path class="c{number % 8 + 1}" d="M{"L".join(spots)}{"h0" if len(spots) == 1 else ""}"/>')
    return Markup(
        f'<svg class="plot" viewBox="0 0 {wide:g} {high:g}" role="img" aria-label="{escape(label)}">'
        f'<path class="grid" d="M{left:g} 6H{right:g}M{left:g} {bottom:g}H{right:g}"/>{"".join(paths)}'
        f'<text x="{left - 8:g}" y="11" text-anchor="end">{top:.4g}</text>'
        f'<text x="{left - 8:g}" y="{bottom + 4:g}" text-anchor="end">{low:.4g}</text>'
        f'<text x="{left:g}" y="{high - 4:g}">0</text>'
        f'<text x="{right:g}" y="{high - 4:g}" text-anchor="end">{longest - 1}</text></svg>'
    )


def _thin(values: Sequence[float], most: int = 800) -> list[tuple[int, float]]:
    """Lowest and highest value of each stretch, so that no peak is lost."""
    if len(values) <= most:
        return list(enumerate(values))
    size = math.ceil(2 * len(values) / most)
    kept: set[tuple[int, float]] = set()
    for start, end in pairwise([*range(0, len(values), size), len(values)]):
        stretch = list(enumerate(values[start:end], start))
        kept |= {min(stretch, key=lambda each: each[1]), max(stretch, key=lambda each: each[1])}
    return sorted(kept)
