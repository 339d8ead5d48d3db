"""Gymnasium spaces as a network sees them: observations as numbers or pixels, actions as one of four kinds.

Axes: `_N` environments.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from loomrl.errors import ConfigError, unknown

ACTION_MASK = "action_mask"
"""The part of a Dict observation that says which choices are allowed, by the name that PettingZoo and RLlib give it."""

Array = NDArray[Any]
Flatten = Callable[[Any], Array]
"""Function from a vector environment's observations to `[N, size]` numbers or `[N, …]` pixels."""


@dataclass(frozen=True, slots=True)
class ObservationView:
    """The form of an observation as a network's input."""

    kind: Literal["numbers", "pixels"]
    shape: tuple[int, ...]
    """Shape of one observation: `(size,)`, or `(height, width, channels)` of bytes."""
    mask: tuple[int, int] | None = None
    """Where the numbers of an action mask begin and end, if there is one (`loomrl.control.mask`)."""


@dataclass(frozen=True, slots=True)
class ActionView:
    """The form of a network's decision: choices of given sizes, bits, or real numbers within bounds."""

    kind: Literal["discrete", "multi_discrete", "multi_binary", "box"]
    sizes: tuple[int, ...] = ()
    """Choices per decision; for `multi_binary` a one per bit."""
    shape: tuple[int, ...] = ()
    """Shape of an action in the environment."""
    starts: tuple[int, ...] = ()
    """The first choice of each decision."""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def count(self) -> int:
        """Numbers in one action."""
        return len(self.low) if self.kind == "box" else len(self.sizes)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def seen(space: spaces.Space[Any]) -> ObservationView:
    """The form in which observations of this space reach a network."""
    if isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8:
        return ObservationView("pixels", space.shape)
    return ObservationView("numbers", (_size(space, "the observation space"),), _mask_in(space))


def flatten(space: spaces.Space[Any]) -> Flatten:
    """The function from batches of observations to the network's input."""
    if seen(space).kind == "pixels":
        return np.asarray
    return _numbers(space)


def acts(space: spaces.Space[Any]) -> ActionView:
    """The form of decisions in this action space; a ConfigError if it is not supported."""
    match space:
        case spaces.Discrete():
            return ActionView("discrete", (int(space.n),), (), (int(space.start),))
        case spaces.MultiDiscrete():
            starts = np.asarray(space.start).ravel().tolist()
            return ActionView("multi_discrete", tuple(space.nvec.ravel().tolist()), space.shape, tuple(starts))
        case spaces.MultiBinary():
            return ActionView("multi_binary", (1,) * int(np.prod(space.shape)), space.shape)
        case spaces.Box() if np.issubdtype(space.dtype, np.floating):
            low, high = space.low.ravel().astype(float).tolist(), space.high.ravel().astype(float).tolist()
            return ActionView("box", (), space.shape, (), tuple(low), tuple(high))
    raise ConfigError(
        f"the action space {space} is not supported. Known: Discrete, MultiDiscrete, MultiBinary, Box of floats. "
        "Wrap the environment (gymnasium.wrappers.TransformAction)."
    )


def as_batch(space: spaces.Space[Any], given: Any, *, one: bool, place: str = "the observation") -> Any:
    """Observations as a vector environment's arrays; with `one`, from a single environment.

    A ConfigError names the part outside the space. Real numbers may exceed their bounds, as in training.
    """
    match space:
        case spaces.Dict():
            if not isinstance(given, Mapping) or given.keys() != space.spaces.keys():
                found = f"has {', '.join(map(str, given))}" if isinstance(given, Mapping) else f"is {given!r:.80}"
                raise ConfigError(f"{place} {found}; a dictionary of {', '.join(map(str, space.spaces))} is needed.")
            return {
                name: as_batch(part, given[name], one=one, place=f"{place}[{name!r}]")
                for name, part in space.spaces.items()
            }
        case spaces.Tuple():
            if not isinstance(given, tuple | list) or len(given) != len(space.spaces):
                raise ConfigError(f"{place} is {given!r:.80}; a tuple of {len(space.spaces)} is needed.")
            parts = zip(space.spaces, given, strict=True)
            return tuple(as_batch(part, x, one=one, place=f"{place}[{i}]") for i, (part, x) in enumerate(parts))
    try:
        values = np.asarray(given)
    except ValueError:
        raise ConfigError(f"{place} is {given!r:.80}, whose rows differ in length; {space} is needed.") from None
    values_N = values[None] if one else values
    fault = _fault(space, values_N)
    if fault is None:
        return values_N
    shape = space.shape or ()
    needed = ", ".join(map(str, shape if one else ("N", *shape)))
    raise ConfigError(f"{place} of shape {values.shape} {fault}; {space}, of shape ({needed}), is needed.")


def _fault(space: spaces.Space[Any], values_N: Array) -> str | None:
    if values_N.dtype.kind not in "biuf":
        return f"is {values_N.dtype}, not numbers"
    if values_N.shape[:1] + (space.shape or ()) != values_N.shape or not values_N.ndim:
        return "has another shape"
    if values_N.dtype.kind == "f" and space.dtype is not None and space.dtype.kind != "f":
        return f"is {values_N.dtype}, not whole numbers"
    if values_N.dtype.kind == "f" and not np.isfinite(values_N).all():
        return "has NaN or infinity in it"
    low, choices = _choices_from(space)
    if choices is not None and not ((values_N >= low) & (values_N < low + choices)).all():
        return "has a choice that does not exist"
    return None


def _choices_from(space: spaces.Space[Any]) -> tuple[Any, Any]:
    """The first choice, and their number; None if unlimited."""
    match space:
        case spaces.Discrete():
            return int(space.start), int(space.n)
        case spaces.MultiDiscrete():
            return space.start.astype(np.int64), space.nvec.astype(np.int64)
        case spaces.MultiBinary():
            return 0, 2
    return 0, None


def translator(kind: ActionView, *, squashed: bool = False) -> Callable[[Array], Array]:
    """From a policy's sampled actions to the environment's.

    Those of a `squashed` policy are scaled from -1 … 1 to the bounds, others are clipped.
    """
    shape = (-1, *kind.shape)
    starts = np.array(kind.starts)
    if kind.kind == "discrete":
        return (lambda actions_N: actions_N + starts[0]) if starts[0] else (lambda actions_N: actions_N)
    if kind.kind == "multi_discrete":
        return lambda actions_ND: (actions_ND + starts).reshape(shape)
    if kind.kind == "box":
        low, high = np.array(kind.low, np.float32), np.array(kind.high, np.float32)
        if squashed:
            middle = (high + low) / 2
            reach = (high - low) / 2
            return lambda actions_ND: (middle + reach * actions_ND).reshape(shape)
        return lambda actions_ND: np.minimum(np.maximum(actions_ND, low), high).reshape(shape)
    return lambda actions_ND: actions_ND.reshape(shape)


def draw(kind: ActionView, count: int, chance: np.random.Generator) -> Array:
    """Uniformly random actions; real ones within bounds, or standard normal if unbounded."""
    if kind.kind == "discrete":
        return chance.integers(kind.sizes[0], size=count)
    if kind.kind == "multi_discrete":
        return chance.integers(kind.sizes, size=(count, kind.count))
    if kind.kind == "multi_binary":
        return chance.integers(2, size=(count, kind.count))
    low, high = np.array(kind.low), np.array(kind.high)
    bounded = np.isfinite(low) & np.isfinite(high)
    even = chance.uniform(np.where(bounded, low, 0), np.where(bounded, high, 1), size=(count, kind.count))
    return np.where(bounded, even, chance.standard_normal((count, kind.count))).astype(np.float32)


def _mask_in(space: spaces.Space[Any]) -> tuple[int, int] | None:
    found = list(_masks(space))
    if len(found) > 1:
        raise ConfigError(f"the observation space {space} has {len(found)} parts named {ACTION_MASK!r}: keep one.")
    return found[0] if found else None


def _masks(space: spaces.Space[Any], begin: int = 0) -> Iterator[tuple[int, int]]:
    """Places of action masks in flattened observations, in Dicts of any depth: a preference may stand around them."""
    for name, part in space.spaces.items() if isinstance(space, spaces.Dict) else ():
        end = begin + _size(part, f"the observation space[{name!r}]")
        if name != ACTION_MASK:
            yield from _masks(part, begin)
        elif _is_bits(part):
            yield begin, end
        else:
            raise ConfigError(
                f"the {ACTION_MASK} of the observation space is {part}: a 0 or 1 for every choice is needed, as "
                "MultiBinary or Box(0, 1)."
            )
        begin = end


def _is_bits(space: spaces.Space[Any]) -> bool:
    match space:
        case spaces.Box():
            return bool((space.low >= 0).all() and (space.high <= 1).all())
        case spaces.Tuple():
            return all(map(_is_bits, space.spaces))
    return isinstance(space, spaces.MultiBinary)


def _size(space: spaces.Space[Any], what: str) -> int:
    match space:
        case spaces.Box():
            return int(np.prod(space.shape))
        case spaces.Discrete():
            return int(space.n)
        case spaces.MultiDiscrete():
            return int(space.nvec.sum())
        case spaces.MultiBinary():
            return int(np.prod(space.shape))
        case spaces.Dict():
            return sum(_size(part, f"{what}[{name!r}]") for name, part in space.spaces.items())
        case spaces.Tuple():
            return sum(_size(part, f"{what}[{index}]") for index, part in enumerate(space.spaces))
    raise ConfigError(
        f"{what} is {space}, which is not supported. Known: Box, Discrete, MultiDiscrete, MultiBinary, and Dict or "
        "Tuple of them. Wrap the environment (gymnasium.wrappers.TransformObservation)."
    )


def _numbers(space: spaces.Space[Any]) -> Flatten:
    match space:
        case spaces.Box():
            return lambda batch_N: np.asarray(batch_N, np.float32).reshape(len(batch_N), -1)
        case spaces.Discrete():
            eye = np.eye(int(space.n), dtype=np.float32)
            return lambda batch_N: eye[np.asarray(batch_N) - space.start]
        case spaces.MultiDiscrete():
            return _choices(space)
        case spaces.MultiBinary():
            return lambda batch_N: np.asarray(batch_N, np.float32).reshape(len(batch_N), -1)
        case spaces.Dict():
            named = {name: _numbers(part) for name, part in space.spaces.items()}
            return lambda batch: np.concatenate([flat(batch[name]) for name, flat in named.items()], axis=1)
        case spaces.Tuple():
            parts = [_numbers(part) for part in space.spaces]
            return lambda batch: np.concatenate([flat(part) for flat, part in zip(parts, batch, strict=True)], axis=1)
    raise AssertionError(space)


def _choices(space: spaces.MultiDiscrete) -> Flatten:
    sizes = space.nvec.ravel()
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    starts = np.asarray(space.start).ravel()

    def flat(batch_N: Any) -> Array:
        places = np.asarray(batch_N).reshape(len(batch_N), -1) - starts + offsets
        one_hot = np.zeros((len(places), int(sizes.sum())), np.float32)
        np.put_along_axis(one_hot, places, 1.0, axis=1)
        return one_hot

    return flat


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
