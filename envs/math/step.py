"""Which steps of a solution can be checked, and which of them bring it forward.

A step is an equality `a = b` in the reasoning that our grammar reads. It holds if the sides are equal as they stand,
or at a solution of the problem. It counts if it

- brings a number that neither the question nor an earlier step gave, and says what that number is: with another one in
  its place the step would not hold (so not `7 = 7`, `12 - 12 + 7 = 7`, the question, nor a step said before);
- takes it from what is there: from numbers of the question, of earlier steps, and of our worked solution (180 degrees);
- leads on: the answer, or a later step that counts, needs the number.
"""

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from envs.math.form import Form, is_finished
from envs.math.polynomial import Unreadable
from envs.math.problem import Problem
from envs.math.syntax import Node, evaluate, read
from envs.math.value import Calculator

MAX_REASONING = 8_000
MAX_CLAIMS = 40
MAX_CLAIM = 160
WORK = 4_000
_DELIMITER = re.compile(r"\\[()\[\]]|\$")
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_WORDS = (
    r"\\(?:frac|dfrac|sqrt|cdot|times|pi|left|right|sin|cos|tan|ln)(?![A-Za-z])"
    r"|(?<![A-Za-z])(?:sqrt|pi|sin|cos|tan|ln|exp)(?![A-Za-z])"
)

_CALLS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'")
"""What makes the `(3)` behind it an argument, as in `f(3) = 7`."""


class Step(NamedTuple):
    """An equality that was claimed."""

    left: Node
    right: Node


class Claim(NamedTuple):
    """A step that holds."""

    step: Step
    always: bool
    """Whether it holds as it stands, not only at a solution."""


class Frame(NamedTuple):
    """What a problem has to do with its steps."""

    prompt: str
    answer: str
    steps: tuple[str, ...]
    letters: str
    known: tuple[tuple[tuple[str, str], ...], ...]


def progress(reasoning: str, problem: Problem) -> float:
    """0..1: the share of claimed steps that are true, times how much of a solution the steps that count make up.

    Half as many steps as our worked solution has are a whole solution.
    """
    frame = Frame(
        problem.prompt,
        problem.answer.text,
        problem.steps,
        problem.letters,
        tuple(tuple(solution.items()) for solution in problem.known),
    )
    claimed, true, counted = _count(reasoning, frame)
    if not counted:
        return 0.0
    return true / claimed * min(1.0, counted / max(1, ceil(_expected(frame) / 2)))


@lru_cache(maxsize=1024)
def _expected(frame: Frame) -> int:
    """How many steps count in our worked solution; siblings share the answer."""
    _, _, expected = _count("\n".join(frame.steps), frame)
    return expected


def _count(reasoning: str, frame: Frame) -> tuple[int, int, int]:
    """How many steps are claimed, how many of them are true, and how many count."""
    calculator = Calculator(WORK)
    claimed, found = 0, []
    for step in _steps(reasoning, frame.letters):
        claimed += 1
        if _is_equal(step, calculator):
            found.append(Claim(step, always=True))
        elif any(_is_equal(_bound(step, solution), calculator) for solution in frame.known):
            found.append(Claim(step, always=False))
    return claimed, len(found), _count_leading(_bringing(found, frame), frame.answer)


def _steps(reasoning: str, letters: str) -> Iterator[Step]:
    """The equalities in a text, in order, at most MAX_CLAIMS."""
    count = 0
    for run in _runs(reasoning, letters):
        for left, right in pairwise(run):
            if not left.strip() or not right.strip() or len(left) + len(right) > MAX_CLAIM:
                continue
            try:
                yield Step(read(left.replace(",", ""), letters), read(right.replace(",", ""), letters))
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


def _is_equal(step: Step, calculator: Calculator) -> bool:
    try:
        left, right = (evaluate(side, calculator) for side in step)
        return calculator.equal(left, right)
    except Unreadable:
        return False


def _bound(step: Step, solution: tuple[tuple[str, str], ...]) -> Step:
    bound = {name: read(text) for name, text in solution}
    return Step(
        *(_replaced(side, lambda node: bound.get(node.name) if node.kind == "symbol" else None) for side in step)
    )


def _replaced(node: Node, other: Callable[[Node], Node | None]) -> Node:
    found = other(node)
    if found is not None:
        return found
    return node._replace(parts=tuple(_replaced(part, other) for part in node.parts)) if node.parts else node


class Brought(NamedTuple):
    """A step that counts as far as it goes: the numbers it brings, and all of its numbers."""

    new: set[Fraction]
    numbers: set[Fraction]


def _bringing(found: list[Claim], frame: Frame) -> list[Brought]:
    """The steps that bring a number which they determine, from numbers that are there."""
    asked, answer = _numbers_in(frame.prompt), _numbers_in(frame.answer)
    said, there = asked - answer, asked | _numbers_in("\n".join(frame.steps))
    kept = []
    for claim in found:
        numbers = {number for side in claim.step for number in _numbers(side)}
        new = numbers - said
        if numbers.isdisjoint(asked) or not _is_grounded(claim, there, answer - said):
            continue
        if _spelt(claim.step) not in _own(frame):
            new = {number for number in new if _determines(claim.step, number)}
        if new:
            said |= numbers
            asked |= numbers
            there |= numbers
            kept.append(Brought(new, numbers))
    return kept


def _is_grounded(claim: Claim, there: set[Fraction], hidden: set[Fraction]) -> bool:
    """Whether nothing in a step comes from nowhere, nor `x = answer` in disguise, which holds at the solution only."""
    sides = [{*_numbers(side)} for side in claim.step]
    if not any(map(_operates, claim.step)):
        return False
    if not claim.always:
        return sides[0] | sides[1] <= there - hidden
    if sides[0] | sides[1] <= there:
        return True
    (left, right), (above, below) = claim.step, sides
    return any(
        _operates(source) and used <= there - hidden and is_finished(target, target, Form.EXPANDED)
        for source, used, target in ((left, above, right), (right, below, left))
    )


def _spelt(step: Step) -> tuple[str, ...]:
    return tuple(sorted(map(str, step)))


@lru_cache(maxsize=1024)
def _own(frame: Frame) -> frozenset[tuple[str, ...]]:
    """The steps of our worked solution."""
    return frozenset(map(_spelt, _steps("\n".join(frame.steps), frame.letters)))


def _determines(step: Step, number: Fraction) -> bool:
    """Whether the step would be wrong with another number in that place."""
    place = Node("symbol", name="any")

    def other(node: Node) -> Node | None:
        return place if node.kind == "number" and node.number == number else None

    return not _is_equal(Step(*(_replaced(side, other) for side in step)), Calculator())


def _count_leading(steps: list[Brought], answer: str) -> int:
    """How many bring a number that the answer, or a later one of them, needs."""
    needed = _numbers_in(answer)
    count = 0
    for step in reversed(steps):
        if step.new & needed or not needed:
            needed |= step.numbers
            count += 1
    return count


def _operates(node: Node) -> bool:
    return node.kind not in ("number", "symbol") and (node.kind != "negate" or _operates(node.parts[0]))


def _numbers_in(text: str) -> set[Fraction]:
    return {Fraction(found.replace(",", "")) for found in _NUMBER.findall(text)}


def _numbers(node: Node) -> Iterator[Fraction]:
    if node.kind == "number":
        yield node.number
    for part in node.parts:
        yield from _numbers(part)
