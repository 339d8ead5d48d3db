"""Questions about bar, line and pie charts. Again the answer is drawn first, and the chart is made for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from loomrl.envs.multimodal.plot import LABELS, TOP, Chart, draw_chart
from loomrl.envs.multimodal.quiz import Quiz, exact
from loomrl.gym.generate import words

SERIES = ("red", "blue", "green")
SLICES = words("red green blue yellow orange purple")
PERCENTS = tuple(range(5, 55, 5))


@dataclass(frozen=True, slots=True)
class Sheet:
    """A level's charts: number of labels, unit, and size."""

    labels: int
    unit: int
    width: int
    height: int

    @staticmethod
    def of(level: int, rng: Random) -> "Sheet":
        """More labels with every level, larger units from level 5."""
        unit = 1 if level < 5 else rng.choice((2, 5, 10))
        return Sheet(min(len(LABELS), level + 2), unit, min(224, 96 + 16 * level), min(160, 96 + 8 * level))


Asked = tuple[str, str, Chart]


def chart_quiz(level: int, rng: Random) -> Quiz:
    """A question of this level."""
    kind = rng.choice(LEVELS[level])
    sheet = Sheet.of(level, rng)
    question, answer, chart = KIND_OF[kind](sheet, rng)
    chart = replace(chart, width=sheet.width, height=sheet.height)
    return Quiz(question, answer, lambda: draw_chart(chart), exact(answer), _guesses(kind, sheet))


def _guesses(kind: str, sheet: Sheet) -> tuple[tuple[str, ...], ...]:
    if kind == "slice":
        return (tuple(map(str, PERCENTS)),)
    values = tuple(str(value * sheet.unit) for value in range(1, TOP + 1))
    letters = tuple(LABELS[: sheet.labels])
    if kind in ("largest", "gap"):
        return letters, values
    return (letters, letters, values) if kind == "rise" else (values,)


def _read(sheet: Sheet, rng: Random) -> Asked:
    values = _values(rng, sheet.labels)
    at = rng.randrange(sheet.labels)
    shape = rng.choice(("bar", "line"))
    thing = "bar" if shape == "bar" else "point"
    question = f"What is the value of {thing} {LABELS[at]}?"
    return question, str(values[at] * sheet.unit), Chart(shape, {"blue": values}, sheet.unit)


def _largest(sheet: Sheet, rng: Random) -> Asked:
    most = rng.randint(4, TOP)
    at = rng.randrange(sheet.labels)
    values = [rng.randint(1, most - 1) for _ in range(sheet.labels)]
    values[at] = most
    shape = rng.choice(("bar", "line"))
    question = "Which value is the largest? Answer with letter and value, such as: B 7."
    return question, f"{LABELS[at]} {most * sheet.unit}", Chart(shape, {"blue": tuple(values)}, sheet.unit)


def _difference(sheet: Sheet, rng: Random) -> Asked:
    apart = rng.randint(1, TOP - 2)
    low = rng.randint(1, TOP - apart)
    values = list(_values(rng, sheet.labels))
    more, less = rng.sample(range(sheet.labels), 2)
    values[more] = low + apart
    values[less] = low
    question = f"By how much is {LABELS[more]} larger than {LABELS[less]}?"
    return question, str(apart * sheet.unit), Chart("bar", {"blue": tuple(values)}, sheet.unit)


def _slice(sheet: Sheet, rng: Random) -> Asked:
    share = rng.choice(PERCENTS)
    colours = rng.sample(SLICES, rng.randint(3, min(5, sheet.labels)))
    sizes = [share, *_parts(rng, 100 - share, len(colours) - 1)]
    slices = list(zip(colours, sizes, strict=True))
    rng.shuffle(slices)
    question = f"How many percent of the pie are {colours[0]}? The marks around it are 5 percent apart."
    return question, str(share), Chart("pie", {colour: (size,) for colour, size in slices})


def _rise(sheet: Sheet, rng: Random) -> Asked:
    """One step is steeper than all others."""
    steepest = rng.randint(4, 9)
    at = rng.randrange(sheet.labels - 1)
    while True:
        values = [rng.randint(1, TOP) for _ in range(sheet.labels)]
        values[at] = rng.randint(1, TOP - steepest)
        values[at + 1] = values[at] + steepest
        steps = [after - before for before, after in pairwise(values)]
        if sorted(steps)[-2] < steepest:
            break
    question = "Between which two neighbours does the line rise most, and by how much? Answer such as: B C 4."
    answer = f"{LABELS[at]} {LABELS[at + 1]} {steepest * sheet.unit}"
    return question, answer, Chart("line", {"blue": tuple(values)}, sheet.unit)


def _series(sheet: Sheet, rng: Random) -> Asked:
    chart, one, _ = _two(sheet, rng)
    at = rng.randrange(sheet.labels)
    question = f"What is the {one} value at {LABELS[at]}?"
    return question, str(chart.series[one][at] * sheet.unit), chart


def _sum(sheet: Sheet, rng: Random) -> Asked:
    chart, one, _ = _two(replace(sheet, labels=min(4, sheet.labels)), rng)
    return f"What do all {one} values add up to?", str(sum(chart.series[one]) * sheet.unit), chart


def _lookup(sheet: Sheet, rng: Random) -> Asked:
    chart, one, other = _two(sheet, rng)
    at = rng.randrange(sheet.labels)
    values = [max(2, value) for value in chart.series[other]]
    values[at] = 1
    chart = replace(chart, series={**chart.series, other: tuple(values)})
    question = f"What is the {one} value at the letter where {other} is smallest?"
    return question, str(chart.series[one][at] * sheet.unit), chart


def _gap(sheet: Sheet, rng: Random) -> Asked:
    """At one letter the two are further apart than anywhere else."""
    chart, one, other = _two(sheet, rng)
    apart = rng.randint(5, TOP - 1)
    at = rng.randrange(sheet.labels)
    ours = []
    theirs = []
    for place in range(sheet.labels):
        gap = apart if place == at else rng.randint(0, apart - 1)
        low = rng.randint(1, TOP - gap)
        pair = (low, low + gap) if rng.random() < 0.5 else (low + gap, low)
        ours.append(pair[0])
        theirs.append(pair[1])
    chart = replace(chart, series={one: tuple(ours), other: tuple(theirs)})
    question = f"Where are {one} and {other} furthest apart, and how far? Answer with letter and number, such as: B 7."
    return question, f"{LABELS[at]} {apart * sheet.unit}", chart


def _two(sheet: Sheet, rng: Random) -> tuple[Chart, str, str]:
    """A chart with two or three series, and two of their names."""
    names = rng.sample(SERIES, 2)
    shape = rng.choice(("bar", "line"))
    series = {name: _values(rng, sheet.labels) for name in names}
    return Chart(shape, series, sheet.unit), names[0], names[1]


def _values(rng: Random, count: int) -> tuple[int, ...]:
    return tuple(rng.randint(1, TOP) for _ in range(count))


def _parts(rng: Random, whole: int, count: int) -> list[int]:
    """Multiples of five that add up to the whole."""
    cuts = sorted(rng.sample(range(1, whole // 5), count - 1))
    ends = [*cuts, whole // 5]
    return [5 * (end - start) for start, end in zip([0, *cuts], ends, strict=True)]


KIND_OF: Mapping[str, Callable[[Sheet, Random], Asked]] = {
    "read": _read,
    "largest": _largest,
    "difference": _difference,
    "slice": _slice,
    "rise": _rise,
    "series": _series,
    "sum": _sum,
    "lookup": _lookup,
    "gap": _gap,
}
LEVELS: Mapping[int, tuple[str, ...]] = {
    1: ("read",),
    2: ("read", "largest"),
    3: ("largest", "difference"),
    4: ("difference", "slice"),
    5: ("read", "slice", "rise"),
    6: ("rise", "series"),
    7: ("series", "slice", "rise"),
    8: ("series", "sum", "lookup"),
    9: ("sum", "lookup", "gap"),
    10: ("lookup", "gap", "sum"),
}
