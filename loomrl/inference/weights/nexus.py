"""Nexus: new weights for machines that share only a connection with the learner.

A `Sender` holds the last few versions. A `Receiver` reports the version it holds, gets the difference in chunks, each
checked on arrival, and has the new version once every tensor has its sealed checksum. Bytes in, bytes out: the
transport is separate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, pairwise
from typing import Any

import msgspec
import numpy as np
import torch
import xxhash
import zstandard
from numpy.typing import NDArray
from torch import Tensor

from loomrl.errors import PolicyError
from loomrl.inference.weights.sealed import Sealed

LEVEL = 3
"""Level of zstd; higher ones take longer and gain little here: see docs/benchmarks.md."""
FAR = 255
"""A gap that does not fit in a byte."""
HEADER_BYTES = 16

Places = NDArray[np.unsignedinteger[Any]]
"""Numbers as unsigned integers in the same order, with -0 right below 0."""


class DeltaKind(StrEnum):
    """The encoding of a tensor's bytes."""

    SAME = "same"
    DELTA = "delta"
    WHOLE = "whole"


def encode(tensor: Tensor, base: Tensor | None) -> tuple[DeltaKind, bytes]:
    """The fewest bytes from which `decode` restores the tensor, given the base. Without a base, all of it."""
    new = _bits(tensor)
    if base is None or base.dtype != tensor.dtype or base.shape != tensor.shape:
        return DeltaKind.WHOLE, compress(_planes(new))
    old = _bits(base)
    at = np.flatnonzero(new != old)
    if not len(at):
        return DeltaKind.SAME, b""
    delta = _moves(at, _fold(_to_order(new[at]) - _to_order(old[at])))
    if len(delta) < new.nbytes // 2:
        return DeltaKind.DELTA, delta
    whole = compress(_planes(new))
    return (DeltaKind.DELTA, delta) if len(delta) < len(whole) else (DeltaKind.WHOLE, whole)


def decode(kind: DeltaKind, data: bytes, like: Tensor, base: Tensor | None) -> Tensor:
    """The tensor of these bytes, with the type and shape of `like`, which may be on "meta"."""
    if kind is not DeltaKind.WHOLE and (base is None or base.dtype != like.dtype or base.shape != like.shape):
        raise PolicyError(f"a tensor of {like.dtype}, {tuple(like.shape)} came as {kind}, but its base is missing.")
    if kind is DeltaKind.SAME:
        assert base is not None
        return base
    unsigned = np.dtype(f"u{like.element_size()}")
    if kind is DeltaKind.WHOLE:
        raw = decompress(data, like.nbytes)
        if len(raw) != like.nbytes:
            raise PolicyError(f"a tensor of {like.nbytes} bytes came as {len(raw)}.")
        bits = _join_planes(raw, unsigned)
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
    return compress(b"".join([counts.tobytes(), near.tobytes(), far.tobytes(), _planes(folded)]))


def _move(bits: Places, data: bytes) -> None:
    """Apply the moves encoded by `_moves`."""
    size = bits.dtype.itemsize
    raw = decompress(data, HEADER_BYTES + len(bits) * (1 + 8 + size))
    count, far = map(int, np.frombuffer(raw[:HEADER_BYTES], "<u8"))
    if len(raw) != HEADER_BYTES + count * (1 + size) + 8 * far:
        raise PolicyError(f"a delta of {len(raw)} bytes announces {count} moves, {far} of them far.")
    gaps = np.frombuffer(raw, np.uint8, count, HEADER_BYTES).astype(np.int64)
    gaps[gaps == FAR] = np.frombuffer(raw, "<u8", far, HEADER_BYTES + count)
    at = np.cumsum(gaps + 1) - 1
    if count and at[-1] >= len(bits):
        raise PolicyError(f"a delta moves number {at[-1]} of {len(bits)}.")
    folded = _join_planes(raw[HEADER_BYTES + count + 8 * far :], bits.dtype)
    bits[at] = _from_order(_to_order(bits[at]) + _unfold(folded))


def _bits(tensor: Tensor) -> Places:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().view(np.dtype(f"u{tensor.element_size()}"))


def _to_order(bits: Places) -> Places:
    """From sign and magnitude to one order: negative numbers are reversed."""
    top = _top(bits.dtype)
    return np.where(bits & top, ~bits, bits | top).astype(bits.dtype, copy=False)


def _from_order(places: Places) -> Places:
    top = _top(places.dtype)
    return np.where(places & top, places & ~top, ~places).astype(places.dtype, copy=False)


def _fold(distance: Places) -> Places:
    """0, -1, 1, -2, … as 0, 1, 2, 3, …: small numbers for short distances in either direction."""
    zero = distance.dtype.type(0)
    one = distance.dtype.type(1)
    folded: Places = (distance << one) ^ np.where(distance & _top(distance.dtype), ~zero, zero)
    return folded


def _unfold(folded: Places) -> Places:
    zero = folded.dtype.type(0)
    one = folded.dtype.type(1)
    distance: Places = (folded >> one) ^ np.where(folded & one, ~zero, zero)
    return distance


def _top(dtype: np.dtype[Any]) -> Any:
    return dtype.type(1 << (8 * dtype.itemsize - 1))


def _planes(numbers: Places) -> bytes:
    """All first bytes, then all second ones, …: bytes of equal significance are alike and compress better."""
    return numbers.view(np.uint8).reshape(-1, numbers.dtype.itemsize).T.tobytes()


def _join_planes(raw: bytes, dtype: np.dtype[Any]) -> Places:
    planes = np.frombuffer(raw, np.uint8).reshape(dtype.itemsize, -1)
    return np.array(planes.T, order="C").reshape(-1).view(dtype)


def compress(raw: bytes) -> bytes:
    """The compressed bytes."""
    return zstandard.ZstdCompressor(level=LEVEL).compress(raw)


def decompress(data: bytes, most: int) -> bytes:
    """The decompressed bytes, if they are no more than `most`."""
    try:
        announced = zstandard.frame_content_size(data)
        if announced > most:
            raise PolicyError(f"{len(data)} compressed bytes announce {announced}, and may be {most}.")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=most)
    except zstandard.ZstdError as error:
        raise PolicyError(f"{len(data)} bytes cannot be decompressed: {error}") from None


CHUNK_BYTES = 4 << 20
MANIFEST_BYTES = 64 << 20
"""More than the names and checksums of any model need."""
KEPT = 2
"""Versions that a sender holds: the newest, and the base of every receiver that missed none."""


class Entry(msgspec.Struct, frozen=True):
    """A tensor of a parcel; its bytes follow those of the entry before it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    kind: DeltaKind
    size: int


class ParcelManifest(msgspec.Struct, frozen=True):
    """The content of a parcel: its version, base and chunks."""

    version: int
    base: str | None
    entries: tuple[Entry, ...]
    checksums: dict[str, str]
    digests: tuple[str, ...]
    """Digest of each chunk."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightParcel:
    """One version for receivers with the same base; the manifest goes first, then the requested chunks."""

    manifest: bytes
    chunks: tuple[memoryview, ...]

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return len(self.manifest) + sum(map(len, self.chunks))


class Sender:
    """Has the newest version ready for any base."""

    def __init__(self, *, kept: int = KEPT, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._kept = kept
        self._chunk_bytes = chunk_bytes
        self._held: dict[str, Sealed] = {}
        self._parcels: dict[str | None, WeightParcel] = {}

    def hold(self, sealed: Sealed) -> None:
        """Make this the newest version."""
        self._held.pop(token := identity(sealed), None)
        self._held[token] = sealed
        self._parcels.clear()
        for old in [*self._held][: -self._kept]:
            del self._held[old]

    def parcel(self, holds: str | None) -> WeightParcel:
        """The newest version for a receiver that holds this base; the whole version if the base is not held here any
        more.
        """
        if not self._held:
            raise PolicyError("nothing to send: no version was published yet.")
        base = holds if holds in self._held else None
        if base not in self._parcels:
            self._parcels[base] = _parcel(
                [*self._held.values()][-1], base, self._held.get(base or ""), self._chunk_bytes
            )
        return self._parcels[base]


class Receiver:
    """Holds one version, and the arrived parts of the next."""

    def __init__(self) -> None:
        self._held: Sealed | None = None
        self._offered: tuple[bytes, ParcelManifest] | None = None
        self._chunks: dict[int, bytes] = {}

    @property
    def holds(self) -> str | None:
        """The identity of the version held here; None without any."""
        return None if self._held is None else identity(self._held)

    def offer(self, manifest: bytes) -> list[int]:
        """The missing chunks; those that arrived before a lost connection are kept."""
        if self._offered is None or self._offered[0] != manifest:
            self._offered = (manifest, _read(manifest))
            self._chunks = {}
        _, read = self._offered
        if read.base not in (None, self.holds):
            self._offered = None
            raise PolicyError(f"version {read.version} needs a base that is not here: send the whole version.")
        return [index for index in range(len(read.digests)) if index not in self._chunks]

    def take(self, index: int, chunk: bytes) -> None:
        """Accept one chunk; a PolicyError if it differs from its digest, in which case it is still missing."""
        if self._offered is None:
            raise PolicyError(f"chunk {index} of nothing: offer a manifest first.")
        _, read = self._offered
        if not 0 <= index < len(read.digests) or _digest(chunk) != read.digests[index]:
            raise PolicyError(
                f"chunk {index} of version {read.version} is not one of the {len(read.digests)} that were announced, "
                "or came damaged: send it again."
            )
        self._chunks[index] = bytes(chunk)

    def finish(self) -> Sealed:
        """The version, every tensor verified; a PolicyError, with nothing held, if one differs from the sealed one."""
        if self._offered is None or len(self._chunks) != len(self._offered[1].digests):
            raise PolicyError("the version is not complete: offer its manifest again and send the missing chunks.")
        _, read = self._offered
        body = b"".join(self._chunks[index] for index in range(len(read.digests)))
        base = self._held.weights if self._held is not None else {}
        self._offered = None
        self._chunks = {}
        self._held = None
        sealed = Sealed(read.version, _unpack(read, body, base), read.checksums)
        sealed.verify()
        self._held = sealed
        return sealed


def identity(sealed: Sealed) -> str:
    """A version's identity by content: its number may be reused after a restart."""
    hashed = xxhash.xxh3_128(str(sealed.version).encode())
    for name, checksum in sorted(sealed.checksums.items()):
        hashed.update(f"{name}\0{checksum}\0".encode())
    return hashed.hexdigest()


def _parcel(new: Sealed, token: str | None, base: Sealed | None, chunk_bytes: int) -> WeightParcel:
    known: Mapping[str, Tensor] = {} if base is None else base.weights
    entries = list[Entry]()
    parts = list[bytes]()
    for name, tensor in new.weights.items():
        kind, data = encode(tensor, known.get(name))
        dtype = str(tensor.dtype).removeprefix("torch.")
        entries.append(Entry(name, dtype, tuple(tensor.shape), kind, len(data)))
        parts.append(data)
    body = memoryview(b"".join(parts))
    chunks = tuple(body[start : start + chunk_bytes] for start in range(0, len(body), chunk_bytes))
    manifest = ParcelManifest(new.version, token, tuple(entries), dict(new.checksums), tuple(map(_digest, chunks)))
    return WeightParcel(compress(msgspec.msgpack.encode(manifest)), chunks)


def _unpack(manifest: ParcelManifest, body: bytes, base: Mapping[str, Tensor]) -> dict[str, Tensor]:
    ends = [0, *accumulate(entry.size for entry in manifest.entries)]
    weights: dict[str, Tensor] = {}
    for entry, (start, end) in zip(manifest.entries, pairwise(ends), strict=True):
        like = torch.empty(entry.shape, dtype=getattr(torch, entry.dtype), device="meta")
        weights[entry.name] = decode(entry.kind, body[start:end], like, base.get(entry.name))
    return weights


def _read(manifest: bytes) -> ParcelManifest:
    try:
        return msgspec.msgpack.decode(decompress(manifest, MANIFEST_BYTES), type=ParcelManifest)
    except (msgspec.MsgspecError, PolicyError) as error:
        raise PolicyError(f"a parcel's manifest cannot be read: {error}") from None


def _digest(chunk: bytes | memoryview) -> str:
    return xxhash.xxh3_128_hexdigest(chunk)
