"""A tensor as bytes: its lossless difference from another one, or all of it.

A small step leaves most numbers of a short type unchanged and moves the others to a neighbour. A delta is the positions
of those moves, as gaps, and their distances in the order of all numbers of the type: mostly one, up or down.
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
"""Level of zstd; higher ones take longer and gain little here: see docs/benchmarks.md."""
FAR = 255
"""A gap that does not fit in a byte."""
HEADER_BYTES = 16

Places = NDArray[np.unsignedinteger[Any]]
"""Numbers as unsigned integers in the same order, with -0 right below 0."""


class Kind(StrEnum):
    """The encoding of a tensor's bytes."""

    SAME = "same"
    DELTA = "delta"
    WHOLE = "whole"


def encode(tensor: Tensor, base: Tensor | None) -> tuple[Kind, bytes]:
    """The fewest bytes from which `decode` restores the tensor, given the base. Without a base, all of it."""
    new = _bits(tensor)
    if base is None or base.dtype != tensor.dtype or base.shape != tensor.shape:
        return Kind.WHOLE, compressed(_planes(new))
    old = _bits(base)
    at = np.flatnonzero(new != old)
    if not len(at):
        return Kind.SAME, b""
    delta = _moves(at, _folded(_ordered(new[at]) - _ordered(old[at])))
    if len(delta) < new.nbytes // 2:
        return Kind.DELTA, delta
    whole = compressed(_planes(new))
    return (Kind.DELTA, delta) if len(delta) < len(whole) else (Kind.WHOLE, whole)


def decode(kind: Kind, data: bytes, like: Tensor, base: Tensor | None) -> Tensor:
    """The tensor of these bytes, with the type and shape of `like`, which may be on "meta"."""
    if kind is not Kind.WHOLE and (base is None or base.dtype != like.dtype or base.shape != like.shape):
        raise PolicyError(f"a tensor of {like.dtype}, {tuple(like.shape)} came as {kind}, but its base is missing.")
    if kind is Kind.SAME:
        assert base is not None
        return base
    unsigned = np.dtype(f"u{like.element_size()}")
    if kind is Kind.WHOLE:
        raw = decompressed(data, like.nbytes)
        if len(raw) != like.nbytes:
            raise PolicyError(f"a tensor of {like.nbytes} bytes came as {len(raw)}.")
        bits = _unplaned(raw, unsigned)
    else:
        assert base is not None
        bits = _bits(base).copy()
        _move(bits, data)
    return torch.from_numpy(bits.view(np.uint8)).view(like.dtype).reshape(like.shape)


def _moves(at: NDArray[np.intp], folded: Places) -> bytes:
    """Short gaps, long gaps and distances, compressed together after their counts."""
    gaps = np.diff(at, prepend=-1) - 1
    far = gaps[gaps >= FAR].astype("<u8")
    near = np.minimum(gaps, FAR).astype(np.uint8)
    counts = np.array([len(at), len(far)], "<u8")
    return compressed(b"".join([counts.tobytes(), near.tobytes(), far.tobytes(), _planes(folded)]))


def _move(bits: Places, data: bytes) -> None:
    """Apply the moves encoded by `_moves`."""
    size = bits.dtype.itemsize
    raw = decompressed(data, HEADER_BYTES + len(bits) * (1 + 8 + size))
    count, far = map(int, np.frombuffer(raw[:HEADER_BYTES], "<u8"))
    if len(raw) != HEADER_BYTES + count * (1 + size) + 8 * far:
        raise PolicyError(f"a delta of {len(raw)} bytes announces {count} moves, {far} of them far.")
    gaps = np.frombuffer(raw, np.uint8, count, HEADER_BYTES).astype(np.int64)
    gaps[gaps == FAR] = np.frombuffer(raw, "<u8", far, HEADER_BYTES + count)
    at = np.cumsum(gaps + 1) - 1
    if count and at[-1] >= len(bits):
        raise PolicyError(f"a delta moves number {at[-1]} of {len(bits)}.")
    folded = _unplaned(raw[HEADER_BYTES + count + 8 * far :], bits.dtype)
    bits[at] = _unordered(_ordered(bits[at]) + _unfolded(folded))


def _bits(tensor: Tensor) -> Places:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().view(np.dtype(f"u{tensor.element_size()}"))


def _ordered(bits: Places) -> Places:
    """From sign and magnitude to one order: negative numbers are reversed."""
    top = _top(bits.dtype)
    return np.where(bits & top, ~bits, bits | top).astype(bits.dtype, copy=False)


def _unordered(places: Places) -> Places:
    top = _top(places.dtype)
    return np.where(places & top, places & ~top, ~places).astype(places.dtype, copy=False)


def _folded(distance: Places) -> Places:
    """0, -1, 1, -2, … as 0, 1, 2, 3, …: small numbers for short distances in either direction."""
    zero = distance.dtype.type(0)
    one = distance.dtype.type(1)
    folded: Places = (distance << one) ^ np.where(distance & _top(distance.dtype), ~zero, zero)
    return folded


def _unfolded(folded: Places) -> Places:
    zero = folded.dtype.type(0)
    one = folded.dtype.type(1)
    distance: Places = (folded >> one) ^ np.where(folded & one, ~zero, zero)
    return distance


def _top(dtype: np.dtype[Any]) -> Any:
    return dtype.type(1 << (8 * dtype.itemsize - 1))


def _planes(numbers: Places) -> bytes:
    """All first bytes, then all second ones, …: bytes of equal significance are alike and compress better."""
    return numbers.view(np.uint8).reshape(-1, numbers.dtype.itemsize).T.tobytes()


def _unplaned(raw: bytes, dtype: np.dtype[Any]) -> Places:
    planes = np.frombuffer(raw, np.uint8).reshape(dtype.itemsize, -1)
    return np.array(planes.T, order="C").reshape(-1).view(dtype)


def compressed(raw: bytes) -> bytes:
    """The compressed bytes."""
    return zstandard.ZstdCompressor(level=LEVEL).compress(raw)


def decompressed(data: bytes, most: int) -> bytes:
    """The decompressed bytes, if they are no more than `most`."""
    try:
        announced = zstandard.frame_content_size(data)
        if announced > most:
            raise PolicyError(f"{len(data)} compressed bytes announce {announced}, and may be {most}.")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=most)
    except zstandard.ZstdError as error:
        raise PolicyError(f"{len(data)} bytes cannot be decompressed: {error}") from None
