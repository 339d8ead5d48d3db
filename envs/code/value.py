"""Values that a tested function takes and gives: plain data, compared by strict types."""

import json
import math
from typing import Any

from envs.code.driver import Malformed, decode, encode

Value = Any
"""None, bool, int, float, str, and lists, tuples and dicts of these."""

MAX_SHOWN = 160


def read_json(text: bytes) -> Any:
    """What untrusted JSON text says; Malformed where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"no JSON: {type(error).__name__}") from error


def same(expected: Value, given: Value, *, tolerance: float = 0.0) -> bool:
    """Equal in value and in every type; floats up to a relative and absolute tolerance."""
    if type(expected) is not type(given):
        return False
    if isinstance(expected, float):
        return math.isclose(expected, given, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(expected, list | tuple):
        return len(expected) == len(given) and all(
            same(mine, theirs, tolerance=tolerance) for mine, theirs in zip(expected, given, strict=True)
        )
    if isinstance(expected, dict):
        mine, theirs = _by_identity(expected), _by_identity(given)
        return mine.keys() == theirs.keys() and all(same(mine[key], theirs[key], tolerance=tolerance) for key in mine)
    return bool(expected == given)


def fresh(value: Value) -> Value:
    """A copy that shares nothing that can be changed."""
    if isinstance(value, list):
        return [fresh(item) for item in value]
    if isinstance(value, tuple):
        return tuple(fresh(item) for item in value)
    if isinstance(value, dict):
        return {key: fresh(item) for key, item in value.items()}
    return value


def shown(value: Value) -> str:
    """A value for a message: ASCII, and cut where it is long."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):
        return "(a value too large to show)"
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def _by_identity(values: dict[Value, Value]) -> dict[str, Value]:
    """By keys as text, in which True and 1 differ."""
    return {json.dumps(encode(key)): value for key, value in values.items()}


__all__ = ["Malformed", "Value", "decode", "encode", "fresh", "read_json", "same", "shown"]
