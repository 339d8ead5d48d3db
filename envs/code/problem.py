"""Problems: a function described in words, its reference, and its input generators."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from loomrl.envs.code.value import Value

Arguments = tuple[Value, ...]
Draw = Callable[[Random], Value]
"""Randomness → one argument."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One function to write. `source` is its reference, in the form that `ast.unparse` gives it."""

    name: str
    signature: str
    """Parameters with types, and the returned type: `text: str, k: int -> str`."""
    prompt: str
    """The function's result, in words."""
    source: str
    draws: tuple[Draw, ...]
    """One for each parameter."""
    slow: str = ""
    """An equivalent function that takes many more lines; only problems with one can be optimised."""
    large: tuple[Draw, ...] = ()
    """Draws of inputs at which the slow way takes too long."""
    tolerance: float = 0.0
    """Tolerance for floats."""

    @property
    def head(self) -> str:
        """The line that begins its definition."""
        parameters, _, returned = self.signature.partition(" -> ")
        return f"def {self.name}({parameters}) -> {returned}:"

    def inputs(self, rng: Random) -> Arguments:
        """Arguments of one call."""
        return tuple(draw(rng) for draw in self.draws)

    def large_inputs(self, rng: Random) -> Arguments:
        """Arguments of one call that takes long."""
        return tuple(draw(rng) for draw in self.large)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A problem of the bank with open numbers: `{k}` in its texts is drawn for each task.

    `level` is the lowest level that uses it.
    """

    name: str
    level: int
    signature: str
    prompt: str
    body: str
    draws: tuple[Draw, ...]
    slow: str = ""
    large: tuple[Draw, ...] = ()
    constants: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    tolerance: float = 0.0

    def problem(self, rng: Random) -> Problem:
        """The problem with its open numbers drawn."""
        numbers = {name: str(rng.randint(low, high)) for name, (low, high) in self.constants.items()}
        head = Problem(self.name, self.signature, "", "", ()).head
        return Problem(
            self.name,
            self.signature,
            filled(self.prompt, numbers),
            normal(f"{head}\n{filled(self.body, numbers)}"),
            self.draws,
            normal(f"{head}\n{filled(self.slow, numbers)}") if self.slow else "",
            self.large,
            self.tolerance,
        )


def filled(text: str, numbers: Mapping[str, str]) -> str:
    """The text with `{name}` replaced by its number; other braces stay."""
    for name, number in numbers.items():
        text = text.replace(f"{{{name}}}", number)
    return text


def normal(source: str) -> str:
    """The source as formatted by `ast.unparse`: one statement per line, and no trace of changes."""
    return ast.unparse(ast.parse(source))
