"""NumPy arrays in few bytes, exactly: integers narrowed or as runs, booleans as bits, floats as they are.

Layout: form, dtype, number of axes (a byte each), the axes (u32 each), then the data, little-endian.
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

RAW, NARROW, RUNS, BITS = range(4)
DTYPES = tuple(
    np.dtype(code) for code in ("?", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8")
)
CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
NARROWER = tuple(np.dtype(code) for code in ("<u1", "<i1", "<u2", "<i2", "<u4", "<i4"))
MAX_AXES = 8
EXPANSION = 1 << 26
"""Bytes that the runs of one payload may unfold to; so a small hostile payload cannot fill the memory."""

_LENGTH = np.dtype("<u4")


@dataclass(slots=True)
class Allowance:
    """What is left of a payload's expansion while it is written or read."""

    left: int = EXPANSION

    def take(self, size: int) -> bool:
        """Whether `size` more bytes fit; if so they are taken."""
        fits = size <= self.left
        self.left -= size if fits else 0
        return fits


def pack(array: Array, allowance: Allowance) -> bytes:
    """The bytes of an array; ValueError for one that is neither bool, integer nor float."""
    dtype = array.dtype.newbyteorder("<") if array.dtype.kind in "biuf" else array.dtype
    if dtype not in CODES or array.ndim > MAX_AXES:
        raise ValueError(f"an array of {array.dtype} with {array.ndim} axes: only bool, integer and float ones fit.")
    flat = np.ascontiguousarray(array, dtype).reshape(-1)
    form, data = _shrink(flat, allowance)
    head = struct.pack(f"<BBB{array.ndim}I", form, CODES[dtype], array.ndim, *array.shape)
    return head + data


def unpack(data: memoryview, allowance: Allowance) -> Array:
    """The array of `pack`, writable and of its own memory; ValueError for anything else."""
    if len(data) < 3 or data[0] > BITS or data[1] >= len(DTYPES) or data[2] > MAX_AXES:
        raise ValueError("an array's header is damaged")
    form, dtype, axes = data[0], DTYPES[data[1]], data[2]
    if len(data) < 3 + 4 * axes:
        raise ValueError("an array's shape is cut off")
    shape = struct.unpack_from(f"<{axes}I", data, 3)
    size = 1
    for axis in shape:
        size *= axis
    body = data[3 + 4 * axes :]
    if form == RUNS:
        flat = _unfold_runs(body, dtype, size, allowance)
    elif form == BITS:
        flat = _unfold_bits(body, dtype, size)
    else:
        flat = _widen(body, dtype, size, narrowed=form == NARROW)
    return flat.reshape(shape)


def _shrink(flat: Array, allowance: Allowance) -> tuple[int, bytes]:
    if flat.dtype.kind == "f" or not flat.size:
        return RAW, flat.tobytes()
    form, data = _bits(flat) if flat.dtype.kind == "b" else _narrow(flat)
    ends = _run_ends(flat, most=len(data) // (_LENGTH.itemsize + 1))
    if ends is None:
        return form, data
    runs = _runs(flat, ends)
    if len(runs) < len(data) and allowance.take(flat.nbytes):
        return RUNS, runs
    return form, data


def _bits(flat: Array) -> tuple[int, bytes]:
    return BITS, np.packbits(flat, bitorder="little").tobytes()


def _narrow(flat: Array) -> tuple[int, bytes]:
    low, high = int(flat.min()), int(flat.max())
    for narrow in NARROWER:
        limits = np.iinfo(narrow)
        if narrow.itemsize < flat.dtype.itemsize and limits.min <= low and high <= limits.max:
            return NARROW, bytes([CODES[narrow]]) + flat.astype(narrow).tobytes()
    return RAW, flat.tobytes()


def _run_ends(flat: Array, *, most: int) -> Array | None:
    """Where each run of equal values ends; None where there are too many to be worth it."""
    changes = flat[1:] != flat[:-1]
    if int(np.count_nonzero(changes)) + 1 > most:
        return None
    return np.append(np.flatnonzero(changes) + 1, flat.size)


def _runs(flat: Array, ends: Array) -> bytes:
    """The runs' lengths, then their values."""
    lengths = np.diff(ends, prepend=0).astype(_LENGTH)
    values = flat[ends - 1]
    return b"".join((struct.pack("<I", len(ends)), lengths.tobytes(), values.tobytes()))


def _unfold_runs(body: memoryview, dtype: np.dtype[Any], size: int, allowance: Allowance) -> Array:
    count = struct.unpack_from("<I", body)[0] if len(body) >= 4 else 0
    if len(body) != 4 + count * (_LENGTH.itemsize + dtype.itemsize) or dtype.kind not in "biu":
        raise ValueError("an array's runs are cut off")
    lengths = np.frombuffer(body, _LENGTH, count, 4)
    if int(lengths.sum(dtype=np.uint64)) != size or not allowance.take(size * dtype.itemsize):
        raise ValueError("an array's runs do not add up to its shape")
    values = np.frombuffer(body, np.uint8, count * dtype.itemsize, 4 + lengths.nbytes)
    return np.repeat(_of_bytes(values, dtype), lengths)


def _unfold_bits(body: memoryview, dtype: np.dtype[Any], size: int) -> Array:
    if dtype.kind != "b" or len(body) != (size + 7) // 8:
        raise ValueError("an array's bits do not fit its shape")
    return np.unpackbits(np.frombuffer(body, np.uint8), count=size, bitorder="little").view(np.bool_)


def _widen(body: memoryview, dtype: np.dtype[Any], size: int, *, narrowed: bool) -> Array:
    stored = dtype
    if narrowed:
        if not body or body[0] >= len(DTYPES) or DTYPES[body[0]] not in NARROWER or dtype.kind not in "iu":
            raise ValueError("an array's narrow type is damaged")
        stored, body = DTYPES[body[0]], body[1:]
    if len(body) != size * stored.itemsize:
        raise ValueError("an array's data does not fit its shape")
    return _of_bytes(np.frombuffer(body, np.uint8), stored).astype(dtype)


def _of_bytes(raw: NDArray[np.uint8], dtype: np.dtype[Any]) -> Array:
    """A view of bytes as values; a byte of a bool that is neither 0 nor 1 is refused, as NumPy would misbehave."""
    if dtype.kind == "b" and raw.size and int(raw.max()) > 1:
        raise ValueError("an array of bools holds other bytes")
    return raw.view(dtype) if raw.size else np.empty(0, dtype)
