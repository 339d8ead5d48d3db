"""A list of numbers that passes through several steps, one after the other."""

from collections import Counter
from collections.abc import Sequence
from random import Random

from loomrl.envs.code.compose.operation import ENDS, FILTERS, MACHINES, MAPS, NEIGHBOURS, ORDERS, PipelineStep
from loomrl.envs.code.draw import numbers
from loomrl.envs.code.problem import CodeProblem, normal, run
from loomrl.envs.code.value import same

_FIRST_LEVEL = 3
_MACHINES_FROM = 6
_SAMPLES = 16
"""Lists on which a step must make a difference to stay."""
_RESULTS = 40
_MOST_ALIKE = 16
"""Maximum number of equal results among `_RESULTS` lists: if most are equal, few show the effect of earlier steps."""


def pipeline(name: str, level: int, rng: Random) -> CodeProblem:
    """A function that sends its list through steps that all matter; some remember something, from level 6 on."""
    while True:
        problem = _draw_pipeline(name, level, rng)
        results = Counter(repr(run(problem.source, name, problem.inputs(rng))) for _ in range(_RESULTS))
        if max(results.values()) <= _MOST_ALIKE:
            return problem


def _draw_pipeline(name: str, level: int, rng: Random) -> CodeProblem:
    """A pipeline in which each step matters for some list, even if most lists end up equal."""
    end = rng.choice(ENDS).draw_numbers(rng)
    draw = numbers(-9, 40, fewest=0, most=level + 8)
    samples = [draw(rng) for _ in range(_SAMPLES)]
    steps = _steps(level, rng)
    before = [run(_source(name, [*steps, end]), name, (items,)) for items in samples]
    for step in list(steps):
        fewer = [other for other in steps if other is not step]
        after = [run(_source(name, [*fewer, end]), name, (items,)) for items in samples]
        if same(before, after):
            steps = fewer
    return CodeProblem(name, _signature(end), _describe([*steps, end]), normal(_source(name, [*steps, end])), (draw,))


def _source(name: str, steps: Sequence[PipelineStep]) -> str:
    head = CodeProblem(name, _signature(steps[-1]), "", "", ()).head
    lines = [line for step in steps for line in step.code.split("\n")]
    return "\n".join([head, *(f"    {line}" for line in lines)])


def _signature(end: PipelineStep) -> str:
    return f"items: list[int] -> {'list[int]' if end.code == 'return items' else 'int'}"


def _steps(level: int, rng: Random) -> list[PipelineStep]:
    """No two from one kind follow each other, nor does one come twice."""
    kinds = [FILTERS, MAPS, ORDERS, NEIGHBOURS][: 2 if level == _FIRST_LEVEL else 4]
    machines = max(0, level - _MACHINES_FROM + 2) // 2
    chosen = rng.sample(MACHINES, machines)
    last: tuple[PipelineStep, ...] = ()
    while len(chosen) < level - _FIRST_LEVEL + 1:
        kind = rng.choice(kinds)
        step = rng.choice(kind)
        if kind is not last and step not in chosen:
            chosen.append(step)
            last = kind
    rng.shuffle(chosen)
    return [step.draw_numbers(rng) for step in chosen]


def _describe(steps: list[PipelineStep]) -> str:
    if len(steps) <= 3:
        return " ".join(step.words for step in steps)
    return "\n".join(f"{number}. {step.words}" for number, step in enumerate(steps, start=1))
