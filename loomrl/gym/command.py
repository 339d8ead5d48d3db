"""Actions as commands, one in an action: a line that begins with a verb, such as `QUERY: Anna, cat`."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from loomrl.gym.answer import undress

COMMANDS = ("loomrl.gym.answer", "loomrl.gym.command")
"""Sources of environments that read commands."""
LONGEST = 16_000
"""Characters of an argument; a longer text is not a command."""
_MARKS = "[*_`]{0,6}"
_BULLETS = r"[ \t]*(?:(?:[-+*•#>]{1,6}|\d{1,2}[.)]|\[[ xX]?\])[ \t]+){0,4}"


class Command(NamedTuple):
    """A parsed command."""

    reasoning: str
    """The text before the command's line."""
    verb: str
    argument: str
    """The text from the colon to the end, stripped."""

    @property
    def line(self) -> str:
        """The first line of the argument, without marks of emphasis, quotes and a full stop."""
        return undress(_first_line(self.argument))


def parse_command(text: str, verbs: Sequence[str]) -> Command | None:
    """The last command in `text`, or None if it has none of these verbs. Linear in the text.

    A command is a line that begins with the verb and a colon. Blanks, a dash or another bullet may stand before the
    verb, marks of emphasis around it. Where no verb is in capitals, small letters count. The last one counts: reasoning
    may mention others.
    """
    found = _commands(text, verbs)
    if not found:
        return None
    argument = text[found[-1].end() :]
    if text.count("```", 0, found[-1].start()) % 2:
        argument = argument.partition("\n```")[0]
    return _command(text, found[-1], argument) if len(argument) <= LONGEST else None


def parse_commands(text: str, verbs: Sequence[str]) -> list[Command]:
    """All commands in `text`, in order; the argument of each is one line: for actions of several commands."""
    found = _commands(text, verbs)
    ends = [*(each.start() for each in found[1:]), len(text)]
    return [_command(text, each, _first_line(text[each.end() : end])) for each, end in zip(found, ends, strict=False)]


def command_format(usages: Sequence[str]) -> str:
    """Usage of the commands, for a prompt: one line per usage, such as `QUERY: name, thing`."""
    return "\n".join(["Reply with one command on a line of its own:", *usages])


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _command(text: str, found: re.Match[str], argument: str) -> Command:
    """With the argument free of the marks that were opened before the verb."""
    closing = "" if found["shut"] else found["open"][::-1]
    argument = argument.removeprefix(closing).strip() if closing else argument.strip()
    first, newline, rest = argument.partition("\n")
    if closing and first.endswith(closing):
        first = first.removesuffix(closing).rstrip()
    return Command(text[: found.start()], found["verb"].upper(), f"{first}{newline}{rest}")


def _commands(text: str, verbs: Sequence[str]) -> list[re.Match[str]]:
    """The lines that begin with a verb: those in capitals if there are any, for prose has lines such as `Answer: …`."""
    found = list(_pattern(tuple(verbs)).finditer(text))
    return [each for each in found if each["verb"].isupper()] or [each for each in found if each["colon"]]


@lru_cache(maxsize=64)
def _pattern(verbs: tuple[str, ...]) -> re.Pattern[str]:
    """A verb at the start of a line, with its colon, or alone on the line."""
    names = "|".join(map(re.escape, verbs))
    return re.compile(
        rf"^{_BULLETS}(?P<open>{_MARKS})(?P<verb>{names})(?P<shut>{_MARKS})(?:[ \t]*(?P<colon>[:：])|(?=[ \t.]*$))",
        re.IGNORECASE | re.MULTILINE | re.ASCII,
    )
