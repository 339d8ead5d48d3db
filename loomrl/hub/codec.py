"""A trajectory as bytes: a 12-byte header (magic with the format's version, CRC-32, length), then MessagePack.

Equal trajectories have equal bytes. Token columns and other arrays are packed exactly (`loomrl.hub.array`). Payloads
delimit themselves: many of them, one after the other, are a valid body (`split`).
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from loomrl.errors import CorruptPayload, HubError
from loomrl.hub.array import EXTENSION, Allowance, check_dtype, pack, unpack_hook
from loomrl.types import Trajectory

MAGIC = b"LRT\x09"
HEADER = struct.Struct("<4sII")
MAX_BYTES = 1 << 30
"""Longest payload: what both databases still take in one value."""

REMEDY = "Send it again from the source; if it came from the store, restore the store from a copy."


def encode(trajectory: Trajectory) -> bytes:
    """The payload of a trajectory; HubError names what in it no payload can hold."""
    allowance = Allowance()

    def convert(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return msgspec.msgpack.Ext(EXTENSION, pack(value, allowance))
        if isinstance(value, np.generic):
            return value.item()
        raise TypeError(f"{type(value).__name__} is neither JSON nor a NumPy array")

    try:
        body = msgspec.msgpack.Encoder(enc_hook=convert, order="deterministic").encode(trajectory)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise HubError(f"Trajectory {trajectory.id!r} cannot be stored: {error}") from None
    if len(body) > MAX_BYTES - HEADER.size:
        raise HubError(f"Trajectory {trajectory.id!r} has {len(body)} bytes, more than {MAX_BYTES}: split the episode.")
    return HEADER.pack(MAGIC, zlib.crc32(body), len(body)) + body


def decode(payload: bytes | memoryview, *, origin: str = "payload") -> Trajectory:
    """The trajectory of `encode`, or CorruptPayload; never more memory than a small multiple of the payload."""
    view = memoryview(payload)
    length, checksum = _frame(view, 0, origin)
    if length != len(view):
        raise CorruptPayload(
            f"{origin}, offset 0: its {length} bytes have {len(view) - length} bytes too many after them. {REMEDY}"
        )
    body = view[HEADER.size :]
    if zlib.crc32(body) != checksum:
        raise CorruptPayload(f"{origin}, offset 0: the checksum of its {len(body)} bytes is wrong. {REMEDY}")
    return _trajectory(body, origin)


def decode_all(payloads: Sequence[Trajectory | bytes | memoryview]) -> list[Trajectory]:
    """Each decoded unless it is already; CorruptPayload says which one cannot be."""
    count = len(payloads)
    return [
        one if isinstance(one, Trajectory) else decode(one, origin=f"payload {number} of {count}")
        for number, one in enumerate(payloads, 1)
    ]


def split(body: bytes | memoryview, *, origin: str = "body") -> Iterator[memoryview]:
    """The payloads of a body that is nothing but payloads; what is in them, `decode` checks."""
    view = memoryview(body)
    offset = 0
    while offset < len(view):
        length, _ = _frame(view, offset, origin)
        yield view[offset : offset + length]
        offset += length


def _frame(view: memoryview, offset: int, origin: str) -> tuple[int, int]:
    """The length of the payload at an offset, and the checksum it announces, once the header is found right."""
    where = f"{origin}, offset {offset}"
    if len(view) - offset < HEADER.size:
        raise CorruptPayload(f"{where}: cut off in its header of {HEADER.size} bytes. {REMEDY}")
    magic, checksum, length = HEADER.unpack_from(view, offset)
    if magic != MAGIC:
        found = "a payload of another loomrl: upgrade it" if magic[:3] == MAGIC[:3] else "no trajectory payload"
        raise CorruptPayload(f"{where}: {bytes(magic)!r} begins {found}; this loomrl reads {MAGIC!r}.")
    start = offset + HEADER.size
    if length > len(view) - start:
        raise CorruptPayload(f"{where}: cut off, {length} bytes announced and {len(view) - start} there. {REMEDY}")
    return HEADER.size + int(length), int(checksum)


def _trajectory(body: memoryview, origin: str) -> Trajectory:
    decoder = msgspec.msgpack.Decoder(Trajectory, ext_hook=unpack_hook(), dec_hook=check_dtype)
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        raise CorruptPayload(f"{origin}: not a trajectory: {error}. {REMEDY}") from None
