"""Which tests a task gets, and whether they are worth grading with: no wrong program that we can think of passes them.

Those are mutants of the reference, what is left of it when a part is taken away, and simple programs. Each that lives
through the tests is run on many more inputs, and one that kills it joins the tests. What no input kills is deemed to
mean the same as the reference.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice, zip_longest
from random import Random

from envs.code.mutation import mutants, remains
from envs.code.problem import Arguments, Problem
from envs.code.simple import simple_programs
from envs.code.trial import CRASH, run
from envs.code.value import Value, same

FEWEST, MOST = 6, 24
"""Hidden tests of a task."""
EXAMPLES = 2
"""Tests that the prompt shows; none of them is hidden as well."""
POOL = 200
"""Inputs on which a program is tried before it is deemed to mean the same."""
FRESH, FRESH_POOL = 8, 40
"""Tests that nobody has seen before the submission, and the inputs that they are chosen from for different results."""

Program = Callable[[Arguments], Value]


@dataclass(frozen=True, slots=True)
class Test:
    """One call and what it must return."""

    arguments: Arguments
    expected: Value


@dataclass(frozen=True, slots=True)
class Suite:
    """The tests of a task, and how many wrong programs they kill and let live."""

    examples: tuple[Test, ...]
    hidden: tuple[Test, ...]
    killed: int
    missed: int

    @property
    def admitted(self) -> bool:
        """Whether the hidden tests are worth grading with."""
        return bool(self.killed) and not self.missed


def make_suite(problem: Problem, rng: Random, *, pool_size: int = POOL) -> Suite:
    """Examples and hidden tests of a problem; equal randomness gives equal tests."""
    pool = draw_tests(problem, rng, pool_size)
    examples = _varied(pool, EXAMPLES)
    pool = [test for test in pool if test not in examples]
    hidden = _varied(pool, FEWEST)
    wrong = list(wrong_programs(problem))
    living = [program for program in wrong if not any(kills(test, program, problem) for test in hidden)]
    others = [test for test in pool if test not in hidden]
    by_program = [{place for place, test in enumerate(others) if kills(test, each, problem)} for each in living]
    waiting = [places for places in by_program if places]
    while waiting and len(hidden) < MOST:
        best = max(range(len(others)), key=lambda place: sum(place in places for places in waiting))
        hidden.append(others[best])
        waiting = [places for places in waiting if best not in places]
    same_as_reference = len(by_program) - sum(map(bool, by_program))
    return Suite(tuple(examples), tuple(hidden), len(wrong) - same_as_reference - len(waiting), len(waiting))


def fresh_tests(problem: Problem, submission: str) -> list[Test]:
    """Tests of this submission alone: equal for equal submissions, and known to nobody who has not submitted it."""
    seed = sha256(f"{problem.source}\0{submission}".encode("utf-8", "surrogatepass")).hexdigest()
    return _varied(draw_tests(problem, Random(seed), FRESH_POOL), FRESH)


def wrong_programs(problem: Problem) -> Iterator[Program]:
    """Programs that a task's tests must kill, unless they mean the same as the reference."""
    for source in dict.fromkeys([*(mutant.source for mutant in mutants(problem.source)), *remains(problem.source)]):
        yield lambda arguments, source=source: run(source, problem.name, arguments)  # type: ignore[misc]
    yield from (program.run for program in simple_programs(problem))


def kills(test: Test, program: Program, problem: Problem) -> bool:
    """Whether the program gives something else than the test expects."""
    return not same(test.expected, program(test.arguments), tolerance=problem.tolerance)


def draw_tests(problem: Problem, rng: Random, count: int) -> list[Test]:
    """Different calls with what the reference returns; fewer where there are no more."""
    seen: dict[str, Test] = {}
    for _ in range(3 * count):
        arguments = problem.inputs(rng)
        key = repr(arguments)
        if key not in seen:
            expected = run(problem.source, problem.name, arguments)
            assert expected is not CRASH, f"the reference of {problem.name} raises for {arguments}"
            seen[key] = Test(arguments, expected)
        if len(seen) == count:
            break
    return list(seen.values())


def _varied(pool: Iterable[Test], count: int) -> list[Test]:
    """Tests that take turns between the results that there are."""
    groups: dict[str, list[Test]] = {}
    for test in pool:
        groups.setdefault(repr(test.expected), []).append(test)
    turns = zip_longest(*groups.values())
    return list(islice((test for turn in turns for test in turn if test is not None), count))
