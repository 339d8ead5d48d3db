"""Rows and texts of tasksets, and the score of an answer."""

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from loomrl.errors import ConfigError, EpisodeError
from loomrl.gym.base import LEVELS
from loomrl.gym.guard import is_storable
from loomrl.types import Task


class Score(NamedTuple):
    """A taskset's score of an answer."""

    value: float
    parts: Mapping[str, float]


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
