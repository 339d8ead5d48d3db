"""The strength of a task's tests: wrong programs of many kinds must not pass, and those that do are shown wrong.

`pytest tests/envs/test_code_strength.py -m slow -s` judges 20,000 fresh inputs of every kind of task and says how many
wrong programs were tried.
"""

from collections.abc import Callable, Iterator
from random import Random

import pytest

from loomrl.envs.code.admission import draw_tests, fresh_tests, kills
from loomrl.envs.code.bank import PATTERNS
from loomrl.envs.code.mutation import mutants, remains
from loomrl.envs.code.problem import run
from loomrl.envs.code.simple import MOST, simple_programs
from loomrl.envs.code.task import FAMILIES, Challenge, make_challenge
from loomrl.envs.code.value import Value

FEW, MANY = MOST, 3_000
"""Simple programs of a task; admission tries the few."""
PAIRS = 40
"""Programs with two bugs."""

Wrong = tuple[str, Callable[..., Value]]
"""A program's text, and the program."""


def wrong_programs(challenge: Challenge, rng: Random, simple: int) -> Iterator[Wrong]:
    """More than admission knows: also two bugs at once, bugs in what the prompt shows, and what other tasks ask for."""
    problem = challenge.problem
    first = [mutant.source for mutant in mutants(problem.source)]
    sources = [*first, *remains(problem.source)]
    for source in rng.choices(first, k=PAIRS):
        sources.append(rng.choice(mutants(source) or mutants(problem.source)).source)
    if "```python\n" in challenge.prompt and not problem.slow:
        shown = challenge.prompt.split("```python\n")[1].split("\n```")[0]
        sources += [shown, *(mutant.source for mutant in mutants(shown)), *remains(shown)]
    for pattern in PATTERNS:
        if pattern.signature == problem.signature:
            sources.append(pattern.problem(rng).source.replace(f"{pattern.name}(", f"{problem.name}("))
    for source in dict.fromkeys(sources):
        yield source, lambda arguments, source=source: run(source, problem.name, arguments)
    for program in simple_programs(problem, simple):
        yield program.expression, program.run


def survey(kind: str, *, seeds: int, inputs: int, simple: int = MANY) -> tuple[int, int, int, list[str]]:
    """Programs tried, those that pass, fresh inputs, and what passes though some input shows that it is wrong."""
    tried = passed = judged = 0
    found = []
    for level in range(1, 11):
        for seed in range(seeds):
            challenge = make_challenge(kind, level, 50_000 + seed)
            problem = challenge.problem
            later = draw_tests(problem, Random(f"later {kind} {level} {seed}"), inputs)
            judged += len(later)
            for text, program in wrong_programs(challenge, Random(seed), simple):
                tried += 1
                if any(kills(test, program, problem) for test in (*challenge.examples, *challenge.hidden)):
                    continue
                if any(kills(test, program, problem) for test in fresh_tests(problem, text)):
                    continue
                passed += 1
                against = [test for test in later if kills(test, program, problem)]
                if against:
                    found.append(f"{level} {seed} {problem.prompt!r}: {text!r}, as {against[0]} shows ({len(against)})")
    return tried, passed, judged, found


@pytest.mark.parametrize("kind", FAMILIES)
def test_no_wrong_program_passes(kind):
    tried, _, judged, found = survey(kind, seeds=1, inputs=100, simple=FEW)
    assert tried > 1_000
    assert judged > 500
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAMILIES)
def test_no_wrong_program_passes_by_twenty_thousand_fresh_inputs(kind):
    tried, passed, judged, found = survey(kind, seeds=8, inputs=400)
    print(f"{kind}: {tried} programs tried, {passed} pass, {judged} fresh inputs, {len(found)} of them are wrong")
    assert judged >= 20_000
    assert found == []
