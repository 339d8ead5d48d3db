"""Checkable steps of a solution, and those of them that lead to the answer.

A step is an equality `a = b` in the reasoning that our grammar reads. It holds if the sides are equal as they stand,
or at a solution of the problem. It counts if it

- brings a number that neither the question nor an earlier step gave (or the answer's, however the question reads);
- takes it from what is there: it is a step of our worked solution, or a computation and its finished result, whose
  numbers are those of the question, of earlier steps, or what our solution uses (180 degrees), no more often, and not
  all of them at most 10;
- leads on: the answer, or a later step that counts, needs the number.

So nothing is paid for `7 = 7`, `12 - 12 + 7 = 7`, `1 + 1 = 2`, the question in other words or a step said before.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from loomrl.envs.math.form import Form, is_finished, is_literal
from loomrl.envs.math.problem import MathProblem
from loomrl.envs.math.syntax import SyntaxNode, evaluate, read
from loomrl.envs.math.value import Calculator, Unreadable

MAX_REASONING = 8_000
MAX_CLAIMS = 40
MAX_CLAIM = 160
SMALL = 10
"""A computation with nothing above it, such as `2 + 2 = 4`, is in many questions by chance."""
WORK = 4_000
_DELIMITER = re.compile(r"\\[()\[\]]|\$")
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_WORDS = (
    r"\\(?:frac|dfrac|sqrt|cdot|times|pi|left|right|sin|cos|tan|ln)(?![A-Za-z])"
    r"|(?<![A-Za-z])(?:sqrt|pi|sin|cos|tan|ln|exp)(?![A-Za-z])"
)

_CALLS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'")
"""Letters that make a following `(3)` an argument, as in `f(3) = 7`."""


class Equality(NamedTuple):
    """An equality that was claimed."""

    left: SyntaxNode
    right: SyntaxNode


class StepClaim(NamedTuple):
    """A step that holds."""

    step: Equality
    always: bool
    """True if it holds by itself, not only at a solution."""


class StepFrame(NamedTuple):
    """The parts of a problem that matter for its steps."""

    prompt: str
    answer: str
    steps: tuple[str, ...]
    letters: str
    known: tuple[tuple[tuple[str, str], ...], ...]


def progress(reasoning: str, problem: MathProblem) -> float:
    """0..1: the share of claimed steps that are true, times how much of a solution the steps that count make up.

    Half as many steps as our worked solution has are a whole solution.
    """
    frame = StepFrame(
        problem.prompt,
        problem.answer.text,
        problem.steps,
        problem.letters,
        tuple(tuple(solution.items()) for solution in problem.known),
    )
    claimed, true, counted = _count(reasoning, frame)
    if not counted:
        return 0.0
    return true / claimed * min(1.0, counted / max(1, ceil(_count_steps(frame) / 2)))


@lru_cache(maxsize=1024)
def _count_steps(frame: StepFrame) -> int:
    """The number of counting steps in our worked solution; siblings share the answer."""
    _, _, expected = _count("\n".join(frame.steps), frame)
    return expected


def _count(reasoning: str, frame: StepFrame) -> tuple[int, int, int]:
    """The numbers of claimed, of true, and of counting steps."""
    calculator = Calculator(WORK)
    claimed = 0
    found = []
    for step in _steps(reasoning, frame.letters):
        claimed += 1
        if _is_equal(step, calculator):
            found.append(StepClaim(step, always=True))
        elif any(_is_equal(_bound(step, solution), calculator) for solution in frame.known):
            found.append(StepClaim(step, always=False))
    return claimed, len(found), _count_leading(_bringing(found, frame), frame.answer)


def _steps(reasoning: str, letters: str) -> Iterator[Equality]:
    """The equalities in a text, in order, at most MAX_CLAIMS."""
    count = 0
    for run in _runs(reasoning, letters):
        for left, right in pairwise(run):
            if not left.strip() or not right.strip() or len(left) + len(right) > MAX_CLAIM:
                continue
            try:
                yield Equality(read(left.replace(",", ""), letters), read(right.replace(",", ""), letters))
            except Unreadable:
                continue
            count += 1
            if count == MAX_CLAIMS:
                return


def sides(text: str, letters: str) -> Iterator[str]:
    """All that looks like mathematics in a text, cut at its equality signs."""
    for run in _runs(text, letters):
        yield from (side for side in run if side.strip())


def _runs(text: str, letters: str) -> Iterator[list[str]]:
    symbols = rf"(?<![A-Za-z\\])[{letters}e]+(?![A-Za-z])"
    run = re.compile(rf"(?:{_WORDS}|{symbols}|\d+(?:,\d{{3}})*(?:\.\d+)?|[-+*/^=(){{}}²³√π·×−÷%]|[ ])+")
    for line in _DELIMITER.sub(" ", text[-MAX_REASONING:]).splitlines():
        for match in run.finditer(line):
            sides = match[0].split("=")
            yield sides[1:] if match[0].startswith("(") and line[match.start() - 1 : match.start()] in _CALLS else sides


def _is_equal(step: Equality, calculator: Calculator) -> bool:
    try:
        left, right = (evaluate(side, calculator) for side in step)
        return calculator.equal(left, right)
    except Unreadable:
        return False


def _bound(step: Equality, solution: tuple[tuple[str, str], ...]) -> Equality:
    bound = {name: read(text) for name, text in solution}
    return Equality(
        *(_replace_frame(side, lambda node: bound.get(node.name) if node.kind == "symbol" else None) for side in step)
    )


def _replace_frame(node: SyntaxNode, other: Callable[[SyntaxNode], SyntaxNode | None]) -> SyntaxNode:
    found = other(node)
    if found is not None:
        return found
    return node._replace(parts=tuple(_replace_frame(part, other) for part in node.parts)) if node.parts else node


def _bringing(found: list[StepClaim], frame: StepFrame) -> list[tuple[set[Fraction], set[Fraction]]]:
    """For each step that derives a number from given ones: the derived numbers, and all of its numbers."""
    own = _own(frame)
    asked = _numbers_in(frame.prompt)
    answer = {*_numbers_in(frame.answer)}
    said = {*asked} - answer
    there = Counter(
        {n: max(asked[n], count) for n, count in (own.used | asked).items() if n in said or n not in answer}
    )
    kept = []
    for claim in found:
        numbers = {number for side in claim.step for number in _numbers(side)}
        if not numbers - said or _is_trivial(claim.step):
            continue
        new = numbers - said if _spelt(claim.step) in own.steps else _new_numbers(claim, said, there)
        if new:
            said |= numbers
            there.update(dict.fromkeys(numbers, MAX_CLAIM))
            kept.append((new, numbers))
    return kept


def _new_numbers(claim: StepClaim, said: set[Fraction], there: Counter[Fraction]) -> set[Fraction]:
    """The new numbers that one side works out from numbers that are there."""
    if not claim.always:
        return set()
    for source, target in (claim.step, claim.step[::-1]):
        used = Counter(_numbers(source))
        new = {*_numbers(target)} - said
        small = max((*used, *new), default=Fraction(0)) <= SMALL
        if not small and used <= there and new.isdisjoint(used) and is_finished(target, target, Form.EXPANDED):
            return new
    return set()


class WorkedSolution(NamedTuple):
    """Our worked solution: its steps, and how often a step of it uses a number."""

    steps: frozenset[tuple[str, ...]]
    used: Counter[Fraction]


@lru_cache(maxsize=1024)
def _own(frame: StepFrame) -> WorkedSolution:
    steps = list(_steps("\n".join(frame.steps), frame.letters))
    used: Counter[Fraction] = Counter()
    for step in steps:
        for side in step:
            used |= Counter(_numbers(side))
    return WorkedSolution(frozenset(map(_spelt, steps)), used)


def _spelt(step: Equality) -> tuple[str, ...]:
    return tuple(sorted(map(str, step)))


def _is_trivial(step: Equality) -> bool:
    """True if neither side has an operation, or both have the same symbols."""
    left, right = map(_without_idle, step)
    return sorted(_words(left)) == sorted(_words(right)) or not (_operates(left) or _operates(right))


def _count_leading(steps: list[tuple[set[Fraction], set[Fraction]]], answer: str) -> int:
    """The number of steps whose result is needed by the answer, or by a later such step."""
    needed = {*_numbers_in(answer)}
    count = 0
    for new, numbers in reversed(steps):
        if new & needed or not needed:
            needed |= numbers
            count += 1
    return count


def _operates(node: SyntaxNode) -> bool:
    return node.kind != "symbol" and not is_literal(node)


def _without_idle(node: SyntaxNode) -> SyntaxNode:
    """The tree without + 0, · 1, / 1 and ^ 1, which anyone can add to any true equality."""
    parts = tuple(map(_without_idle, node.parts))
    idle = {"+": 0, "-": 0, "*": 1, "/": 1, "^": 1}.get(node.kind)
    if parts and parts[-1].kind == "number" and parts[-1].number == idle:
        return parts[0]
    if node.kind in ("+", "*") and parts[0].kind == "number" and parts[0].number == idle:
        return parts[1]
    return node._replace(parts=parts)


def _words(node: SyntaxNode) -> Iterator[str]:
    yield node.kind + (str(node.number) if node.kind == "number" else node.name)
    for part in node.parts:
        yield from _words(part)


def _numbers_in(text: str) -> Counter[Fraction]:
    return Counter(Fraction(found.replace(",", "")) for found in _NUMBER.findall(text))


def _numbers(node: SyntaxNode) -> Iterator[Fraction]:
    if node.kind == "number":
        yield node.number
    for part in node.parts:
        yield from _numbers(part)
