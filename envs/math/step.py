"""Which steps of a solution can be checked, and which of them are true, new, and lead from question to answer.

A step is an equality `a = b` in the reasoning that our grammar reads. It holds if the sides are equal as they stand,
or at a solution of the problem. It counts if it also *says* something (not `7 = 7`, `x + 0 = x`, `2 + 3 = 3 + 2`, nor
the answer itself), was not said before, holds a number that the question or an earlier step gave, and one that the
answer or a later step that counts needs.
"""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import ceil
from typing import NamedTuple

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


class Frame(NamedTuple):
    """What a problem has to do with its steps."""

    prompt: str
    answer: str
    letters: str
    known: tuple[tuple[tuple[str, str], ...], ...]


def progress(reasoning: str, problem: Problem) -> float:
    """0..1: the share of claimed steps that are true, times how much of a solution the steps that count make up.

    Half as many steps as our worked solution has are a whole solution.
    """
    frame = Frame(
        problem.prompt,
        problem.answer.text,
        problem.letters,
        tuple(tuple(solution.items()) for solution in problem.known),
    )
    claimed, true, counted = _count(reasoning, frame)
    if not counted:
        return 0.0
    return true / claimed * min(1.0, counted / max(1, ceil(_expected(problem.steps, frame) / 2)))


@lru_cache(maxsize=1024)
def _expected(steps: tuple[str, ...], frame: Frame) -> int:
    """How many steps count in our worked solution; siblings share the answer."""
    _, _, expected = _count("\n".join(steps), frame)
    return expected


def _count(reasoning: str, frame: Frame) -> tuple[int, int, int]:
    """How many steps are claimed, how many of them are true, and how many count."""
    calculator = Calculator(WORK)
    claimed, true, found = 0, 0, []
    for step in _steps(reasoning, frame.letters):
        claimed += 1
        if _holds(step, frame.known, calculator):
            true += 1
            found.append(step)
    return claimed, true, len(_leading(_relevant(found, frame.prompt), frame.answer))


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


def _holds(step: Step, known: tuple[tuple[tuple[str, str], ...], ...], calculator: Calculator) -> bool:
    for solution in ((), *known):
        bound = {name: read(text) for name, text in solution}
        try:
            left, right = (evaluate(_bind(side, bound), calculator) for side in step)
        except Unreadable:
            continue
        if calculator.equal(left, right):
            return True
    return False


def _bind(node: Node, bound: Mapping[str, Node]) -> Node:
    if node.kind == "symbol":
        return bound.get(node.name, node)
    return node._replace(parts=tuple(_bind(part, bound) for part in node.parts)) if node.parts else node


def _relevant(steps: list[Step], prompt: str) -> list[Step]:
    """Those that say something new about a number that is known by then."""
    known = {Fraction(text.replace(",", "")) for text in _NUMBER.findall(prompt)}
    seen: set[tuple[str, ...]] = set()
    kept = []
    for step in steps:
        said = tuple(sorted(word for side in step for word in _words(_without_idle(side))))
        if said in seen or _is_trivial(step):
            continue
        numbers = {*_numbers(step.left), *_numbers(step.right)}
        if numbers & known:
            seen.add(said)
            known |= numbers
            kept.append(step)
    return kept


def _leading(steps: list[Step], answer: str) -> list[Step]:
    """Those with a number that the answer, or a later one of them, needs."""
    needed = {Fraction(text.replace(",", "")) for text in _NUMBER.findall(answer)}
    kept = []
    for step in reversed(steps):
        numbers = {*_numbers(step.left), *_numbers(step.right)}
        if not needed or numbers & needed:
            needed |= numbers
            kept.append(step)
    return kept


def _is_trivial(step: Step) -> bool:
    """Whether the sides are written with the same things, or neither holds an operation."""
    left, right = map(_without_idle, step)
    return sorted(_words(left)) == sorted(_words(right)) or not (_operates(left) or _operates(right))


def _operates(node: Node) -> bool:
    return node.kind not in ("number", "symbol") and (node.kind != "negate" or _operates(node.parts[0]))


def _without_idle(node: Node) -> Node:
    """The tree without + 0, · 1, / 1 and ^ 1, which anyone can add to any true equality; and 0 for 0 times anything."""
    if not node.parts:
        return node
    parts = tuple(map(_without_idle, node.parts))
    last = parts[-1].number if parts[-1].kind == "number" else None
    first = parts[0].number if parts[0].kind == "number" else None
    if last == {"+": 0, "-": 0, "*": 1, "/": 1, "^": 1}.get(node.kind, -1):
        return parts[0]
    if first == {"+": 0, "*": 1}.get(node.kind, -1):
        return parts[1]
    if node.kind == "*" and 0 in (first, last):
        return parts[0] if first == 0 else parts[1]
    return node._replace(parts=parts)


def _numbers(node: Node) -> Iterator[Fraction]:
    if node.kind == "number":
        yield node.number
    for part in node.parts:
        yield from _numbers(part)


def _words(node: Node) -> Iterator[str]:
    yield node.kind + (str(node.number) if node.kind == "number" else node.name)
    for part in node.parts:
        yield from _words(part)
