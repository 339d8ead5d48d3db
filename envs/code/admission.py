"""Selection of a task's tests, and a check that they are strong enough: no known wrong program passes them.

Wrong programs are mutants of the reference, the reference with a part removed, and simple programs. Each that survives
the tests runs on many more inputs, and an input that kills it joins the tests. A program that no input kills counts as
equivalent to the reference.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import islice, zip_longest
from random import Random

from loomrl.envs.code.mutation import mutants, remains
from loomrl.envs.code.problem import CRASH, Arguments, CodeProblem, run
from loomrl.envs.code.simple import simple_programs
from loomrl.envs.code.value import Value, same

FEWEST = 6
MOST = 24
"""Hidden tests of a task."""
EXAMPLES = 2
"""Tests shown in the prompt; none of them is a hidden test."""
POOL = 500
"""Inputs tried before a program counts as equivalent."""
FIRST_DEATH = 1_000
"""Weight of a first kill relative to a further one."""
DEPTH = 3
"""Hidden tests that should kill each mutant, if possible: two bugs together may pass a test that shows one."""
RARE = 0.01
"""Share of inputs below which a bug counts as rare."""
FRESH = 96
"""Tests drawn after the submission, unknown to anybody before."""

Program = Callable[[Arguments], Value]


@dataclass(frozen=True, slots=True)
class Test:
    """One call and its expected value."""

    arguments: Arguments
    expected: Value


@dataclass(frozen=True, slots=True)
class Suite:
    """The tests of a task, with the numbers of killed and surviving wrong programs."""

    examples: tuple[Test, ...]
    hidden: tuple[Test, ...]
    killed: int
    missed: int
    rare: int
    """Bugs that hardly any input shows: a second bug could hide beside one."""

    @property
    def is_admitted(self) -> bool:
        """True if the hidden tests are strong enough for grading."""
        return bool(self.killed) and not self.missed and not self._guessable()

    def _guessable(self) -> bool:
        """True if one constant, or one unchanged argument, passes them all."""
        first = self.hidden[0]
        return all(same(first.expected, test.expected) for test in self.hidden) or any(
            all(same(test.arguments[place], test.expected) for test in self.hidden)
            for place in range(len(first.arguments))
        )


@dataclass(slots=True)
class _Wrong:
    """A wrong program: the hidden tests that kill it, the number that should, and the other tests that would."""

    deaths: int
    wanted: int
    killers: set[int]


def make_suite(problem: CodeProblem, rng: Random, *, pool_size: int = POOL) -> Suite:
    """Examples and hidden tests of a problem; equal randomness gives equal tests."""
    pool = draw_tests(problem, rng, pool_size)
    examples = _alternate_results(pool, EXAMPLES)
    pool = [test for test in pool if test not in examples]
    hidden = _alternate_results(pool, FEWEST)
    others = [test for test in pool if test not in hidden]
    wrong: list[_Wrong] = []
    for program, wanted in wrong_programs(problem):
        deaths = len(list(islice((test for test in hidden if kills(test, program, problem)), wanted)))
        places = enumerate(others) if deaths < wanted else ()
        killers = {place for place, test in places if kills(test, program, problem)}
        if deaths or killers:  # else it means the same
            wrong.append(_Wrong(deaths, wanted, killers))
    unsure = [each for each in wrong if each.deaths < each.wanted == DEPTH]
    rare = sum(each.deaths + len(each.killers) < RARE * len(pool) for each in unsure)
    hidden += [others[place] for place in _chosen(wrong, MOST - len(hidden))]
    missed = sum(not each.deaths for each in wrong)
    return Suite(tuple(examples), tuple(hidden), len(wrong) - missed, missed, rare)


def _chosen(wrong: Sequence[_Wrong], most: int) -> Iterator[int]:
    """A near-minimal set of tests for the required kills; programs not killed yet come first."""
    for _ in range(most):
        worth: Counter[int] = Counter()
        for each in wrong:
            if each.deaths < each.wanted:
                worth.update(dict.fromkeys(each.killers, 1 if each.deaths else FIRST_DEATH))
        if not worth:
            return
        best = max(worth, key=lambda place: (worth[place], -place))
        for each in wrong:
            each.deaths += best in each.killers
            each.killers.discard(best)
        yield best


def fresh_tests(problem: CodeProblem, submission: str) -> list[Test]:
    """Tests of this submission alone: equal for equal submissions, and unknown before it is submitted."""
    # from task and code alone: equal submissions get equal verdicts, and no test can be learnt from an earlier one
    seed = sha256(f"{problem.source}\0{submission}".encode("utf-8", "surrogatepass")).hexdigest()
    return draw_tests(problem, Random(seed), FRESH)


def wrong_programs(problem: CodeProblem) -> Iterator[tuple[Program, int]]:
    """Programs that a task's tests must kill unless equivalent to the reference, and the required number of kills."""
    for source in dict.fromkeys([*(mutant.source for mutant in mutants(problem.source)), *remains(problem.source)]):
        yield partial(run, source, problem.name), DEPTH
    yield from ((program.run, 1) for program in simple_programs(problem))


def kills(test: Test, program: Program, problem: CodeProblem) -> bool:
    """True if the program's value differs from the expected one."""
    return not same(test.expected, program(test.arguments), tolerance=problem.tolerance)


def draw_tests(problem: CodeProblem, rng: Random, count: int) -> list[Test]:
    """Different calls with the reference's values; fewer if there are no more."""
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


def _alternate_results(pool: Iterable[Test], count: int) -> list[Test]:
    """Tests that alternate between the different results."""
    groups: dict[str, list[Test]] = {}
    for test in pool:
        groups.setdefault(repr(test.expected), []).append(test)
    turns = zip_longest(*groups.values())
    return list(islice((test for turn in turns for test in turn if test is not None), count))
