"""Deductions in a user's own patterns, by task template.

LogicPuzzle:
  templates: ["If A then B", "Either A or B"]
  variables: [[Raining, Wet], [Studying, Pass]]

A pattern joins the two propositions of a pair, A and B; every one of them is true or false. A task says what holds of
some pairs, and as few single facts as leave one solution.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise, product
from random import Random
from typing import Annotated, NamedTuple

from pydantic import Field, StringConstraints

from loomrl.envs.logic.clue import Clue, choose, everything, facts, world_of
from loomrl.envs.logic.puzzle import WordPuzzle, sentence, subset_puzzle
from loomrl.errors import ConfigError, unknown
from loomrl.gym.adapters.reasoning_gym import PREFIX, ReasoningGymEnvironment
from loomrl.gym.answer import TaggedAnswer
from loomrl.gym.generate import TemplateParameters, between, rng_of
from loomrl.types import Task

MOST = 12
"""Propositions of a puzzle."""
Joined = Callable[[int, int, int], int]
"""All worlds, those of the first proposition and those of the second → those of both joined."""
_FORMS: tuple[tuple[str, str, Joined], ...] = (
    ("If A then B", r"(?:if|when) {1},? then {2}", lambda every, a, b: every ^ a | b),
    ("A implies B", r"{1} implies {2}", lambda every, a, b: every ^ a | b),
    ("A if and only if B", r"{1} (?:if and only if|exactly if|iff) {2}", lambda every, a, b: every ^ a ^ b),
    ("Neither A nor B", r"neither {1} nor {2}", lambda every, a, b: every ^ (a | b)),
    ("Not both A and B", r"not both {1} and {2}", lambda every, a, b: every ^ a & b),
    ("Either A or B", r"(?:either )?{1} or {2}", lambda every, a, b: a | b),
    ("A and B", r"(?:both )?{1} and {2}", lambda every, a, b: a & b),
)
"""Example, pattern with its two literals, and meaning."""


def propositions(patterns: Sequence[str], pairs: Sequence[tuple[str, str]], task: Task, queries: int) -> WordPuzzle:
    """The puzzle of a task made by a template; a pattern of no known form is a ConfigError."""
    rng = rng_of(task)
    known = [_read(pattern) for pattern in patterns]
    some = rng.sample(pairs, between(task.level, min(2, len(pairs)), len(pairs)))
    names = tuple(dict.fromkeys(name for pair in some for name in pair))
    if len(names) > MOST:
        raise ConfigError(f"variables: {len(names)} propositions, and a puzzle has {MOST} at most. Leave pairs out.")
    every = everything(1 << len(names))
    worlds = dict(zip(names, facts(len(names)), strict=True))
    said = [form.say(pair, every, worlds) for form, pair in product(known, some)]
    rng.shuffle(said)
    truth = _draw_truth(said, len(names), rng.random)
    single = [f"{name} is {'true' if true else 'false'}." for name, true in zip(names, truth, strict=True)]
    certain = [
        Clue(text, true if is_true else every ^ true)
        for text, true, is_true in zip(single, worlds.values(), truth, strict=True)
    ]
    clues = choose(said, rng.sample(certain, len(certain)), world_of(truth))
    rng.shuffle(clues)
    listed = "\n".join(clue.text for clue in clues)
    return subset_puzzle(
        f"Each of these is true or false: {', '.join(sorted(names))}. An or leaves room for both.\n{listed}\n"
        "Which are true?",
        "all that are true, with commas",
        names,
        truth,
        single,
        min(queries, len(names) - 1),
    )


def _draw_truth(said: Sequence[Clue], size: int, chance: Callable[[], float]) -> list[bool]:
    """Some propositions are true, and something that is said holds."""
    for _ in range(1000):
        truth = [chance() < 0.5 for _ in range(size)]
        if any(truth) and any(clue.worlds & world_of(truth) for clue in said):
            return truth
    raise ConfigError("templates: nothing that they say of these variables can hold while one of them is true.")


class _PropositionPattern(NamedTuple):
    """A pattern, its two literals, such as `not A`, and its meaning."""

    pattern: str
    first: str
    second: str
    joined: Joined

    def say(self, pair: tuple[str, str], every: int, worlds: Mapping[str, int]) -> Clue:
        """The pattern about a pair of propositions."""
        named = dict(zip("AB", pair, strict=True))

        def meaning(literal: str) -> int:
            true = worlds[named[literal[-1].upper()]]
            return every ^ true if len(literal) > 1 else true

        text = re.sub(r"\b[AB]\b", lambda found: named[found[0]], self.pattern)
        return Clue(sentence(f"{text}."), self.joined(every, meaning(self.first), meaning(self.second)))


def _read(pattern: str) -> _PropositionPattern:
    plain = " ".join(pattern.split()).rstrip(".")
    for _, form, joined in _FORMS:
        expected = form.format(None, r"((?:not )?[AB])", r"((?:not )?[AB])")
        found = re.fullmatch(f"(?i:{expected})", plain)
        if found and {found[1][-1].upper(), found[2][-1].upper()} == {"A", "B"}:
            return _PropositionPattern(plain, found[1], found[2], joined)
    forms = ", ".join(example for example, *_ in _FORMS)
    raise ConfigError(
        f"templates: {pattern!r} is no form that is known. Known: {forms}, each also with 'not A' or 'not B'; or a "
        "sentence with {a} and {b} that says which comes first, such as '{a} is older than {b}.'"
    )


STATEMENTS = "statements"
FEWEST = 3
Name = Annotated[str, StringConstraints(pattern=r"^[^\W\d_]+$")]


class StatementParameters(TemplateParameters):
    """The parameters in a template of this family."""

    templates: tuple[str, ...] = Field(min_length=1)
    variables: tuple[tuple[Name, Name], ...] = Field(min_length=FEWEST - 1)


def statements(task: Task, queries: int) -> WordPuzzle:
    """The puzzle of a task made by a template: an order where the sentences name {a} and {b}, else a deduction.

    Pairs that leave no order, or several, are a ConfigError.
    """
    given = StatementParameters.of(task)
    if not any("{" in pattern for pattern in given.templates):
        return propositions(given.templates, given.variables, task, queries)
    rng = rng_of(task)
    places = _order_names(given.variables)
    names = rng.sample(places, len(places))[: between(task.level, FEWEST, len(places))]
    dealt = dict(zip(places, names, strict=False))
    told = [
        _sentence(rng.choice(given.templates), dealt[first], dealt[last])
        for first, last in given.variables
        if first in dealt and last in dealt
    ]
    listed = sorted(names)
    example = _sentence(given.templates[0], "X", "Y")
    story = [f"{', '.join(listed[:-1])} and {listed[-1]}:", *rng.sample(told, len(told))]
    return WordPuzzle(
        story="\n".join([*story, f'In which order? "{example}" puts X before Y.']),
        solution=", ".join(names),
        solve="all names in order, with commas",
        query="name",
        queries=min(queries, len(names) - 2),
        facts={name.lower(): f"{name} has place {place}." for place, name in enumerate(names, 1)},
        places=True,
        shape=(tuple(names),),
    )


def _order_names(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """The one order that the pairs leave."""
    before: dict[str, set[str]] = {}
    for first, last in pairs:
        before.setdefault(last, set()).add(first)
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        raise ConfigError(
            f"variables: {' before '.join(error.args[1][::-1])} goes in a circle. Leave one out."
        ) from None
    for first, last in pairwise(order):
        if first not in before.get(last, ()):
            raise ConfigError(f"variables: the pairs leave open who of {first} and {last} comes first. Add that pair.")
    return order


def _sentence(pattern: str, first: str, last: str) -> str:
    if not ("{a}" in pattern and "{b}" in pattern):
        raise ConfigError(
            f"templates: {pattern!r} must name both {{a}} and {{b}}, such as '{{a}} is older than {{b}}.'"
        )
    try:
        return pattern.format(a=first, b=last)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise ConfigError(f"templates: {pattern!r} cannot be filled: {type(error).__name__} {error}") from None


OUTSIDE = "reasoning_gym"
DATASETS: Sequence[str] = ("cryptarithm", "futoshiki", "kakurasu", "mini_sudoku", "sudoku")
"""Data sets whose answer is a filled grid or an assignment, each part of which is a fact."""


class OutsideParameters(TemplateParameters):
    """The parameters in a template of this family."""

    dataset: str


class OutsidePuzzle:
    """An item of a data set, judged by the data set's own scorer. The facts are the entries of its solution."""

    solve = "the answer, over as many lines as it needs"
    query = "number of an entry, counted row by row from 1"

    def __init__(self, dataset: str, task: Task, queries: int) -> None:
        self._environment = ReasoningGymEnvironment()
        self.story = self._environment.ask(self._environment.task(PREFIX + dataset, task.level, task.seed))
        self.solution = self._environment.oracle().removeprefix("<answer>").removesuffix("</answer>")
        self._entries = re.findall(r"\w+(?:=\w+)?", self.solution)
        self.queries = queries

    async def accepts(self, attempt: str) -> bool:
        """True if the data set gives its full score."""
        return (await self._environment.judge(TaggedAnswer("", attempt, tidy=False))).success == 1.0

    def tell(self, about: str) -> str | None:
        """The entry with this number."""
        number = int(about) if about.isascii() and about.isdecimal() and len(about) < 4 else 0
        if not 1 <= number <= len(self._entries):
            return None
        return f"Entry {number} is {self._entries[number - 1]}."

    def guess(self, rng: Random) -> str:
        """The entries in another order."""
        return " ".join(rng.sample(self._entries, len(self._entries)))

    def agrees(self, attempt: str, about: str) -> bool:
        """Nothing is known of attempts at other people's puzzles."""
        return True


def outside_puzzle(task: Task, queries: int) -> OutsidePuzzle:
    """The puzzle of a task made by a template; a data set that is not offered here is a ConfigError."""
    given = OutsideParameters.of(task)
    if given.dataset not in DATASETS:
        raise ConfigError("dataset " + unknown("name", given.dataset, DATASETS))
    return OutsidePuzzle(given.dataset, task, queries)
