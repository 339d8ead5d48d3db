"""Gymnasium spaces as a network sees them: observations as numbers or pixels, actions as one of four kinds.

Axes: `_N` environments.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from loomrl.errors import ConfigError

Array = NDArray[Any]
Flatten = Callable[[Any], Array]
"""A batch of observations, as a vector environment gives them, → `[N, size]` numbers or `[N, …]` pixels."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a network gets of an observation."""

    kind: Literal["numbers", "pixels"]
    shape: tuple[int, ...]
    """Of one: `(size,)`, or `(height, width, channels)` of bytes."""


@dataclass(frozen=True, slots=True)
class Acts:
    """What a network decides: one of `sizes` choices each, bits, or real numbers within bounds."""

    kind: Literal["discrete", "multi_discrete", "multi_binary", "box"]
    sizes: tuple[int, ...] = ()
    """Choices per decision; of `multi_binary` as many ones as there are bits."""
    shape: tuple[int, ...] = ()
    """Of one action as the environment takes it."""
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


def seen(space: spaces.Space[Any]) -> Seen:
    """How observations of this space reach a network."""
    if isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8:
        return Seen("pixels", space.shape)
    return Seen("numbers", (_size(space, "the observation space"),))


def flatten(space: spaces.Space[Any]) -> Flatten:
    """The function that turns batches of observations of this space into what the network gets."""
    if seen(space).kind == "pixels":
        return np.asarray
    return _numbers(space)


def acts(space: spaces.Space[Any]) -> Acts:
    """What kind of decision this action space asks for; a ConfigError where none of ours."""
    match space:
        case spaces.Discrete():
            return Acts("discrete", (int(space.n),), (), (int(space.start),))
        case spaces.MultiDiscrete():
            starts = np.asarray(space.start).ravel().tolist()
            return Acts("multi_discrete", tuple(space.nvec.ravel().tolist()), space.shape, tuple(starts))
        case spaces.MultiBinary():
            return Acts("multi_binary", (1,) * int(np.prod(space.shape)), space.shape)
        case spaces.Box() if np.issubdtype(space.dtype, np.floating):
            low, high = space.low.ravel().astype(float).tolist(), space.high.ravel().astype(float).tolist()
            return Acts("box", (), space.shape, (), tuple(low), tuple(high))
    raise ConfigError(
        f"the action space {space} is not supported. Known: Discrete, MultiDiscrete, MultiBinary, Box of floats. "
        "Wrap the environment (gymnasium.wrappers.TransformAction)."
    )


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
