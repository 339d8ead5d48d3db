"""What adapters of chat environments share: what is seen and said, tools in text, and which row a task is."""

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
    """What the policy said, taken apart."""

    content: str
    calls: tuple[Call, ...]


class Seen(NamedTuple):
    """What is new to the policy."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()


class Score(NamedTuple):
    """The end of a conversation."""

    value: float
    parts: Mapping[str, float]
    timed_out: bool = False


class Conversation(Protocol):
    """One attempt at a row of others."""

    async def begin(self) -> Seen:
        """What is seen first."""

    async def answer(self, said: Said) -> Seen | Score:
        """What comes of what was said."""

    async def close(self) -> None:
        """Let go of whatever is open."""


class Malformed(Exception):
    """A text whose tool calls cannot be read; the message is for the policy."""


def read(text: str, tools: Sequence[Tool]) -> Said:
    """What was said; where there are tools, the calls in it. Linear in the text."""
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
    """The text that `read` reads as these calls."""
    return "\n".join(f'{OPENING}{{"name": {json.dumps(c.name)}, "arguments": {c.arguments}}}{CLOSING}' for c in calls)


def tools_told(tools: Sequence[Tool]) -> str:
    """Which tools there are, and how they are called."""
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
    """Which row a task is. `values` grow with difficulty: a level has its tenth of the rows; all, if all are alike."""
    order = sorted(range(len(values)), key=values.__getitem__)
    size = len(order)
    first, last = 0, size
    if size and values[order[0]] != values[order[-1]]:
        first = (task.level - 1) * size // LEVELS
        last = max(first + 1, task.level * size // LEVELS)
    return order[Random(f"{task.family}:{task.level}:{task.seed}").randrange(first, last)]


def field_of(row: Mapping[str, Any], path: str, *, origin: str) -> Any:
    """The value at `info.level`, say."""
    value: Any = row
    for name in path.split("."):
        value = json.loads(value) if isinstance(value, str) else value
        if not isinstance(value, Mapping) or name not in value:
            raise ConfigError(f"{origin}.level_field={path!r}: a row has no {name!r} there, but {str(value)[:100]!r}.")
        value = value[name]
    return value
