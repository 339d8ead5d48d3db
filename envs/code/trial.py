"""Runs code of our own bank, and its mutants, in this process. Submissions never: those run in the sandbox."""

from collections.abc import Callable
from functools import lru_cache

from loomrl.envs.code.problem import Arguments
from loomrl.envs.code.value import Value, fresh

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

    def bounded(*arguments: Value) -> Value:
        turns.left = most_turns
        return function(*arguments)

    return bounded


def run(source: str, name: str, arguments: Arguments, *, most_turns: int = MOST_TURNS) -> Value:
    """The function's value for copies of the arguments; CRASH if it raises or never ends."""
    try:
        return load(source, name, most_turns)(*(fresh(argument) for argument in arguments))
    except (Exception, Endless):  # noqa: BLE001 - mutants raise whatever they like
        return CRASH


def _counting(source: str) -> str:
    """The source with a call of `_turn` in every loop and function."""
    lines = []
    for line in source.split("\n"):
        lines.append(line)
        statement = line.lstrip()
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
