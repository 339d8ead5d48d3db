"""The tasks of each family: a problem with its tests, and the code shown."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from random import Random

from loomrl.envs.code.admission import Suite, Test, kills, make_suite
from loomrl.envs.code.bank import PATTERNS
from loomrl.envs.code.composition import NAME, compose
from loomrl.envs.code.driver import show_value
from loomrl.envs.code.mutation import Mutant, is_omission, mutants
from loomrl.envs.code.problem import Arguments, CodeProblem, ProblemPattern, normal, run

TRIES = 20
"""Problems drawn for a task until one is admitted."""
LINES_FACTOR = 3
"""Limit of executed lines as a multiple of the reference's, in families with a limit."""
LINES_SLACK = 25
"""Lines beyond that, for imports and helpers."""
LARGE = 2
"""Large inputs of a task; their values must not be guessable."""
_TWO_BUGS_FROM = 8
_NEAR = 2
"""A problem of the bank is used at its level and this many above."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """Code to write: prompt, tests, and the inputs for counting lines."""

    problem: CodeProblem
    prompt: str
    examples: tuple[Test, ...]
    hidden: tuple[Test, ...]
    measured: tuple[Arguments, ...]
    bounded: bool = False
    """True if the number of executed lines is limited."""


class NotAdmitted(Exception):
    """A problem whose tests are too weak for grading."""


@lru_cache(maxsize=256)
def make_challenge(family: str, level: int, seed: int) -> Challenge:
    """The task of this family, level and seed; equal in every process."""
    rng = Random(f"code:{family}:{level}:{seed}")
    for _ in range(TRIES):
        try:
            return FAMILIES[family](level, rng)
        except NotAdmitted:
            continue
    raise RuntimeError(f"{family}, level {level}, seed {seed}: none of {TRIES} problems was admitted.")


def _implement(level: int, rng: Random) -> Challenge:
    problem, suite = _admit(_any_problem(level, rng), rng)
    prompt = f"{describe_task(problem)}\n{_format_examples(problem, suite)}"
    return Challenge(problem, prompt, suite.examples, suite.hidden, (suite.hidden[-1].arguments,))


def _debug(level: int, rng: Random) -> Challenge:
    problem, suite = _admit(_any_problem(level, rng), rng)
    broken = _broken(problem, suite, 2 if level >= _TWO_BUGS_FROM else 1, rng)
    prompt = f"This function is wrong:\n```python\n{broken}\n```\nIt should do this: {problem.prompt}"
    prompt += f"\n{_format_examples(problem, suite)}\nCorrect it."
    return Challenge(problem, prompt, suite.examples, suite.hidden, (suite.hidden[-1].arguments,))


def _optimise(level: int, rng: Random) -> Challenge:
    patterns = [pattern for pattern in PATTERNS if pattern.slow and level - 1 <= pattern.level <= level]
    problem, suite = _admit(rng.choice(patterns).problem(rng), rng)
    measured = tuple(problem.large_inputs(rng) for _ in range(LARGE))
    sizes = ", ".join(_size(argument) for argument in measured[0])
    prompt = (
        f"This function is right, but slow:\n```python\n{problem.slow}\n```\n{problem.prompt}\n"
        f"Write it so that it returns the same and, for large inputs such as ({sizes}), executes at most "
        f"{LINES_FACTOR} times as many lines as a good solution. Use functions and loops, no classes; you may import "
        "from bisect, collections, functools, heapq, itertools and math."
    )
    return Challenge(problem, prompt, suite.examples, suite.hidden, measured, bounded=True)


FAMILIES: Mapping[str, Callable[[int, Random], Challenge]] = {
    "implement": _implement,
    "debug": _debug,
    "optimise": _optimise,
}
"""Families whose answer is code to run."""


def describe_task(problem: CodeProblem) -> str:
    """The task in words, with the name and types to use."""
    return f"Write the function {problem.head[len('def ') : -1]}\n{problem.prompt}"


def any_pattern(level: int, rng: Random) -> ProblemPattern:
    """A problem of the bank for this level."""
    near = [pattern for pattern in PATTERNS if level - _NEAR <= max(pattern.level, 2) <= level]
    return rng.choice(near)


def bugs(problem: CodeProblem) -> list[Mutant]:
    """Mutants whose change is not obvious."""
    return [mutant for mutant in mutants(problem.source) if not is_omission(mutant)]


def bug(problem: CodeProblem, rng: Random, tests: tuple[Test, ...]) -> Mutant | None:
    """A mutant that one of the tests kills, any line equally likely, in the form that `ast.unparse` gives it."""
    lines = sorted({mutant.line for mutant in bugs(problem)})
    rng.shuffle(lines)
    for line in lines:
        here = [mutant for mutant in bugs(problem) if mutant.line == line]
        for mutant in rng.sample(here, len(here)):
            if is_wrong(mutant.source, problem, tests):
                return Mutant(normal(mutant.source), mutant.line, mutant.kind)
    return None


def is_wrong(source: str, problem: CodeProblem, tests: tuple[Test, ...]) -> bool:
    """True if a test fails."""
    program = partial(run, source, problem.name)
    return any(kills(test, program, problem) for test in tests)


def _any_problem(level: int, rng: Random) -> CodeProblem:
    if level == 1 or rng.random() < 0.5:
        return compose(level, rng)
    return any_pattern(level, rng).problem(rng)


def _admit(problem: CodeProblem, rng: Random) -> tuple[CodeProblem, Suite]:
    suite = make_suite(problem, rng)
    endless = problem.name == NAME  # composed: there is always another one
    if not suite.is_admitted or (endless and suite.rare):
        raise NotAdmitted(problem.name)
    return problem, suite


def _broken(problem: CodeProblem, suite: Suite, count: int, rng: Random) -> str:
    """The reference with `count` bugs on different lines, which the hidden tests detect."""
    first = bug(problem, rng, suite.hidden)
    if first is None:
        raise NotAdmitted(problem.name)
    if count == 1:
        return first.source
    others = [other for other in mutants(first.source) if other.line != first.line and not is_omission(other)]
    for second in rng.sample(others, len(others)):
        alone = second.source.split("\n")
        alone[first.line - 1] = problem.source.split("\n")[first.line - 1]
        if is_wrong("\n".join(alone), problem, suite.hidden) and is_wrong(second.source, problem, suite.hidden):
            return normal(second.source)
    raise NotAdmitted(problem.name)


def _format_examples(problem: CodeProblem, suite: Suite) -> str:
    return "\n".join(f"Example: {format_call(problem, test)} == {show_value(test.expected)}" for test in suite.examples)


def format_call(problem: CodeProblem, test: Test) -> str:
    """The call that a test makes, for people."""
    return f"{problem.name}({', '.join(map(show_value, test.arguments))})"


def _size(argument: object) -> str:
    if isinstance(argument, bool | float):
        return show_value(argument)
    if isinstance(argument, int):
        return f"a number of {len(str(abs(argument)))} digits"
    if isinstance(argument, str):
        return f"text of {len(argument)} letters"
    return f"a list of {len(argument)} items" if isinstance(argument, list) else show_value(argument)
