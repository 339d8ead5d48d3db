"""Which tests a task gets, and whether they are worth grading with: at least nine of ten mutants must die of them.

Every mutant that lives through the chosen tests is run on many more inputs. One of those that kills it joins the tests,
as long as there is room; a mutant that nothing kills is deemed to mean the same as the reference, and is not counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from random import Random

from envs.code.mutation import Mutant, mutants
from envs.code.problem import Arguments, Problem
from envs.code.trial import CRASH, run
from envs.code.value import Value, same

ENOUGH = 0.9
"""The share of mutants that mean something else which a task's tests must kill."""
FEWEST, MOST = 6, 10
"""Hidden tests of a task."""
EXAMPLES = 2
"""Tests that the prompt shows; none of them is hidden as well."""
POOL = 40
"""Inputs on which a mutant is tried before it is deemed to mean the same."""
MUTANTS = 24
"""Mutants drawn for a task; the tests of the bank try all of them."""


@dataclass(frozen=True, slots=True)
class Test:
    """One call and what it must return."""

    arguments: Arguments
    expected: Value


@dataclass(frozen=True, slots=True)
class Suite:
    """The tests of a task, and the mutants that they kill and that they let live though they mean something else."""

    examples: tuple[Test, ...]
    hidden: tuple[Test, ...]
    killed: tuple[Mutant, ...]
    missed: tuple[Mutant, ...]

    @property
    def admitted(self) -> bool:
        """Whether the hidden tests are worth grading with."""
        counted = len(self.killed) + len(self.missed)
        return bool(self.killed) and len(self.killed) >= ENOUGH * counted and not self._guessable()

    def _guessable(self) -> bool:
        """Whether one value, or one of the arguments as it is, passes them all."""
        first = self.hidden[0]
        return all(same(first.expected, test.expected) for test in self.hidden) or any(
            all(same(test.arguments[place], test.expected) for test in self.hidden)
            for place in range(len(first.arguments))
        )


def make_suite(problem: Problem, rng: Random, *, most_mutants: int = MUTANTS, pool_size: int = POOL) -> Suite:
    """Examples and hidden tests of a problem; equal randomness gives equal tests."""
    pool = _pool(problem, rng, pool_size)
    examples = _varied(pool, EXAMPLES)
    pool = [test for test in pool if test not in examples]
    hidden = _varied(pool, FEWEST)
    drawn = mutants(problem.source)
    killed: list[Mutant] = []
    missed: list[Mutant] = []
    for mutant in rng.sample(drawn, min(len(drawn), most_mutants)):
        killer = next((test for test in _first(hidden, pool) if kills(test, mutant, problem)), None)
        if killer is None:
            continue
        if killer in hidden or len(hidden) < MOST:
            hidden += [] if killer in hidden else [killer]
            killed.append(mutant)
        else:
            missed.append(mutant)
    return Suite(tuple(examples), tuple(hidden), tuple(killed), tuple(missed))


def _first(hidden: Sequence[Test], pool: Sequence[Test]) -> Iterator[Test]:
    """The hidden tests, and then the others."""
    yield from hidden
    yield from (test for test in pool if test not in hidden)


def kills(test: Test, mutant: Mutant, problem: Problem) -> bool:
    """Whether the mutant gives something else than the test expects."""
    given = run(mutant.source, problem.name, test.arguments)
    return not same(test.expected, given, tolerance=problem.tolerance)


def _pool(problem: Problem, rng: Random, size: int) -> list[Test]:
    """Different calls with what the reference returns."""
    seen: dict[str, Test] = {}
    for _ in range(3 * size):
        arguments = problem.inputs(rng)
        key = repr(arguments)
        if key not in seen:
            expected = run(problem.source, problem.name, arguments)
            assert expected is not CRASH, f"the reference of {problem.name} raises for {arguments}"
            seen[key] = Test(arguments, expected)
        if len(seen) == size:
            break
    return list(seen.values())


def _varied(pool: Sequence[Test], count: int) -> list[Test]:
    """Tests that take turns between the results that there are."""
    groups: dict[str, list[Test]] = {}
    for test in pool:
        groups.setdefault(repr(test.expected), []).append(test)
    turns = zip_longest(*groups.values())
    return list(islice((test for turn in turns for test in turn if test is not None), count))
