"""Parsing of a policy's text: answers between tags, what chat models put around an answer, and commands.

A command is a line that begins with a verb, such as `QUERY: Anna, cat`. All of it is linear in the text.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

OPENING = "<answer>"
CLOSING = "</answer>"
ANSWER_FORMAT = "Think step by step, then give the final answer between <answer> and </answer>."
REMINDER = f"No answer was found. {ANSWER_FORMAT}"


class TaggedAnswer(NamedTuple):
    """A parsed answer."""

    reasoning: str
    """The text before the answer's tag."""
    answer: str
    tidy: bool
    """One pair of tags, some reasoning before it and nothing after it."""


def parse_submission(text: str) -> TaggedAnswer | None:
    """The text between the last `<answer>` and the next `</answer>`; None if that pair is incomplete.

    Tags are matched exactly: attributes, capitals and lookalike brackets make no tag. A last tag that is never closed
    withdraws what was answered before it.
    """
    reasoning, opening, rest = text.rpartition(OPENING)
    answer, closing, after = rest.partition(CLOSING)
    if not opening or not closing:
        return None
    tidy = bool(reasoning.strip()) and not after.strip() and OPENING not in reasoning and CLOSING not in reasoning
    return TaggedAnswer(reasoning, answer.strip(), tidy)


LAYERS = 6
"""Layers that are taken off; what is deeper stays, and is wrong."""
LONGEST = 16_000
"""Characters; a longer text is left as it is."""
EDGES = "*_` \t\r\n\u00a0\u2009\u202f\u200a"
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»"}
_OPENING = re.compile(r"([ \t]*)(`{3,}|~{3,})([^`]*)")
_BEFORE = r"(?:(?:so|thus|hence|therefore|then|finally|in\s+conclusion|in\s+summary)\b[,:]?\s+)"
_NOUN = r"(?:answer|result|solution|response|translation|output)"
_SAYS = r"(?:is|are|was|equals|would\s+be|should\s+be|must\s+be)\b"
_TAIL = re.compile(rf"\s+(?:is|are)\s+(?:the|my|our)\s+(?:final\s+|correct\s+|right\s+)*{_NOUN}s?$", re.IGNORECASE)
_TAGGED = re.compile(r"<(b|strong|i|em|code|u|p|span)>(.*)</\1>", re.DOTALL)
_STATED = rf"""(?:
    (?:(?:the|my|our)\s+)?(?:(?:final|correct|right|exact|complete|full)\s+)*{_NOUN}[*_]*\s*(?:{_SAYS}[*_]*\s*:?|[:=：]|\n)
  | (?:it|this|that)(?:\s+(?:is|gives|makes|yields)\b|'s\b)\s*:?
  | there\s+(?:is|are)\b
  | (?:we|i)\s+(?:get|have|obtain|find)\b\s*:?
)"""
_LEAD = re.compile(
    rf"(?:[#>]+\s)?\s*[*_]*(?:[=→⇒∴➜]|(?<=[#>]\s)|{_BEFORE}++{_STATED}?|{_STATED})[*_]*\s*", re.IGNORECASE | re.VERBOSE
)


class Block(NamedTuple):
    """A fenced block of a text."""

    language: str
    """The words behind the opening fence, in small letters."""
    content: str | None
    """None if the fence is never closed."""
    end: int
    """Index of the character after the block."""


def parse_fences(text: str) -> Iterator[Block]:
    """The blocks between fences of ``` or ~~~, in order. Linear in the text.

    Fences begin their lines; blanks before the opening one are taken from every line of the block.
    """
    opening: re.Match[str] | None = None
    lines: list[str] = []
    end = 0
    for line in text.split("\n"):
        end += len(line) + 1
        if opening is None:
            opening = _OPENING.fullmatch(line)
            lines = []
        elif _closes(line.strip(), opening[2]):
            yield Block(opening[3].strip().lower(), "\n".join(lines), end - 1)
            opening = None
        else:
            lines.append(line.removeprefix(opening[1]))
    if opening is not None:
        yield Block(opening[3].strip().lower(), None, len(text))


def _closes(line: str, fence: str) -> bool:
    return line.startswith(fence) and not line.strip(fence[0])


def undress(text: str) -> str:
    """The answer alone: without `The answer is`, `**`, backticks, a fence, quotes around it or a full stop behind it.

    No content is dropped: what is left is one answer, as strict as it was.
    """
    if len(text) > LONGEST:
        return text
    for _ in range(LAYERS):
        bare = _without_layer(text)
        if bare == text:
            break
        text = bare
    return text


def _without_layer(text: str) -> str:
    text = text.strip()
    if text.startswith(("```", "~~~")):
        blocks = list(parse_fences(text))
        if len(blocks) == 1 and blocks[0].content is not None and blocks[0].end == len(text):
            return blocks[0].content
    lead = _LEAD.match(text)
    if lead and lead.end() < len(text):
        return text[lead.end() :]
    text = _TAIL.sub("", text.rstrip(".,;!✓✅ ").strip(EDGES))
    tagged = _TAGGED.fullmatch(text)
    if tagged:
        return tagged[2]
    closing = _QUOTES.get(text[:1])
    if closing and len(text) > 1 and text.endswith(closing) and closing not in text[1:-1]:
        return text[1:-1]
    return text


COMMANDS = ("loomrl.gym.answer",)
"""Sources of environments that read commands."""
LONGEST_ARGUMENT = 16_000
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
    return _command(text, found[-1], argument) if len(argument) <= LONGEST_ARGUMENT else None


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
