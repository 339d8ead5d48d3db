"""Problems: a function described in words, its reference, its inputs; and runs of our own code in this process."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random

from loomrl.envs.code.value import Value, fresh

Arguments = tuple[Value, ...]
Draw = Callable[[Random], Value]
"""Randomness → one argument."""


@dataclass(frozen=True, slots=True)
class CodeProblem:
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
class ProblemPattern:
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

    def problem(self, rng: Random) -> CodeProblem:
        """The problem with its open numbers drawn."""
        numbers = {name: str(rng.randint(low, high)) for name, (low, high) in self.constants.items()}
        head = CodeProblem(self.name, self.signature, "", "", ()).head
        return CodeProblem(
            self.name,
            self.signature,
            fill_numbers(self.prompt, numbers),
            normal(f"{head}\n{fill_numbers(self.body, numbers)}"),
            self.draws,
            normal(f"{head}\n{fill_numbers(self.slow, numbers)}") if self.slow else "",
            self.large,
            self.tolerance,
        )


def fill_numbers(text: str, numbers: Mapping[str, str]) -> str:
    """The text with `{name}` replaced by its number; other braces stay."""
    for name, number in numbers.items():
        text = text.replace(f"{{{name}}}", number)
    return text


def normal(source: str) -> str:
    """The source as formatted by `ast.unparse`: one statement per line, and no trace of changes."""
    return ast.unparse(ast.parse(source))


MOST_TURNS = 2_000
"""Turns of `while` and calls of functions in one run; a mutant that takes more never ends."""


class Endless(BaseException):
    """A run that took too many turns."""


class Crash:
    """The value of a run that raised; equal to no other value."""


CRASH = Crash()


@lru_cache(maxsize=1024)
def load(source: str, name: str, most_turns: int = MOST_TURNS) -> Callable[..., Value]:
    """The function of this name in our own source, one statement on a line; turns of `while` and calls are counted."""
    turns = _Turns()
    names: dict[str, Value] = {"_turn": turns.take}
    exec(compile(_counting(source), "<bank>", "exec"), names)
    function: Callable[..., Value] = names[name]

    def call_bounded(*arguments: Value) -> Value:
        turns.left = most_turns
        return function(*arguments)

    return call_bounded


def run(source: str, name: str, arguments: Arguments, *, most_turns: int = MOST_TURNS) -> Value:
    """The function's value for copies of the arguments; CRASH if it raises or never ends."""
    try:
        return load(source, name, most_turns)(*(fresh(argument) for argument in arguments))
    except (Exception, Endless):  # noqa: BLE001 - mutants raise anything
        return CRASH


def _counting(source: str) -> str:
    """The source with a call of `_turn` in every loop and function."""
    lines = []
    for line in source.split("\n"):
        lines.append(line)
        statement = line.lstrip()
        # turns are counted instead of seconds, so that a mutant ends alike on every machine
        if statement.startswith(("while ", "def ")):
            lines.append(f"{' ' * (len(line) - len(statement) + 4)}_turn()")
    return "\n".join(lines)


class _Turns:
    left = 0

    def take(self) -> None:
        """One turn more."""
        self.left -= 1
        if self.left < 0:
            raise Endless
