"""Gymnasium's spaces as text: showing observations, describing and parsing actions.

Actions are strict JSON: a number for Discrete, a list for Box, MultiDiscrete and MultiBinary, an object for Dict. Named
actions may be given by name. A Text space takes the text itself.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
from gymnasium import spaces

from loomrl.errors import ConfigError

LONGEST = 4000
"""Characters of an action; longer ones are refused."""
_HIGHLIGHTED = re.compile(r"\x1b\[4\d(?:;\d+)*m(.*?)\x1b\[0m", re.DOTALL)
_ESCAPE = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_SMALL = 6
"""Decimals kept of an observed number."""


class MalformedAction(Exception):
    """A text that is not an action of the space; the message is for the policy."""


def plain(rendered: str) -> str:
    """Terminal output without escape codes; highlighted cells are put in brackets."""
    return _ESCAPE.sub("", _HIGHLIGHTED.sub(r"[\1]", rendered)).strip("\n")


def count_numbers(space: spaces.Space[Any]) -> int:
    """The count of numbers in an observation of this space; a ConfigError if it cannot be shown as text."""
    if isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete):
        return math.prod(space.shape or (1,))
    if isinstance(space, spaces.Discrete | spaces.Text):
        return 1
    if isinstance(space, spaces.Dict):
        return sum(map(count_numbers, space.spaces.values()))
    if isinstance(space, spaces.Tuple):
        return sum(map(count_numbers, space.spaces))
    raise ConfigError(f"{type(space).__name__} has no text. Known: {', '.join(kind.__name__ for kind in _KNOWN)}.")


_KNOWN = (
    spaces.Box,
    spaces.Dict,
    spaces.Discrete,
    spaces.MultiBinary,
    spaces.MultiDiscrete,
    spaces.Text,
    spaces.Tuple,
)


def show(space: spaces.Space[Any], value: Any) -> str:
    """An observation as text: rounded numbers, one line per key of a Dict."""
    if isinstance(space, spaces.Dict):
        return "\n".join(f"{name}: {show(inner, value[name])}" for name, inner in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return f"({', '.join(show(inner, part) for inner, part in zip(space.spaces, value, strict=True))})"
    if isinstance(space, spaces.Text):
        return str(value)
    return _numbers(np.asarray(value).tolist())


def _numbers(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_numbers, value))}]"
    if isinstance(value, float):
        return f"{round(value, _SMALL):g}" if abs(value) < 1e6 else f"{value:.6g}"
    return str(value)


def usage(space: spaces.Space[Any], names: Sequence[str] = ()) -> str:
    """Usage text for an action of this space."""
    if isinstance(space, spaces.Discrete):
        if names:
            return " or ".join(names)
        return f"a whole number from {int(space.start)} to {int(space.start) + int(space.n) - 1}"
    if isinstance(space, spaces.MultiDiscrete):
        limits = ", ".join(f"{low:g}..{high:g}" for low, high in _pairs(*_limits(space)))
        return f"a list of {space.nvec.size} whole numbers ({limits}), such as {format_action(space, _lowest(space))}"
    if isinstance(space, spaces.MultiBinary):
        return f"a list of {math.prod(space.shape)} numbers, each 0 or 1"
    if isinstance(space, spaces.Box):
        limits = ", ".join(f"{low:g}..{high:g}" for low, high in _pairs(*_limits(space)))
        return f"a list of {math.prod(space.shape)} numbers ({limits}), such as {format_action(space, _lowest(space))}"
    if isinstance(space, spaces.Dict):
        inner = "; ".join(f"{json.dumps(name)}: {usage(part)}" for name, part in space.spaces.items())
        return f"a JSON object with {inner}"
    if isinstance(space, spaces.Tuple):
        return f"a JSON list of: {'; '.join(map(usage, space.spaces))}"
    if isinstance(space, spaces.Text):
        return f"a text of {space.min_length} to {space.max_length} characters"
    raise ConfigError(f"{type(space).__name__} takes no actions from text.")


def parse(space: spaces.Space[Any], text: str, names: Sequence[str] = ()) -> Any:
    """The action that a text encodes, as an element of the space; Malformed states the error."""
    if len(text) > LONGEST:
        raise MalformedAction(f"an action has at most {LONGEST} characters")
    if isinstance(space, spaces.Discrete) and text.lower() in names:
        return np.int64(int(space.start) + list(names).index(text.lower()))
    if isinstance(space, spaces.Text):
        if not space.contains(text):
            raise MalformedAction(f"this is not {usage(space)}")
        return text
    try:
        # Strict JSON: NaN and Infinity are no actions, though Python reads them.
        raw = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise MalformedAction(f"it is not {usage(space, names)}") from None
    return _element(space, raw, names)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _element(space: spaces.Space[Any], raw: Any, names: Sequence[str] = ()) -> Any:
    if isinstance(space, spaces.Discrete):
        if type(raw) is not int or not 0 <= raw - int(space.start) < int(space.n):
            raise MalformedAction(f"it is not {usage(space, names)}")
        return np.int64(raw)
    if isinstance(space, spaces.Dict):
        if not isinstance(raw, dict) or raw.keys() != space.spaces.keys():
            raise MalformedAction(f"it is not {usage(space)}")
        return {name: _element(inner, raw[name]) for name, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        if not isinstance(raw, list) or len(raw) != len(space.spaces):
            raise MalformedAction(f"it is not {usage(space)}")
        return tuple(_element(inner, part) for inner, part in zip(space.spaces, raw, strict=True))
    if isinstance(space, spaces.Text):
        if not isinstance(raw, str) or not space.contains(raw):
            raise MalformedAction(f"it is not {usage(space)}")
        return raw
    return _array(space, raw)


def _array(space: spaces.Space[Any], raw: Any) -> Any:
    """A flat list of the right length, every number in range; a Box of one number also accepts a bare number."""
    assert isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete)
    shape = space.shape or ()
    numbers = raw if isinstance(raw, list) else [raw]
    whole = not isinstance(space, spaces.Box) or np.issubdtype(space.dtype, np.integer)
    kinds = (int,) if whole else (int, float)
    if len(numbers) != math.prod(shape) or any(type(number) not in kinds for number in numbers):
        raise MalformedAction(f"it is not {usage(space)}")
    low, high = _limits(space)
    for number, least, most in zip(numbers, low, high, strict=True):
        if number in _INFINITE or not least <= number <= most:
            raise MalformedAction(f"{str(number)[:40]} is outside {least:g}..{most:g}")
    try:
        return np.asarray(numbers, dtype=space.dtype).reshape(shape)
    except OverflowError:
        raise MalformedAction(f"it is not {usage(space)}") from None


_INFINITE = (math.inf, -math.inf)


def _limits(space: spaces.Space[Any]) -> tuple[list[float], list[float]]:
    if isinstance(space, spaces.Box):
        return space.low.ravel().tolist(), space.high.ravel().tolist()
    if isinstance(space, spaces.MultiDiscrete):
        low = np.ravel(space.start).tolist()
        return low, [first + n - 1 for first, n in zip(low, np.ravel(space.nvec).tolist(), strict=True)]
    size = math.prod(space.shape or ())
    return [0] * size, [1] * size


def _pairs(first: Any, second: Any) -> Sequence[tuple[Any, Any]]:
    """Pairs of limits; a single pair if all are equal."""
    pairs = list(zip(np.ravel(first).tolist(), np.ravel(second).tolist(), strict=True))
    return pairs[:1] if len(set(pairs)) == 1 else pairs


def _lowest(space: spaces.Space[Any]) -> Any:
    """An example action: zeros, clipped to the limits."""
    low, high = _limits(space)
    return np.clip(np.zeros(len(low)), low, high).astype(space.dtype)


def format_action(space: spaces.Space[Any], value: Any, names: Sequence[str] = ()) -> str:
    """This action as text that `parse` reads."""
    if isinstance(space, spaces.Text):
        return str(value)
    if names and isinstance(space, spaces.Discrete):
        return names[int(value - space.start)]
    return json.dumps(_jsonable(value))


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _jsonable(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [_jsonable(part) for part in value]
    if isinstance(value, np.ndarray):
        return value.ravel().tolist()
    return value.item() if isinstance(value, np.generic) else value


def sample(space: spaces.Space[Any], rng: Random, mask: Any = None) -> Any:
    """A random element that depends on `rng` alone; `mask` marks the legal values of a Discrete space."""
    space.seed(rng.getrandbits(31))
    return space.sample(mask) if mask is not None else space.sample()
