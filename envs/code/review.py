"""Code review: several functions with their specifications, and one wrong line among them."""

from dataclasses import dataclass
from functools import lru_cache
from random import Random

from loomrl.envs.code.admission import Test
from loomrl.envs.code.composition import formula, pipeline, two_ways
from loomrl.envs.code.problem import CodeProblem, run
from loomrl.envs.code.task import any_pattern, bug, bugs

FAMILY = "review"
_TESTS = 12
"""Inputs, one of which must show the bug."""


@dataclass(frozen=True, slots=True)
class Review:
    """The listing, the number of its wrong line, and the lines that could be wrong."""

    prompt: str
    line: int
    candidates: tuple[int, ...]


@lru_cache(maxsize=256)
def make_review(level: int, seed: int) -> Review:
    """The task of this level and seed; equal in every process."""
    rng = Random(f"code:{FAMILY}:{level}:{seed}")
    if level <= 2:
        return _formulas(4 + 2 * level, rng)
    return _functions(level, rng)


def _formulas(count: int, rng: Random) -> Review:
    """One formula per line, with its specification."""
    problems: dict[str, CodeProblem] = {}
    while len(problems) < count:
        problem = formula("f", rng)
        problems[problem.prompt] = problem
    wrong = rng.randrange(count)
    lines = []
    for place, problem in enumerate(problems.values()):
        source = _wrong(problem, rng) if place == wrong else problem.source
        code = source.rpartition("return ")[2]
        lines.append(f"{place + 1}: {code}  # {problem.prompt.removeprefix('Return ').removesuffix('.')}")
    listing = "\n".join(lines)
    prompt = f"One line does not compute what stands behind its #. Which?\n{listing}"
    return Review(prompt, wrong + 1, tuple(range(1, count + 1)))


def _functions(level: int, rng: Random) -> Review:
    """Functions below their specifications."""
    problems = _problems(level, rng)
    spots = [(place, line) for place, problem in enumerate(problems) for line in _mutable_lines(problem)]
    wrong, _ = rng.choice(spots)
    lines: list[str] = []
    answer = 0
    candidates: list[int] = []
    for place, problem in enumerate(problems):
        lines += ["# " + line for line in problem.prompt.split("\n")]
        shown = problem.source
        if place == wrong:
            shown = _wrong(problem, rng)
            answer = len(lines) + _difference(problem.source, shown)
        candidates += [len(lines) + line for line in _mutable_lines(problem)]
        lines += [*shown.split("\n"), ""]
    listing = "\n".join(f"{number:>2}: {line}".rstrip() for number, line in enumerate(lines[:-1], start=1))
    prompt = f"One line of this code is wrong: it does not do what the comments ask for. Which?\n{listing}"
    return Review(prompt, answer, tuple(candidates))


def _problems(level: int, rng: Random) -> list[CodeProblem]:
    """Different problems, more and longer ones at higher levels, with at least eight lines that could be wrong."""
    problems: dict[str, CodeProblem] = {}
    while len(problems) < 2 + level // 4 or sum(len(_mutable_lines(each)) for each in problems.values()) < 8:
        name = f"f{len(problems) + 1}"
        if level <= 4:
            problem = two_ways(name, rng)
        elif rng.random() < 0.3:
            problem = pipeline(name, level, rng)
        else:
            problem = any_pattern(level, rng).problem(rng)
        problems.setdefault(problem.name, problem)
    return list(problems.values())


def _mutable_lines(problem: CodeProblem) -> list[int]:
    return sorted({mutant.line for mutant in bugs(problem)})


def _wrong(problem: CodeProblem, rng: Random) -> str:
    """The problem's source with one bug that some input shows."""
    calls = [problem.inputs(rng) for _ in range(_TESTS)]
    tests = tuple(Test(arguments, run(problem.source, problem.name, arguments)) for arguments in calls)
    found = bug(problem, rng, tests)
    assert found is not None, f"no mutant of {problem.name} can be told from it"
    return found.source


def _difference(source: str, other: str) -> int:
    """The first line, counted from 1, in which they differ."""
    pairs = zip(source.split("\n"), other.split("\n"), strict=True)
    return next(number for number, (mine, theirs) in enumerate(pairs, start=1) if mine != theirs)
