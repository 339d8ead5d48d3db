"""Calls in an answer, read as its text comes: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`.

The result depends on the text alone, not on how it was cut into pieces.
"""

import json
import secrets
from collections.abc import Iterable
from typing import Any, NoReturn

from loomrl.serving.call import ToolCall

OPENING = "<tool_call>"
CLOSING = "</tool_call>"
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


class Reader:
    """Splits an answer into text to show and calls. Text that may become a call is held back.

    A malformed call stays text. Space around calls belongs to them.
    """

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self._held = ""
        self._searched = 0
        """Of the text after an opening tag: beginning of the search for its closing tag."""
        self._shown = False
        self._after_call = False
        """Only space has come since the last call."""

    def add(self, text: str) -> str:
        """Take the next text; returns the text that is certain to be shown."""
        self._held += text
        return self._read(ended=False)

    def end(self) -> str:
        """The rest to show. A last call that is whole but not closed counts."""
        return self._read(ended=True)

    def _read(self, *, ended: bool) -> str:
        shown = ""
        while True:
            before, opening, rest = self._held.partition(OPENING)
            if not opening:
                certain = self._held if ended else before[: len(before) - overlap(before, [OPENING])].rstrip()
                self._held = self._held[len(certain) :]
                return shown + self._show(certain)
            length = self._find(rest, ended=ended)
            if length is None:
                certain = before.rstrip()
                self._held = self._held[len(certain) :]
                return shown + self._show(certain)
            self._searched = 0
            if length:
                shown += self._show(before.rstrip())
                self._after_call = True
            else:
                shown += self._show(before + OPENING)
            self._held = rest[length:]

    def _find(self, rest: str, *, ended: bool) -> int | None:
        """The length of the call after an opening tag; 0 if it is malformed, None if it has not ended."""
        while (at := rest.find(CLOSING, self._searched)) >= 0:
            try:
                self.calls.append(read_call(rest[:at]))
                return at + len(CLOSING)
            except json.JSONDecodeError as error:
                if not error.msg.startswith("Unterminated string"):
                    return 0
                self._searched = at + len(CLOSING)  # this tag is part of an argument
            except (ValueError, RecursionError):
                return 0
        if not ended:
            self._searched = max(self._searched, len(rest) - len(CLOSING) + 1)
            return None
        try:
            self.calls.append(read_call(rest[: len(rest) - overlap(rest, [CLOSING])]))
        except (ValueError, RecursionError):
            return 0
        return len(rest)

    def _show(self, text: str) -> str:
        if self._after_call and not text.strip():
            return ""
        if self._after_call and not self._shown:
            text = text.lstrip()
        if text:
            self._shown = True
            self._after_call = False
        return text


def overlap(text: str, searched: Iterable[str]) -> int:
    """The length of the longest end of a text with which one of these strings may begin; less than all of it."""
    longest = 0
    for one in searched:
        for length in range(min(len(one) - 1, len(text)), longest, -1):
            if text.endswith(one[:length]):
                longest = length
                break
    return longest


def read_call(text: str) -> ToolCall:
    """The call in the text between the tags; a ValueError if it is none. Its id is random."""
    found = json.loads(text, strict=False, parse_constant=_refuse)
    if not isinstance(found, dict) or not found.keys() <= {"name", "arguments"}:
        raise ValueError("a call is an object with name and arguments")
    name = found.get("name")
    arguments = found.get("arguments", {})
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise ValueError("a call's name is text, and its arguments are an object")
    name.encode()  # a ValueError if half a surrogate pair is in it
    return ToolCall(id=f"call_{secrets.token_hex(12)}", name=name, arguments=_written(arguments))


def write_call(call: ToolCall) -> str:
    """A call as a policy would write it; equal calls become equal text, whatever their ids."""
    arguments: Any
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments
    return write_use(call.name, arguments)


def write_use(name: str, arguments: Any) -> str:
    """`write_call` of what is no JSON text yet."""
    return f"{OPENING}\n{_written({'name': name, 'arguments': arguments})}\n{CLOSING}"


def _written(value: Any) -> str:
    text = _ENCODER.encode(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False)
    return text


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
