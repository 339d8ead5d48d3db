"""Puzzles told in a user's own sentences, by task template: orders, here, and deductions (`propositions`).

LogicPuzzle:
  templates: ["{a} is taller than {b}.", "{b} is shorter than {a}."]
  variables: [[Anna, Ben], [Ben, Cara], [Cara, Dan], [Dan, Eva]]

A sentence says that `{a}` comes before `{b}`; a pair says who does. Together the pairs leave one order. A task deals
the names out anew and, at lower levels, asks for the first few places only.
"""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Annotated

from pydantic import Field, StringConstraints

from loomrl.envs.logic.propositions import propositions
from loomrl.envs.logic.puzzle import WordPuzzle
from loomrl.errors import ConfigError
from loomrl.gym.generate import between, rng_of
from loomrl.schema import Config
from loomrl.types import Task

FAMILY = "statements"
FEWEST = 3
Name = Annotated[str, StringConstraints(pattern=r"^[^\W\d_]+$")]


class _Parameters(Config):
    """The parameters in a template of this family."""

    templates: tuple[str, ...] = Field(min_length=1)
    variables: tuple[tuple[Name, Name], ...] = Field(min_length=FEWEST - 1)
    template: str = ""


PARAMETERS = tuple(name for name in _Parameters.model_fields if name != "template")


def statements(task: Task, queries: int) -> WordPuzzle:
    """The puzzle of a task made by a template: an order where the sentences name {a} and {b}, else a deduction.

    Pairs that leave no order, or several, are a ConfigError.
    """
    given = _Parameters.parse(dict(task.parameters), origin="parameters of a task template of LogicPuzzle")
    if not any("{" in pattern for pattern in given.templates):
        return propositions(given.templates, given.variables, task, queries)
    rng = rng_of(task)
    places = _ordered(given.variables)
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


def _ordered(pairs: Sequence[tuple[str, str]]) -> list[str]:
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
