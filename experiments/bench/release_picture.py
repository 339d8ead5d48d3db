"""A picture of two simulated releases: the bounds of ours beside those of a test that may be looked at once only."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

import numpy as np

from loomrl.experiments.bench.release import SHARE_OF_ERROR, SHIPPED
from loomrl.experiments.bench.release_traffic import RAMP, WHOLE, Metric, assigned, steps
from loomrl.files import write_whole
from loomrl.release.betting import Floats
from loomrl.release.comparison import Comparison
from loomrl.store.observations import Observation

STEP = 20
"""Units between two looks."""
WIDE = 640
HIGH = 570
LEFT = 60
TOP = 56
PLOT_WIDE = 560
PLOT_HIGH = 200
EDGE = 0.3
"""The largest difference in the picture."""
SURE = 1.96
STYLE = """
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:#55544f}
.page{fill:#fff}.title{font-size:14px;font-weight:600;fill:#14140f}.grid{stroke:#e6e5de}.zero{stroke:#14140f}
.ours{fill:#2a78d6;fill-opacity:.3;stroke:#2a78d6}.once{fill:none;stroke:#eb6834;stroke-width:1.5}
.mean{fill:none;stroke:#85837b}.ours-word{fill:#2a78d6}.once-word{fill:#eb6834}.wrong{fill:#eb6834}.right{fill:#2a78d6}
@media(prefers-color-scheme:dark){text{fill:#c3c2b7}.page{fill:#1a1a19}.title{fill:#f4f4ef}.grid{stroke:#33332f}
.zero{stroke:#f4f4ef}}
"""


@dataclass(frozen=True, slots=True)
class Look:
    """The difference after some units, with the bounds of both."""

    units: int
    difference: float
    ours: tuple[float, float]
    once: tuple[float, float]
    is_worse: bool


def draw(file: Path) -> None:
    """Write the picture: a good version that the single look condemns, and a worse one."""
    equal = next(looks for looks in map(_good, range(1000)) if any(look.once[1] < 0 for look in looks))
    worse = _looks(replace(SHIPPED[0], fault=-0.1), seed=0)
    parts = [
        *_panel("An equal version: 0.70 against 0.70", equal, TOP),
        *_panel("A worse one: 0.60 against 0.70", worse, TOP + PLOT_HIGH + 80),
    ]
    shape = f'xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{HIGH}" viewBox="0 0 {WIDE} {HIGH}"'
    page = f'<rect class="page" width="{WIDE}" height="{HIGH}"/>'
    text = f'<svg {shape} role="img"><style>{STYLE}</style>{page}{"".join(parts)}</svg>\n'
    write_whole(file, text.encode())


def _good(seed: int) -> list[Look]:
    return _looks(SHIPPED[0], seed=seed)


def _looks(metric: Metric, *, seed: int) -> list[Look]:
    rng = np.random.default_rng(seed)
    chance = steps(RAMP)
    taken = assigned(rng, 1, chance)
    values = 1 - metric.drawn(rng, taken).plain_RN[0]
    comparison = Comparison((metric.guard,), baseline="stable", challenger="canary", error_rate=SHARE_OF_ERROR)
    shares = {round(100 * share): {"stable": 1 - share, "canary": share} for _, share in RAMP}
    found = []
    for begin in range(0, WHOLE, STEP):
        units = range(begin, begin + STEP)
        comparison.observe([_observed(unit, taken[0], values, chance) for unit in units], shares.__getitem__)
        finding = comparison.findings()[0]
        done = begin + STEP
        once = _once(values[:done], taken[0, :done])
        found.append(Look(done, finding.difference, (finding.low, finding.high), once, finding.is_worse))
    return found


def _observed(unit: int, taken: Floats, values: Floats, chance: Floats) -> Observation:
    arm = "canary" if taken[unit] else "stable"
    revision = round(100 * chance[unit])
    return Observation(revision=revision, arm=arm, unit=unit, metric="success", value=float(values[unit]), at=0.0)


def _once(values: Floats, taken: Floats) -> tuple[float, float]:
    """The interval of 95 % that holds for one look."""
    new = values[taken == 1]
    old = values[taken == 0]
    if min(len(new), len(old)) < 20:
        return -1.0, 1.0
    error = float(np.sqrt(new.var() / len(new) + old.var() / len(old)))
    middle = float(new.mean() - old.mean())
    return middle - SURE * error, middle + SURE * error


def _panel(title: str, looks: Sequence[Look], top: float) -> Iterator[str]:
    def x(units: float) -> float:
        return LEFT + PLOT_WIDE * units / WHOLE

    def y(difference: float) -> float:
        return top + PLOT_HIGH * (EDGE - min(max(difference, -EDGE), EDGE)) / (2 * EDGE)

    def line(values: Sequence[tuple[int, float]]) -> str:
        return "L".join(f"{x(units):.1f} {y(value):.1f}" for units, value in values)

    yield f'<text class="title" x="{LEFT}" y="{top - 32}">{escape(title)}</text>'
    yield f'<text class="ours-word" x="{LEFT}" y="{top - 12}">ours, at every look</text>'
    yield f'<text class="once-word" x="{LEFT + 130}" y="{top - 12}">95 % at a single look</text>'
    for tick in (-0.2, -0.1, 0.0, 0.1, 0.2):
        kind = "zero" if tick == 0 else "grid"
        yield f'<path class="{kind}" d="M{LEFT} {y(tick):.1f}H{LEFT + PLOT_WIDE}"/>'
        yield f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:+.1f}</text>'
    high = line([(look.units, look.ours[1]) for look in looks])
    low = line([(look.units, look.ours[0]) for look in reversed(looks)])
    yield f'<path class="ours" d="M{high}L{low}Z"/>'
    for side in (0, 1):
        yield f'<path class="once" d="M{line([(look.units, look.once[side]) for look in looks])}"/>'
    yield f'<path class="mean" d="M{line([(look.units, look.difference) for look in looks])}"/>'
    yield from _ends(looks, x, top)
    begin = 0
    for units, share in RAMP:
        yield f'<path class="grid" d="M{x(begin):.1f} {top}V{top + PLOT_HIGH}"/>'
        yield f'<text x="{x(begin) + 4:.1f}" y="{top + PLOT_HIGH + 16}">{share:.0%} from unit {begin:,}</text>'
        begin += units


def _ends(looks: Sequence[Look], x: Callable[[float], float], top: float) -> Iterator[str]:
    """Marks where each would roll back."""
    ends = {
        "wrong": next((look.units for look in looks if look.once[1] < 0), None),
        "right": next((look.units for look in looks if look.is_worse), None),
    }
    words = {"wrong": "peeking rolls back", "right": "ours rolls back"}
    for row, (kind, units) in enumerate(ends.items()):
        if units is not None:
            down = top + PLOT_HIGH - 8 - 16 * row
            side = (-8, "end") if units > WHOLE / 2 else (8, "start")
            yield f'<circle class="{kind}" cx="{x(units):.1f}" cy="{down - 4}" r="4"/>'
            yield f'<text x="{x(units) + side[0]:.1f}" y="{down}" text-anchor="{side[1]}">'
            yield f"{words[kind]} after {units:,} units</text>"
