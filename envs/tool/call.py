"""Function calls in a text, `<tool_call>{"name": …, "arguments": {…}}</tool_call>`: read strictly, in bounded time.

`parameters` may stand for `arguments`, a fence around the object, and a fence for the tags.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from loomrl.gym.answer import parse_fences

OPENING = "<tool_call>"
CLOSING = "</tool_call>"
MOST = 8
"""Calls in one action; an action with more makes none."""
LONGEST = 4000
"""Characters of a call."""
MOST_BRACKETS = 200
"""Opening brackets in a call: no call is nested deeper."""
MOST_DIGITS = 18
"""Digits of a number in a call."""


class MalformedCall(ValueError):
    """A text that is no call."""


class FunctionCall(NamedTuple):
    """A function's name and its arguments."""

    name: str
    arguments: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Equal for equal calls, however they were written."""
        return json.dumps(self, sort_keys=True)

    def __str__(self) -> str:
        return f"{OPENING}{json.dumps({'name': self.name, 'arguments': dict(self.arguments)})}{CLOSING}"


def split_calls(text: str) -> tuple[list[str], str]:
    """The contents of the call tags, in order, and the text after the last; stops after `MOST` + 1.

    A last call that is never closed counts: an engine that stops at the closing tag may not give it back. Where there
    is no tag, fenced blocks that are calls count.
    """
    found: list[str] = []
    if OPENING not in text:
        return _split_fenced(text)
    rest = text
    while len(found) <= MOST and OPENING in rest:
        call, _, rest = rest.partition(OPENING)[2].partition(CLOSING)
        found.append(call)
    return found, rest


def _split_fenced(text: str) -> tuple[list[str], str]:
    found: list[str] = []
    end = 0
    for block in parse_fences(text):
        if block.content is not None and _is_call(block.content):
            found.append(block.content)
            end = block.end
        if len(found) > MOST:
            break
    return found, text[end:]


def _is_call(raw: str) -> bool:
    try:
        read_call(raw)
    except MalformedCall:
        return False
    return True


def read_call(raw: str) -> FunctionCall:
    """The call in this text; Malformed states the error."""
    value = _read_json(_strip_fence(raw.strip()))
    if isinstance(value, dict) and value.keys() == {"name", "parameters"}:
        value = {"name": value["name"], "arguments": value["parameters"]}
    if not isinstance(value, dict) or value.keys() != {"name", "arguments"}:
        raise MalformedCall('a call is {"name": "...", "arguments": {...}}, and nothing else')
    if not isinstance(value["name"], str) or not isinstance(value["arguments"], dict):
        raise MalformedCall('"name" must be a string and "arguments" an object')
    return FunctionCall(value["name"], value["arguments"])


def _strip_fence(raw: str) -> str:
    if not raw.startswith(("```", "~~~")):
        return raw
    return next((block.content for block in parse_fences(raw) if block.content is not None), raw)


def _read_json(raw: str) -> Any:
    if len(raw) > LONGEST:
        raise MalformedCall(f"a call has at most {LONGEST} characters")
    if raw.count("{") + raw.count("[") > MOST_BRACKETS:
        raise MalformedCall(f"a call has at most {MOST_BRACKETS} brackets")
    try:
        return json.loads(
            raw, object_pairs_hook=_object, parse_int=_integer, parse_float=_number, parse_constant=_refuse
        )
    except json.JSONDecodeError as error:
        raise MalformedCall(f"no JSON: {error.msg} at character {error.pos}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise MalformedCall("a key is there twice")
    return value


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise MalformedCall(f"a number has at most {MOST_DIGITS} digits")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if len(digits) > MOST_DIGITS or value in (float("inf"), float("-inf")):
        raise MalformedCall("a number is too large")
    return value


def _refuse(name: str) -> NoReturn:
    raise MalformedCall(f"{name} is no JSON")
