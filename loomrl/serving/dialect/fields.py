"""Reading a request: each field is taken once, by type, and an error names its path, as `messages.0.content`."""

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from loomrl.serving.refusal import Cause, Refusal

DEEPEST = 64
"""Levels of objects and lists in a request."""
MOST_VALUES = 1 << 18
"""Values in a request, of all levels."""
MOST_JPEGS = 16
"""JPEG files in a request: each is decoded, which takes time."""
JPEG = ("data:image/jpeg", "image/jpeg")
LONGEST_NAME = 256
"""Characters of a name: of a model, a tool, a user, a call."""
LARGEST = (1 << 63) - 1
SMALLEST = -(1 << 63)


def invalid(where: str, message: str) -> Refusal:
    """A refused part of a request."""
    return Refusal(Cause.INVALID, message, where=where)


def check_bounds(body: Mapping[str, Any]) -> None:
    """Refuse requests that are too deep or too large, numbers that are not finite, and text without UTF-8."""
    count = 0
    jpegs = 0
    level = [body]
    for _ in range(DEEPEST):
        count += sum(len(value) for value in level if isinstance(value, dict | list))
        if count > MOST_VALUES:
            raise invalid("", f"the request has more than {MOST_VALUES} values.")
        if not all(map(_is_sound, level)):
            _name_fault("", body)
        jpegs += sum(isinstance(value, str) and value.startswith(JPEG) for value in level)
        if jpegs > MOST_JPEGS:
            raise invalid("", f"the request has more than {MOST_JPEGS} JPEG pictures: send PNG.")
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return
    raise invalid("", f"the request is nested more than {DEEPEST} levels deep.")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return (*value, *value.values())
    return value if isinstance(value, list) else ()


def _is_sound(value: Any) -> bool:
    if isinstance(value, str):
        return value.isascii() or _is_utf8(value)
    if isinstance(value, int):
        return SMALLEST <= value <= LARGEST
    return not isinstance(value, float) or math.isfinite(value)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _name_fault(where: str, value: Any, depth: int = 0) -> None:
    """Refuse the first unsound value by its path; deeper ones wait until those above are known to be sound."""
    if not _is_sound(value):
        raise invalid(where, "it is a number that JSON does not have, or of more than 64 bits, or text without UTF-8.")
    if depth == DEEPEST:
        return
    named = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in named:
        if not _is_sound(name):
            raise invalid(where, "the name of a field has no UTF-8.")
        _name_fault(f"{where}.{name}"[:LONGEST_NAME] if where else str(name)[:LONGEST_NAME], inner, depth + 1)


class Fields:
    """An object of a request. Null is the same as a missing field; `end` refuses fields that were not read."""

    def __init__(self, value: Any, where: str = "") -> None:
        if not isinstance(value, Mapping):
            raise invalid(where, f"{kind(value)} is no object.")
        self.where = where
        self._value = value
        self._known: set[str] = set()

    def path(self, name: str) -> str:
        """The field's path from the request's root."""
        return f"{self.where}.{name}" if self.where else name

    def has(self, name: str) -> bool:
        """True if the field is there, and not null."""
        return self._value.get(name) is not None

    def names(self) -> list[str]:
        """All its fields."""
        return list(self._value)

    def take(self, name: str) -> Any:
        """The value of any type; None if it is not there."""
        self._known.add(name)
        return self._value.get(name)

    def need(self, name: str) -> Any:
        """The value of any type."""
        value = self.take(name)
        if value is None:
            raise invalid(self.path(name), "the field is missing.")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A string, needed unless there is a default."""
        value = self.need(name) if default is None else self.take(name)
        if value is None:
            return default or ""
        if not isinstance(value, str):
            raise invalid(self.path(name), f"{kind(value)} is no string.")
        return value

    def name(self, name: str, default: str | None = None) -> str:
        """A short string of printable characters."""
        value = self.text(name, default)
        if len(value) > LONGEST_NAME or not value.isprintable() or (default is None and not value):
            raise invalid(self.path(name), f"{value[:40]!r} is no name: 1 to {LONGEST_NAME} printable characters.")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise invalid(self.path(name), f"{kind(value)} is neither true nor false.")
        return value

    def count(self, name: str, low: int, high: int) -> int | None:
        """A whole number in these bounds."""
        value = self.take(name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise invalid(self.path(name), f"{shown(value)} is no whole number from {low} to {high}.")
        return value

    def number(self, name: str, low: float, high: float) -> float | None:
        """A number in these bounds."""
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            raise invalid(self.path(name), f"{shown(value)} is no number from {low:g} to {high:g}.")
        return float(value)

    def choice(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str:
        """One of these strings."""
        value = self.text(name, default)
        if value not in choices:
            raise invalid(self.path(name), f"{shown(value)} is not supported. Supported: {', '.join(choices)}.")
        return value

    def plain(self, name: str) -> Mapping[str, Any]:
        """An object whose content is the caller's own, as a JSON schema; empty if it is not there."""
        value = self.take(name)
        if value is None:
            return {}
        return Fields(value, self.path(name))._value

    def part(self, name: str) -> "Fields | None":
        """An object."""
        value = self.take(name)
        return None if value is None else Fields(value, self.path(name))

    def parts(self, name: str, most: int) -> "list[Fields]":
        """A list of objects; empty if it is not there."""
        value = self.take(name)
        return [] if value is None else objects(value, self.path(name), most)

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        """A string or a list of strings, none of them empty."""
        value = self.take(name)
        several = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(several, list) or not all(isinstance(text, str) and text for text in several):
            raise invalid(self.path(name), "it is neither a string nor a list of strings, none of them empty.")
        if len(several) > most:
            raise invalid(self.path(name), f"{len(several)} strings are more than {most}.")
        return tuple(several)

    def neutral(self, name: str, *values: Any) -> None:
        """A field that is understood, and supported with these values only."""
        value = self.take(name)
        if value is not None and not any(value == one and _same_type(value, one) for one in values):
            only = f" Only {', '.join(map(shown, values))} is." if values else ""
            raise invalid(self.path(name), f"{shown(value)} is not supported.{only}")

    def refuse(self, name: str, reason: str) -> None:
        """A field that is understood and never supported."""
        if self.take(name) is not None:
            raise invalid(self.path(name), reason)

    def end(self) -> None:
        """Refuse fields that were not read."""
        for name, value in self._value.items():
            if name not in self._known and value is not None:
                nearest = difflib.get_close_matches(str(name)[:LONGEST_NAME], sorted(self._known), 1)
                hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
                raise invalid(self.path(str(name)[:LONGEST_NAME]), f"the field is unknown, or not supported.{hint}")


def objects(value: Any, where: str, most: int) -> list[Fields]:
    """A list of objects."""
    if not isinstance(value, list):
        raise invalid(where, f"{kind(value)} is no list.")
    if len(value) > most:
        raise invalid(where, f"{len(value)} entries are more than {most}.")
    return [Fields(item, f"{where}.{index}") for index, item in enumerate(value)]


def kind(value: object) -> str:
    """The JSON type of a value, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    names = {str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def shown(value: object) -> str:
    """A value in a message, cut where it is long."""
    text = repr(value) if not isinstance(value, list | Mapping) or len(value) < 9 else kind(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _same_type(value: object, other: object) -> bool:
    return isinstance(value, bool) == isinstance(other, bool)
