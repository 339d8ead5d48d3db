"""Nexus: new weights for machines that share only a connection with the learner.

A `Sender` holds the last few versions. A `Receiver` reports the version it holds, gets the difference in chunks, each
checked on arrival, and has the new version once every tensor has its sealed checksum. Bytes in, bytes out: the
transport is separate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

import msgspec
import torch
import xxhash
from torch import Tensor

from loomrl.errors import PolicyError
from loomrl.inference.weights.delta import Kind, compressed, decode, decompressed, encode
from loomrl.inference.weights.sealed import Sealed

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
    kind: Kind
    size: int


class Manifest(msgspec.Struct, frozen=True):
    """The content of a parcel: its version, base and chunks."""

    version: int
    base: str | None
    entries: tuple[Entry, ...]
    checksums: dict[str, str]
    digests: tuple[str, ...]
    """Digest of each chunk."""


@dataclass(frozen=True, slots=True, eq=False)
class Parcel:
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
        self._parcels: dict[str | None, Parcel] = {}

    def hold(self, sealed: Sealed) -> None:
        """Make this the newest version."""
        self._held.pop(token := identity(sealed), None)
        self._held[token] = sealed
        self._parcels.clear()
        for old in [*self._held][: -self._kept]:
            del self._held[old]

    def parcel(self, holds: str | None) -> Parcel:
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
        self._offered: tuple[bytes, Manifest] | None = None
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
        sealed = Sealed(read.version, _unpacked(read, body, base), read.checksums)
        sealed.verify()
        self._held = sealed
        return sealed


def identity(sealed: Sealed) -> str:
    """A version's identity by content: its number may be reused after a restart."""
    hashed = xxhash.xxh3_128(str(sealed.version).encode())
    for name, checksum in sorted(sealed.checksums.items()):
        hashed.update(f"{name}\0{checksum}\0".encode())
    return hashed.hexdigest()


def _parcel(new: Sealed, token: str | None, base: Sealed | None, chunk_bytes: int) -> Parcel:
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
    manifest = Manifest(new.version, token, tuple(entries), dict(new.checksums), tuple(map(_digest, chunks)))
    return Parcel(compressed(msgspec.msgpack.encode(manifest)), chunks)


def _unpacked(manifest: Manifest, body: bytes, base: Mapping[str, Tensor]) -> dict[str, Tensor]:
    ends = [0, *accumulate(entry.size for entry in manifest.entries)]
    weights: dict[str, Tensor] = {}
    for entry, (start, end) in zip(manifest.entries, pairwise(ends), strict=True):
        like = torch.empty(entry.shape, dtype=getattr(torch, entry.dtype), device="meta")
        weights[entry.name] = decode(entry.kind, body[start:end], like, base.get(entry.name))
    return weights


def _read(manifest: bytes) -> Manifest:
    try:
        return msgspec.msgpack.decode(decompressed(manifest, MANIFEST_BYTES), type=Manifest)
    except (msgspec.MsgspecError, PolicyError) as error:
        raise PolicyError(f"a parcel's manifest cannot be read: {error}") from None


def _digest(chunk: bytes | memoryview) -> str:
    return xxhash.xxh3_128_hexdigest(chunk)
