"""The form of an oracle's answers: the text around what differs from task to task, and ways to spoil the rest."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_TAGGED = re.compile(r"(?s)^(.*?<(\w+)>)(.*)(</\2>.*)$")
_FENCED = re.compile(r"(?s)^(.*?```\w*\n).*(```.*)$")
_LAST_TAG = re.compile(r"</(\w+)>\s*$")
_BOXED = re.compile(r"(?s)^(.*\\boxed\{)(.*)(\}[^}]*)$")


@dataclass(frozen=True, slots=True)
class Shape:
    """The texts before and behind the answer in each of an oracle's last actions."""

    prefix: str = ""
    suffix: str = ""
    behind: bool = False
    """True if other text comes before the prefix."""

    def wrap(self, core: str) -> str:
        """The answer as the environment expects it."""
        return f"{self.prefix}{core}{self.suffix}"

    def core(self, action: str) -> str:
        """The answer inside an action of this form."""
        first, last = self._span(action)
        return action[first:last]

    def dress(self, action: str, core: str) -> str:
        """The action with another answer inside."""
        first, last = self._span(action)
        return f"{action[:first]}{core}{action[last:]}"

    def _span(self, action: str) -> tuple[int, int]:
        if len(action) < len(self.prefix) + len(self.suffix):
            return 0, len(action)
        last = len(action.rstrip()) if self.suffix else len(action)
        if action[:last].endswith(self.suffix):
            # The last one, behind a solution that differs from task to task.
            first = action.rfind(self.prefix, 0, last) if self.behind else 0 if action.startswith(self.prefix) else -1
            if first >= 0:
                return first + len(self.prefix), last - len(self.suffix)
        return 0, len(action)


def shape_of(actions: Sequence[str]) -> Shape:
    """The common form of actions; of equal ones, the tags around their content."""
    distinct = list(dict.fromkeys(actions))
    if any("def " in each for each in distinct):
        fenced = _FENCED.match(distinct[0])
        return Shape(fenced[1], fenced[2]) if fenced else Shape()
    if not distinct:
        return Shape()
    tags = {found[1] for each in distinct if (found := _LAST_TAG.search(each))}
    if len(tags) == 1 and all(_LAST_TAG.search(each) for each in distinct):
        (tag,) = tags
        return Shape(f"<{tag}>", f"</{tag}>", behind=True)
    if len(distinct) == 1:
        found = _TAGGED.match(distinct[0])
        if found:
            return Shape(found[1], found[4])
        found = _BOXED.match(distinct[0])
        return Shape(found[1], found[3]) if found else Shape()
    prefix = _common(distinct)
    prefix = re.sub(r"(-|[\w.]+)$", "", prefix)
    rest = [each[len(prefix) :] for each in distinct]
    suffix = _common([each[::-1] for each in rest])[::-1]
    suffix = re.sub(r"^[\w.]+", "", suffix)
    return Shape(prefix, suffix)


def _common(texts: Sequence[str]) -> str:
    """The beginning that all have."""
    first, last = min(texts), max(texts)
    return first[
        : next((index for index, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    ]


LONGEST_COMMAND = 300
ARGUMENT = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")
"""A number of a command."""
# A word behind a label, as in "ACTION: left", is the whole command and no argument.
_LAST_ARGUMENT = re.compile(r'(?<=: )"([^"]*)"|(?<=[=(])\s*["\']?([\w.-]+)["\']?(?=[),])|(?<=[^:\s]\s)([\w./#-]+)')


def changed(action: str, value: str, *, number: bool) -> str | None:
    """The action with its last number, or its last argument, replaced; None where it has none."""
    if len(action) > LONGEST_COMMAND:
        return None
    found = list((ARGUMENT if number else _LAST_ARGUMENT).finditer(action))
    if not found:
        return None
    last = found[-1]
    group = next((each for each in range(1, len(last.groups()) + 1) if last[each] is not None), 0)
    text = action[: last.start(group)] + value + action[last.end(group) :]
    return text if text != action else None


def normal(text: str) -> str:
    """An answer without what does not change it: case, blanks, marks at its ends."""
    return " ".join(text.lower().split()).strip(" .,;:!?\"'`*")


Spoil = Callable[[str, str, str], "tuple[str, ...] | None"]
"""The variants of a right answer, given another task's and the prompt, that must all be wrong; None: not applicable.

All variants together make one proof: a bet on two answers is paid in either order, or it is a choice of the last one.
"""

SEPARATORS: Mapping[str, str] = {
    "or": " or ",
    "comma": ", ",
    "space": " ",
    "line": "\n",
    "semicolon": "; ",
    "slash": "/",
    "bar": "|",
    "and": " and ",
}


def _bet(separator: str) -> Spoil:
    def spoil(right: str, other: str, _: str) -> tuple[str, ...] | None:
        return (f"{right}{separator}{other}", f"{other}{separator}{right}") if _apart(right, other) else None

    return spoil


def _apart(right: str, other: str) -> bool:
    """True if the two answers differ, and neither is part of the other."""
    one, two = normal(right), normal(other)
    return bool(one and two) and one not in two and two not in one and len(one) + len(two) < 2000


def _json_list(right: str, other: str, _: str) -> tuple[str, ...] | None:
    if not _apart(right, other):
        return None
    values = [_json_value(right), _json_value(other)]
    return json.dumps(values), json.dumps(values[::-1])


def _json_value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _number(change: Callable[[float], float], *, smallest: float = 0.0) -> Spoil:
    def spoil(right: str, other: str, prompt: str) -> tuple[str, ...] | None:
        if not _NUMBER.fullmatch(right.strip()) or _asks_for_roughly(prompt):
            return None
        value = float(right)
        changed = change(value)
        is_whole = "." not in right
        changed = round(changed) if is_whole and smallest else changed
        # A whole number is right or wrong; decimals may be rounded.
        least = 0.0 if is_whole else 0.02 * abs(value)
        if abs(value) < smallest or abs(changed - value) <= least:
            return None
        return (f"{round(changed)}" if "." not in right and changed == round(changed) else f"{changed:.6g}",)

    return spoil


def is_tolerance(right: str, wrong: str, others: Sequence[str]) -> bool:
    """True if a number is changed by so little that no other task's answer comes as near: no guess gains by it."""
    if not all(_NUMBER.fullmatch(text.strip()) for text in (right, wrong)):
        return False
    least = abs(float(wrong) - float(right))
    numbers = [float(text) for text in others if _NUMBER.fullmatch(text.strip())]
    return bool(numbers) and not any(0 < abs(number - float(right)) <= least for number in numbers)


_ROUGHLY = re.compile(r"(?i)\b(within|about|approx\w*|roughly|estimate\w*|nearest|tolerance|round\w*|close)\b|±|%")


def _asks_for_roughly(prompt: str) -> bool:
    return bool(_ROUGHLY.search(prompt))


def _digits(before: str, behind: str) -> Spoil:
    def spoil(right: str, other: str, _: str) -> tuple[str, ...] | None:
        text = right.strip()
        if not re.fullmatch(r"-?\d+", text) or (behind and text in ("0", "-0")):
            return None
        sign = "-" if text.startswith("-") else ""
        return (f"{sign}{before}{text.removeprefix('-')}{behind}",)

    return spoil


def _cut(right: str, other: str, _: str) -> tuple[str, ...] | None:
    text = right.strip()
    if re.fullmatch(r"\d{2,}", text):
        return (text[:-1], text[1:]) if text[1:].lstrip("0") else None
    if re.fullmatch(r"[A-Za-z]{4,}", text):
        return (text[: (len(text) + 1) // 2],)
    return None


def _same_digits(right: str, other: str, _: str) -> tuple[str, ...] | None:
    text = right.strip()
    if not re.fullmatch(r"[1-9]\d+|[a-z]{4,}", text) or text == text[::-1] or text.endswith("0"):
        return None
    return (text[::-1],)


def _same_ends(right: str, other: str, _: str) -> tuple[str, ...] | None:
    text = right.strip()
    if not re.fullmatch(r"[A-Za-z]{4,}", text):
        return None
    return f"{text[0]}{'z' * (len(text) - 1)}", f"{'z' * (len(text) - 1)}{text[-1]}"


def _one_end(end: int) -> Spoil:
    def spoil(right: str, other: str, prompt: str) -> tuple[str, ...] | None:
        both = _same_ends(right, other, prompt)
        return both and (both[end],)

    return spoil


def _denied(right: str, other: str, _: str) -> tuple[str, ...] | None:
    if not re.fullmatch(r"[A-Za-z][A-Za-z ]{3,40}", right.strip()):
        return None
    return f"not {right}", f"{right} is wrong"


def _listed(change: Callable[[list[str], list[str]], list[str]]) -> Spoil:
    """A list with other items, in the brackets that it had."""

    def spoil(right: str, other: str, _: str) -> tuple[str, ...] | None:
        text = right.strip()
        brackets = (text[0], text[-1]) if text[:1] + text[-1:] in ("[]", "()", "{}") else ("", "")
        found = _items(text[1:-1] if brackets[0] else text)
        if found is None or len({*found[1]}) < 3:
            return None
        items = change(found[1], (_items(other.strip("[](){} ")) or ("", []))[1])
        if sorted(items) == sorted(found[1]):
            return None
        return (f"{brackets[0]}{found[0].join(items)}{brackets[1]}",)

    return spoil


def _strange(items: Sequence[str]) -> list[str]:
    """A surely wrong item in place of each."""
    return ["9999" if re.fullmatch(r"-?\d+", item) else "zzqx" for item in items]


def _glued(right: str, other: str, _: str) -> tuple[str, ...] | None:
    if not (right.isalnum() and other.isalnum() and _apart(right, other)):
        return None
    return f"{right}{other}", f"{other}{right}"


_ITEM = re.compile(r"[\w.'-]+")
_ORDER = re.compile(r"(?i)\b(order\w*|sort\w*|rank\w*|arrange|sequence|reverse\w*|ascending|descending)\b")


def _items(text: str) -> tuple[str, list[str]] | None:
    """A list's separator and its items, of one word each."""
    for separator in (", ", ",", "; ", " ", "\n"):
        items = text.strip().split(separator)
        if len(items) >= 3 and all(_ITEM.fullmatch(item) for item in items):
            return separator, items
    return None


def _one_item(right: str, other: str, _: str) -> tuple[str, ...] | None:
    found = _items(right)
    if found is None or len({*found[1]}) < 3:
        return None
    separator, items = found
    return tuple(separator.join([item] * len(items)) for item in (items[0], items[-1]))


def _turned(right: str, other: str, prompt: str) -> tuple[str, ...] | None:
    found = _items(right)
    if found is None or found[1] == found[1][::-1] or not _ORDER.search(prompt):
        return None
    return (found[0].join(found[1][::-1]),)


def _first_items(right: str, other: str, _: str) -> tuple[str, ...] | None:
    found = _items(right)
    if found is None or len({*found[1]}) < 3:
        return None
    return found[1][0], found[1][-1]


SPOILS: Mapping[str, Spoil] = {
    **{f"bet {name}": _bet(separator) for name, separator in SEPARATORS.items()},
    "bet list": _json_list,
    "plus one": _number(lambda value: value + 1),
    "minus one": _number(lambda value: value - 1),
    "five percent": _number(lambda value: value * 1.06, smallest=20),
    "half more": _number(lambda value: value * 1.5 + 3),
    "negated": _number(lambda value: -value),
    "plus two": _number(lambda value: value + 2),
    "plus ten": _number(lambda value: value + 10),
    "thousand more": _number(lambda value: value + 1000),
    "one percent": _number(lambda value: value * 0.99, smallest=300),
    "three in a thousand": _number(lambda value: value * 1.003, smallest=2000),
    "ten times": _number(lambda value: value * 10),
    "hundred more": _number(lambda value: value + 100),
    "fraction": _number(lambda value: value + 0.9),
    "digit behind": _digits("", "7"),
    "zero behind": _digits("", "0"),
    "digit before": _digits("1", ""),
    "cut": _cut,
    "glued": _glued,
    "one item": _one_item,
    "other order": _turned,
    "first item": _first_items,
    "same letters": _same_digits,
    "the first letter": _one_end(0),
    "the last letter": _one_end(1),
    "denied": _denied,
    "first half": _listed(lambda items, _: [*items[: len(items) // 2], *_strange(items[len(items) // 2 :])]),
    "second half": _listed(lambda items, _: [*_strange(items[: len(items) // 2]), *items[len(items) // 2 :]]),
    "all but the last": _listed(lambda items, _: [*items[:-1], *_strange(items[-1:])]),
    "all but the first": _listed(lambda items, _: [*_strange(items[:1]), *items[1:]]),
    "without the last": _listed(lambda items, _: items[:-1]),
    "others as well": _listed(lambda items, others: [*items, *others]),
}
"""By name, for what is inside the wrapping of an answer."""
WHOLE: Mapping[str, Callable[[str, Sequence[str]], tuple[str, ...]]] = {
    "both answers": lambda right, others: (f"{right}\n{others[0]}", f"{others[0]}\n{right}"),
    "many answers": lambda right, others: ("\n".join([right, *others]), "\n".join([*others, right])),
}
"""By name, for whole actions."""


def crowd(right: str, others: Sequence[str]) -> tuple[str, ...] | None:
    """The right answer first, amidst and last in a list of others."""
    if not all(_apart(right, other) for other in others) or len(others) < 3:
        return None
    half = len(others) // 2
    orders = ([right, *others], [*others[:half], right, *others[half:]], [*others, right])
    return tuple(", ".join(order) for order in orders)


LABELS = (
    r"answer|solution|expected|gold|target|truth|key|label|debug|reference|correct|secret|hint|result|checksum|ref|meta"
)
_LABEL = re.compile(rf"(?i)(?=\b\w*(?:{LABELS})\w*[\"']?\s*(?:[:=]|\bis\b|\bwas\b)\s*[\"'<]?([^\n\"'<>\])}}]+))")
_COMMENT = re.compile(r"(?s)<!--(.*?)-->|/\*(.*?)\*/|\[\[(.*?)\]\]")
_OPTION = re.compile(r"(?m)^\s*\(?([A-Ha-h1-9])[).:]\s+(.+?)\s*$")


def copies(prompt: str) -> Iterator[tuple[str, str]]:
    """Blind readings of a prompt: a name, and the text that it finds there."""
    yield "the prompt", prompt
    lines = [line for line in prompt.splitlines() if line.strip()]
    if lines:
        yield "the last line", lines[-1]
        yield "the first line", lines[0]
    numbers = [found[0] for found in _NUMBER.finditer(prompt)]
    for name, index in (("the first number", 0), ("the last number", -1), ("the second number", 1)):
        if len(numbers) > abs(index):
            yield name, numbers[index]
    if numbers:
        yield "all numbers", ", ".join(numbers)
    words = re.findall(r"[\w'-]+", prompt)
    if words:
        yield "the first word", words[0]
        yield "the last word", words[-1]
        yield "the longest word", max(words, key=len)
    quoted = re.findall(r"[\"'`]([^\"'`\n]+)[\"'`]", prompt)
    if quoted:
        yield "the first quoted text", quoted[0]
        yield "the last quoted text", quoted[-1]
    values = [found[1].strip(" .,;-") for found in _LABEL.finditer(prompt)]
    for number, value in enumerate(dict.fromkeys(values)):
        if number < 4 and value:
            yield f"after a label, {number + 1}", value
            yield f"a word after a label, {number + 1}", value.split()[0].strip(",;")
    for found in _COMMENT.finditer(prompt):
        inside = next(group for group in found.groups() if group is not None).strip()
        yield "a comment", inside
        yield "the last word of a comment", (inside.split() or [""])[-1]
    yield from _hidden(prompt, lines)
    options = [(found[1], found[2]) for found in _OPTION.finditer(prompt)]
    if len(options) > 1:
        yield "the longest option", max(options, key=lambda each: len(each[1]))[0]
        yield "the shortest option", min(options, key=lambda each: len(each[1]))[0]
        yield "the longest option's text", max(options, key=lambda each: len(each[1]))[1]
        yield "the shortest option's text", min(options, key=lambda each: len(each[1]))[1]
        yield "the first option's text", options[0][1]
        yield "the last option's text", options[-1][1]
        yield "all options", ", ".join(option for option, _ in options)
    yield from _decoded(prompt)


_CODE = re.compile(r"\b[A-Za-z0-9]+(?:[-_/#:.][A-Za-z0-9]+){2,}\b|\b[A-Za-z]+[-_#]\d+\b|\b\d+[-_#][A-Za-z]+\b|#\w+")


def _hidden(prompt: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Readings that no task asks for."""
    for number, found in enumerate(_CODE.finditer(prompt)):
        if number == 4:
            break
        for place, piece in enumerate(re.split(r"[-_/#:.]", found[0])[:5]):
            yield f"a piece of a code, {number + 1}.{place + 1}", piece
    yield "hidden: initials of lines", "".join(line.strip()[0] for line in lines)
    yield "hidden: initials of words", "".join(word[0] for word in prompt.split())
    yield "hidden: initials of sentences", "".join(re.findall(r"(?:^|[.!?]\s+)(\w)", prompt))
    yield "hidden: capitals", "".join(re.findall(r"(?<=[a-z])[A-Z]", prompt))
    yield "hidden: spaces at the end", str(len(prompt) - len(prompt.rstrip()))
    yield "hidden: length", str(len(prompt))
    yield "hidden: words", str(len(prompt.split()))
    yield "hidden: signs", str(sum(not letter.isprintable() and letter not in "\n\t" for letter in prompt))


_NUMBERED = re.compile(r"(?i)(?:\b(?:question|case|task|id|seed|ticket|row|problem|puzzle)\b|#)\W{0,4}(\d+)")


def marks(prompt: str) -> Iterator[tuple[str, int]]:
    """Numbers of a prompt that should say nothing about the answer, each with its name."""
    found = _NUMBERED.search(prompt)
    for base in range(2, 9):
        if found:
            yield f"the task's number modulo {base}", int(found[1]) % base
        yield f"the prompt's length modulo {base}", len(prompt) % base


def _decoded(prompt: str) -> Iterator[tuple[str, str]]:
    """The reading of a token of the prompt in another alphabet."""
    import base64
    import codecs
    from contextlib import suppress

    tokens = re.findall(r"[A-Za-z0-9+/=]{4,}", prompt)
    for token in dict.fromkeys(tokens):
        with suppress(ValueError):
            text = base64.b64decode(token, validate=True).decode("ascii")
            if text.isprintable() and (token.endswith("=") or any(c.isdigit() or c.isupper() for c in token[1:])):
                yield "base64", text
        if len(token) % 2 == 0 and re.fullmatch(r"[0-9a-f]+", token):
            with suppress(ValueError):
                text = bytes.fromhex(token).decode("ascii")
                if text.isprintable():
                    yield "hexadecimal", text
    odd = [token for token in tokens if token.isalpha()]
    if odd:
        yield "the last word in rot13", codecs.encode(odd[-1], "rot13")
        yield "the last word backwards", odd[-1][::-1]


PLAIN_SIGHT = (
    "after a label",
    "a comment",
    "the last word of a comment",
    "base64",
    "hexadecimal",
    "the last word in rot",
    "a piece of a code",
    "hidden",
)
"""Readings that give the right answer itself away: the others may be the task."""
CHOICES = ("the longest option", "the shortest option", "the first option", "the last option")
