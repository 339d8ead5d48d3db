"""Actions as commands, one in an action: a line that begins with a verb in capitals, such as `QUERY: Anna, cat`."""

from collections.abc import Sequence
from typing import NamedTuple

LONGEST = 16_000
"""Characters of an argument; a longer text is not a command."""


class Command(NamedTuple):
    """A parsed command."""

    reasoning: str
    """The text before the command's line."""
    verb: str
    argument: str
    """The text from the colon to the end, stripped."""


def parse_command(text: str, verbs: Sequence[str]) -> Command | None:
    """The last command in `text`, or None if it has none of these verbs. Linear in the text.

    A command begins its line and is matched exactly, `VERB:`. The last one counts: reasoning may mention others.
    """
    place, found = max((_last(text, verb), verb) for verb in verbs)
    if place < 0:
        return None
    argument = text[place + len(found) + 1 :].strip()
    return Command(text[:place], found, argument) if len(argument) <= LONGEST else None


def command_format(usages: Sequence[str]) -> str:
    """Usage of the commands, for a prompt: one line per usage, such as `QUERY: name, thing`."""
    return "\n".join(["Reply with one command on a line of its own:", *usages])


def _last(text: str, verb: str) -> int:
    """Index of the last line that begins with this verb; -1 if there is none."""
    found = text.rfind(f"\n{verb}:")
    if found >= 0:
        return found + 1
    return 0 if text.startswith(f"{verb}:") else -1
