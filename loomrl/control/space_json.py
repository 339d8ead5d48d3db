"""Gymnasium spaces as JSON values, and back."""

from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from loomrl.control.space import Array
from loomrl.errors import ConfigError, unknown

Infinite = Literal["-inf", "inf"]
KINDS = ("Box", "Dict", "Discrete", "MultiBinary", "MultiDiscrete", "Tuple")


def space_to_json(space: spaces.Space[Any]) -> dict[str, Any]:
    """Plain JSON values from which `space_from_json` makes an equal space."""
    match space:
        case spaces.Box() if np.dtype(space.dtype).itemsize <= 8:
            return {
                "kind": "Box",
                "shape": list(space.shape),
                "dtype": np.dtype(space.dtype).name,
                "low": _bounds(space.low, space.bounded_below, "-inf"),
                "high": _bounds(space.high, space.bounded_above, "inf"),
            }
        case spaces.Discrete():
            return {
                "kind": "Discrete",
                "n": int(space.n),
                "start": int(space.start),
                "dtype": np.dtype(space.dtype).name,
            }
        case spaces.MultiDiscrete():
            choices = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
            return {"kind": "MultiDiscrete", **choices, "dtype": np.dtype(space.dtype).name}
        case spaces.MultiBinary():
            return {"kind": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.n)}
        case spaces.Dict() if all(isinstance(name, str | int) for name in space.spaces):
            # Pairs: an object of JSON has no order, and a flattened observation has.
            return {"kind": "Dict", "spaces": [[name, space_to_json(part)] for name, part in space.spaces.items()]}
        case spaces.Tuple():
            return {"kind": "Tuple", "spaces": [space_to_json(part) for part in space.spaces]}
    raise ConfigError(
        f"the space {space} cannot be written as JSON. Known: {', '.join(KINDS)}, with numbers of at most 64 bits "
        "and names that are strings or whole numbers."
    )


def space_from_json(value: Any) -> spaces.Space[Any]:
    """The space that `space_to_json` wrote; a ConfigError if this is not one."""
    try:
        return _space(value)
    except (KeyError, TypeError, ValueError, OverflowError, AssertionError) as error:  # Gymnasium's checks assert
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{value!r:.120} is not a space: {type(error).__name__}: {error}. Write it again.") from error


def _space(value: Any) -> spaces.Space[Any]:
    match value["kind"]:
        case "Box":
            return _box(value)
        case "Discrete":
            return spaces.Discrete(value["n"], start=value["start"], dtype=np.dtype(value["dtype"]).type)
        case "MultiDiscrete":
            return spaces.MultiDiscrete(value["nvec"], np.dtype(value["dtype"]).type, start=value["start"])
        case "MultiBinary":
            return spaces.MultiBinary(value["n"])
        case "Dict":
            return spaces.Dict([(name, space_from_json(part)) for name, part in value["spaces"]])
        case "Tuple":
            return spaces.Tuple([space_from_json(part) for part in value["spaces"]])
        case kind:
            raise ConfigError(unknown("kind", kind, KINDS))


def _box(value: Any) -> spaces.Box:
    shape = tuple(value["shape"])
    dtype = np.dtype(value["dtype"])
    low, bounded_below = _edge(value["low"], shape, dtype, "-inf")
    high, bounded_above = _edge(value["high"], shape, dtype, "inf")
    box = spaces.Box(low, high, shape, dtype.type)
    # whole numbers have no infinity to tell it by
    box.bounded_below = bounded_below
    box.bounded_above = bounded_above
    return box


def _bounds(values: Array, bounded: Array, infinite: Infinite) -> Any:
    """One value if all are equal, as in a picture; else the flattened list."""
    both = zip(values.ravel().tolist(), bounded.ravel().tolist(), strict=True)
    row = [value if is_bounded else infinite for value, is_bounded in both]
    return row[0] if row and row.count(row[0]) == len(row) else row


def _edge(given: Any, shape: tuple[int, ...], dtype: "np.dtype[Any]", infinite: Infinite) -> tuple[Array, Array]:
    """Bounds, and a mask of the finite ones."""
    row = given if isinstance(given, list) else [given] * int(np.prod(shape))
    limit: Any = float(infinite)
    if dtype.kind in "iu":
        limit = np.iinfo(dtype).min if infinite == "-inf" else np.iinfo(dtype).max
    values = np.array([limit if value == infinite else value for value in row], dtype)
    return values.reshape(shape), np.array([value != infinite for value in row]).reshape(shape)
