"""Values of tested functions: plain data, compared by strict types."""

import math
from typing import Any

from loomrl.envs.code.driver import write_value

Value = Any
"""None, bool, int, float, str, and lists, tuples and dicts of these."""

MAX_FLOAT = 32
"""Letters of a written float; Python's own have fewer."""


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
        mine = _by_identity(expected)
        theirs = _by_identity(given)
        return mine.keys() == theirs.keys() and all(same(mine[key], theirs[key], tolerance=tolerance) for key in mine)
    return bool(expected == given)


def says(given: bytes, wanted: bytes, *, tolerance: float = 0.0) -> bool:
    """True if untrusted text is the text of this value. It is read once, and nothing is built from it."""
    if given == wanted or not tolerance:
        return given == wanted
    if given.count(b"\n") != wanted.count(b"\n"):
        return False
    pairs = zip(wanted.split(b"\n"), given.split(b"\n"), strict=True)
    return all(mine == theirs or _is_near(mine, theirs, tolerance) for mine, theirs in pairs)


def _is_near(mine: bytes, theirs: bytes, tolerance: float) -> bool:
    if mine[:1] != b"f" or theirs[:1] != b"f" or len(theirs) > MAX_FLOAT:
        return False
    try:
        return math.isclose(float(mine[1:]), float(theirs[1:]), rel_tol=tolerance, abs_tol=tolerance)
    except ValueError:
        return False


def fresh(value: Value) -> Value:
    """A copy that shares nothing that can be changed."""
    if isinstance(value, list):
        return [fresh(item) for item in value]
    if isinstance(value, tuple):
        return tuple(fresh(item) for item in value)
    if isinstance(value, dict):
        return {key: fresh(item) for key, item in value.items()}
    return value


def _by_identity(values: dict[Value, Value]) -> dict[str, Value]:
    """By keys as text, in which True and 1 differ."""
    return {write_value(key): value for key, value in values.items()}
