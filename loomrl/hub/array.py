"""NumPy arrays in few bytes, exactly: integers as runs or as few bytes as they need, booleans as bits, floats as is.

Layout: form, dtype, number of axes (a byte each), the axes (u32 each), then the data, little-endian.
"""

import struct
from collections.abc import Callable
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
MAX_AXES = 8
EXPANSION = 1 << 26
"""Bytes that the runs of one payload may unfold to; so a small hostile payload cannot fill the memory."""

_BASE = struct.Struct("<B7xq")
"""Head of a narrow array: bytes per value, and the lowest value, from which the others are counted."""

_BYTE, _WORD, _LONG = (np.dtype[Any](code) for code in ("<u1", "<u2", "<u4"))
_PLANES: dict[int, tuple[np.dtype[Any], ...]] = {1: (_BYTE,), 2: (_WORD,), 3: (_WORD, _BYTE), 4: (_LONG,)}
"""Bytes per value → how they are laid out: three are two of each value, then one of each."""


@dataclass(slots=True)
class Allowance:
    """The bytes that a payload may still expand to while it is written or read."""

    left: int = EXPANSION

    def take(self, size: int) -> bool:
        """True if `size` more bytes fit; they are then taken."""
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
    form = data[0]
    dtype = DTYPES[data[1]]
    axes = data[2]
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
        flat = _widen(body, dtype, size) if form == NARROW else _plain(body, dtype, size)
    return flat.reshape(shape)


EXTENSION = 1
"""Code of an array among MessagePack's extensions."""


def unpack_hook() -> Callable[[int, memoryview], Array]:
    """The `ext_hook` of a decoder for one payload."""
    allowance = Allowance()

    def restore(code: int, data: memoryview) -> Array:
        if code != EXTENSION:
            raise ValueError(f"extension {code} is unknown")
        return unpack(data, allowance)

    return restore


def check_dtype(kind: Any, value: Any) -> Any:
    """The `dec_hook` of a decoder whose arrays have the dtypes that their fields declare, and no other."""
    dtype = kind.__args__[1].__args__[0]
    if not isinstance(value, np.ndarray) or value.dtype != dtype:
        raise ValueError(f"an array of {np.dtype(dtype)} is needed")
    return value


def _shrink(flat: Array, allowance: Allowance) -> tuple[int, bytes]:
    is_bool = flat.dtype.kind == "b"
    if flat.dtype.kind == "f" or not flat.size or (flat.nbytes <= _BASE.size and not is_bool):
        return RAW, flat.tobytes()
    form, data = _bits(flat) if is_bool else _narrow(flat)
    most = len(data) // (_LONG.itemsize + 1)
    ends = _run_ends(flat, most=most) if most else None
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
    width = max((high - low).bit_length() + 7, 8) // 8
    if width >= min(flat.dtype.itemsize, 5) or high > np.iinfo(np.int64).max:
        return RAW, flat.tobytes()
    above = flat - flat.dtype.type(low) if low else flat
    planes = [above.astype(plane).tobytes() for plane in _PLANES[width][:1]]
    planes += [(above >> 16).astype(plane).tobytes() for plane in _PLANES[width][1:]]
    return NARROW, b"".join((_BASE.pack(width, low), *planes))


def _run_ends(flat: Array, *, most: int) -> Array | None:
    """The end of each run of equal values; None if there are too many to be worth it."""
    changes = flat[1:] != flat[:-1]
    count = int(np.count_nonzero(changes)) + 1
    if count > most:
        return None
    ends = np.full(count, flat.size, _LONG)
    ends[:-1] = np.flatnonzero(changes) + 1
    return ends


def _runs(flat: Array, ends: Array) -> bytes:
    """The runs' lengths, then their values."""
    lengths = ends.copy()
    lengths[1:] -= ends[:-1]
    return b"".join((struct.pack("<I", len(ends)), lengths.tobytes(), flat[ends - 1].tobytes()))


def _unfold_runs(body: memoryview, dtype: np.dtype[Any], size: int, allowance: Allowance) -> Array:
    count = struct.unpack_from("<I", body)[0] if len(body) >= 4 else 0
    if len(body) != 4 + count * (_LONG.itemsize + dtype.itemsize) or dtype.kind not in "biu":
        raise ValueError("an array's runs are cut off")
    lengths = np.frombuffer(body, _LONG, count, 4)
    if int(lengths.sum(dtype=np.uint64)) != size or not allowance.take(size * dtype.itemsize):
        raise ValueError("an array's runs do not add up to its shape")
    values = np.frombuffer(body, np.uint8, count * dtype.itemsize, 4 + lengths.nbytes)
    return np.repeat(_of_bytes(values, dtype), lengths)


def _unfold_bits(body: memoryview, dtype: np.dtype[Any], size: int) -> Array:
    if dtype.kind != "b" or len(body) != (size + 7) // 8:
        raise ValueError("an array's bits do not fit its shape")
    return np.unpackbits(np.frombuffer(body, np.uint8), count=size, bitorder="little").view(np.bool_)


def _widen(body: memoryview, dtype: np.dtype[Any], size: int) -> Array:
    width, low = _BASE.unpack_from(body) if len(body) >= _BASE.size else (0, 0)
    if not 1 <= width <= 4 or len(body) != _BASE.size + size * width or dtype.kind not in "iu":
        raise ValueError("an array's narrow data does not fit its shape")
    lower, *upper = _PLANES[width]
    data = bytes(body[_BASE.size :])  # aligned, unlike the payload: several times faster to convert
    above = np.frombuffer(data, lower, size).astype(np.int64 if low else dtype)
    for plane in upper:
        above |= np.frombuffer(data, plane, size, size * lower.itemsize).astype(above.dtype) << 16
    widened: Array = (above + low).astype(dtype) if low else above
    return widened


def _plain(body: memoryview, dtype: np.dtype[Any], size: int) -> Array:
    if len(body) != size * dtype.itemsize:
        raise ValueError("an array's data does not fit its shape")
    return _of_bytes(np.frombuffer(body, np.uint8), dtype).copy()


def _of_bytes(raw: NDArray[np.uint8], dtype: np.dtype[Any]) -> Array:
    """A view of bytes as values; a byte of a bool that is neither 0 nor 1 is refused, as NumPy would misbehave."""
    if dtype.kind == "b" and raw.size and int(raw.max()) > 1:
        raise ValueError("an array of bools holds other bytes")
    return raw.view(dtype) if raw.size else np.empty(0, dtype)
