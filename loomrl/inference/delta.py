"""A tensor as bytes: what has changed since another one, or all of it. Nothing is ever lost.

A small step moves a weight to a neighbouring number, so what changed is a small integer and mostly 0: the distance
between the two numbers' places in the order of all numbers of their type. Bytes of equal weight stand together before
they are compressed.
"""

from enum import StrEnum
from typing import Any

import numpy as np
import torch
import zstandard
from numpy.typing import NDArray
from torch import Tensor

from loomrl.errors import PolicyError

LEVEL = 3
"""Of zstd; the higher ones take longer and gain little here: see docs/benchmarks.md."""
LEAD_BYTES = 64
"""What a delta must save on a whole tensor to be worth its base."""

Places = NDArray[np.unsignedinteger[Any]]
"""Numbers as unsigned integers in the same order, with -0 right below 0."""


class Kind(StrEnum):
    """What the bytes of a tensor are."""

    SAME = "same"
    DELTA = "delta"
    WHOLE = "whole"


def encode(tensor: Tensor, base: Tensor | None) -> tuple[Kind, bytes]:
    """The fewest bytes from which `decode` makes the tensor, given the base. Where there is none, all of it."""
    new = _bits(tensor)
    if base is None or base.dtype != tensor.dtype or base.shape != tensor.shape:
        return Kind.WHOLE, _packed(new)
    old = _bits(base)
    if np.array_equal(new, old):
        return Kind.SAME, b""
    delta = _packed(_folded(_ordered(new) - _ordered(old)))
    if len(delta) + LEAD_BYTES < new.nbytes // 2:
        return Kind.DELTA, delta
    whole = _packed(new)
    return (Kind.DELTA, delta) if len(delta) + LEAD_BYTES < len(whole) else (Kind.WHOLE, whole)


def decode(kind: Kind, data: bytes, like: Tensor, base: Tensor | None) -> Tensor:
    """The tensor of these bytes, of the type and shape of `like`, which may have no memory of its own."""
    if kind is not Kind.WHOLE and (base is None or base.dtype != like.dtype or base.shape != like.shape):
        raise PolicyError(f"a tensor of {like.dtype}, {tuple(like.shape)} came as {kind}, and there is no such base.")
    if kind is Kind.SAME:
        assert base is not None
        return base
    unsigned = np.dtype(f"u{like.element_size()}")
    bits = _unpacked(data, like.numel(), unsigned)
    if kind is Kind.DELTA:
        assert base is not None
        bits = _unordered(_ordered(_bits(base)) + _unfolded(bits))
    return torch.from_numpy(bits.view(np.uint8)).view(like.dtype).reshape(like.shape)


def _bits(tensor: Tensor) -> Places:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().view(np.dtype(f"u{tensor.element_size()}"))


def _ordered(bits: Places) -> Places:
    """From sign and magnitude to one order: negative numbers are turned around."""
    top = _top(bits.dtype)
    return np.where(bits & top, ~bits, bits | top).astype(bits.dtype, copy=False)


def _unordered(places: Places) -> Places:
    top = _top(places.dtype)
    return np.where(places & top, places & ~top, ~places).astype(places.dtype, copy=False)


def _folded(distance: Places) -> Places:
    """0, -1, 1, -2, … as 0, 1, 2, 3, …: few bits for what is near, on either side."""
    one = distance.dtype.type(1)
    return (distance << one) ^ np.where(distance & _top(distance.dtype), ~distance.dtype.type(0), distance.dtype.type(0))


def _unfolded(folded: Places) -> Places:
    one = folded.dtype.type(1)
    return (folded >> one) ^ np.where(folded & one, ~folded.dtype.type(0), folded.dtype.type(0))


def _top(dtype: np.dtype[Any]) -> Any:
    return dtype.type(1 << (8 * dtype.itemsize - 1))


def _packed(numbers: Places) -> bytes:
    """All first bytes, then all second ones, …, compressed."""
    planes = numbers.view(np.uint8).reshape(-1, numbers.dtype.itemsize).T
    return zstandard.ZstdCompressor(level=LEVEL).compress(np.ascontiguousarray(planes).data)


def _unpacked(data: bytes, count: int, dtype: np.dtype[Any]) -> Places:
    size = count * dtype.itemsize
    try:
        raw = zstandard.ZstdDecompressor().decompress(data, max_output_size=size) if size else b""
    except zstandard.ZstdError as error:
        raise PolicyError(f"a tensor's {len(data)} bytes cannot be decompressed: {error}") from None
    if len(raw) != size:
        raise PolicyError(f"a tensor has {len(raw)} bytes where {size} were announced.")
    planes = np.frombuffer(raw, np.uint8).reshape(dtype.itemsize, count)
    return np.array(planes.T, order="C").reshape(-1).view(dtype)
