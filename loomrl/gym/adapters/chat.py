"""Shared code of adapters for chat environments: messages, tools in text, and choosing a row for a task."""

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol

from loomrl.errors import ConfigError, EpisodeError
from loomrl.gym.base import LEVELS
from loomrl.gym.guard import is_storable
from loomrl.types import Message, Task

OPENING, CLOSING = "<tool_call>", "</tool_call>"
_MOST_CALLS = 8
_LONGEST_CALL = 16_000


class Tool(NamedTuple):
    """A tool that the policy may call."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of its arguments."""


class Call(NamedTuple):
    """A tool that the policy called."""

    name: str
    arguments: str
    """JSON of an object."""


class Said(NamedTuple):
    """The policy's answer, split into text and tool calls."""

    content: str
    calls: tuple[Call, ...]


class Seen(NamedTuple):
    """Messages that are new to the policy."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()


class Score(NamedTuple):
    """The end of a conversation."""

    value: float
    parts: Mapping[str, float]
    timed_out: bool = False


class Conversation(Protocol):
    """One attempt at a row of another library's data set."""

    async def begin(self) -> Seen:
        """The first messages."""

    async def answer(self, said: Said) -> Seen | Score:
        """The environment's reply to an answer."""

    async def close(self) -> None:
        """Release all resources."""


class Malformed(Exception):
    """A text whose tool calls cannot be parsed; the message is for the policy."""


def read(text: str, tools: Sequence[Tool]) -> Said:
    """The answer, with its tool calls if there are tools. Linear in the text."""
    if not tools:
        return Said(text, ())
    content, calls, rest = "", [], text
    while OPENING in rest:
        before, _, rest = rest.partition(OPENING)
        body, closing, rest = rest.partition(CLOSING)
        if not closing:
            raise Malformed(f"{OPENING} without {CLOSING}")
        content += before
        calls.append(_call(body, [tool.name for tool in tools]))
        if len(calls) > _MOST_CALLS:
            raise Malformed(f"more than {_MOST_CALLS} calls at once")
    return Said((content + rest).strip(), tuple(calls))


def _call(body: str, known: Sequence[str]) -> Call:
    try:
        raw = json.loads(body) if len(body) <= _LONGEST_CALL else None
    except (ValueError, RecursionError):
        raw = None
    if not isinstance(raw, dict) or raw.keys() != {"name", "arguments"} or not isinstance(raw["arguments"], dict):
        raise Malformed('a call is {"name": "…", "arguments": {…}}')
    if raw["name"] not in known:
        raise Malformed(f"there is no such tool; there are {', '.join(sorted(known))}")
    return Call(raw["name"], json.dumps(raw["arguments"]))


def written(calls: Sequence[Call]) -> str:
    """These calls as text that `read` parses."""
    return "\n".join(f'{OPENING}{{"name": {json.dumps(c.name)}, "arguments": {c.arguments}}}{CLOSING}' for c in calls)


def tools_told(tools: Sequence[Tool]) -> str:
    """Prompt text: the tools, and how to call them."""
    listed = (f"- {tool.name}: {tool.description} Arguments: {json.dumps(tool.parameters)}" for tool in tools)
    how = f'{OPENING}{{"name": "…", "arguments": {{…}}}}{CLOSING}'
    return "\n".join(["Tools:", *listed, f"To call one, write {how}. An answer without a call is your last."])


def text_of(content: Any, *, origin: str) -> str:
    """The text of a message: a string, or parts that are all text."""
    if content is None or isinstance(content, str):
        text = content or ""
    else:
        parts = [part if isinstance(part, Mapping) else part.model_dump() for part in content]
        if any(part.get("type") != "text" for part in parts):
            raise EpisodeError(f"{origin}: a message has parts that are no text; only text can be shown.")
        text = "\n".join(part["text"] for part in parts)
    return text if is_storable(text) else ascii(text)


def row_of(task: Task, values: Sequence[Any]) -> int:
    """The row for a task: rows are sorted by `values`, and each level gets its tenth, or all rows if all values are
    equal.
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    size = len(order)
    first, last = 0, size
    if size and values[order[0]] != values[order[-1]]:
        first = (task.level - 1) * size // LEVELS
        last = max(first + 1, task.level * size // LEVELS)
    return order[Random(f"{task.family}:{task.level}:{task.seed}").randrange(first, last)]


def field_of(row: Mapping[str, Any], path: str, *, origin: str) -> Any:
    """The value at a dotted path, such as `info.level`."""
    value: Any = row
    for name in path.split("."):
        value = json.loads(value) if isinstance(value, str) else value
        if not isinstance(value, Mapping) or name not in value:
            raise ConfigError(f"{origin}.level_field={path!r}: a row has no {name!r} there, but {str(value)[:100]!r}.")
        value = value[name]
    return value
