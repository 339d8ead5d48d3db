"""Weights through a separate process group: rank 0 sends, all others receive. NCCL between GPUs, gloo on CPUs.

A manifest comes first, then all bytes in buckets, which receivers collect in main memory and verify there. No member
waits longer than TIMEOUT_S for another; a group that lost a member is discarded.
"""

import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.distributed import DistError, PrefixStore, TCPStore  # type: ignore[attr-defined]

from loomrl.errors import PolicyError
from loomrl.inference.weights.sealed import Sealed

BUCKET_BYTES = 64 << 20
TIMEOUT_S = 30.0
"""Time limit for members to meet, and then for every bucket."""
POLL_S = 0.0005


@dataclass(frozen=True, slots=True)
class Meeting:
    """The meeting point of a group's members. Group names are unique."""

    host: str
    port: int
    name: str
    size: int


class GroupManifest(msgspec.Struct, frozen=True):
    """Each tensor's type and shape by name, in the order in which they follow."""

    version: int
    tensors: dict[str, tuple[str, tuple[int, ...]]]
    checksums: Mapping[str, str]


class GroupMember:
    """One process of a group, with the device between which the group copies."""

    def __init__(self, meeting: Meeting, rank: int, device: torch.device, *, store: TCPStore | None = None) -> None:
        self.meeting = meeting
        self.device = device
        with _said(f"rank {rank} did not meet the others of {meeting}"):
            timeout = timedelta(seconds=TIMEOUT_S)
            store = store or TCPStore(meeting.host, meeting.port, timeout=timeout, wait_for_workers=False)
            own = PrefixStore(meeting.name, store)
            self._group = (_nccl if device.type == "cuda" else _gloo)(own, rank, meeting)

    def broadcast(self, buffer: Tensor) -> Tensor:
        """Copy rank 0's numbers into every member's buffer; a PolicyError if a member is missing."""
        with _said("a bucket did not reach all members"), _on(self.device):
            work = self._group.broadcast(buffer, 0)
            deadline = time.monotonic() + TIMEOUT_S
            while not work.is_completed():
                if time.monotonic() > deadline:
                    raise DistError(f"nothing for {TIMEOUT_S:g} s")
                time.sleep(POLL_S)
            work.wait()
        return buffer

    def leave(self) -> None:
        """Release the group; operations in progress fail."""
        if self.device.type == "cuda":
            self._group.abort()
        self._group = None


def host(name: str, size: int, address: str) -> tuple[Meeting, TCPStore]:
    """A meeting point on this machine, and the store that keeps it open."""
    listening = socket.create_server((address, 0))
    meeting = Meeting(address, listening.getsockname()[1], name, size)
    timeout = timedelta(seconds=TIMEOUT_S)
    return meeting, TCPStore(
        meeting.host,
        meeting.port,
        is_master=True,
        timeout=timeout,
        wait_for_workers=False,
        master_listen_fd=listening.detach(),
        use_libuv=False,
    )


def send(member: GroupMember, sealed: Sealed) -> None:
    """Send sealed weights to all receivers."""
    tensors = {name: (str(one.dtype).removeprefix("torch."), tuple(one.shape)) for name, one in sealed.weights.items()}
    manifest = msgspec.msgpack.encode(GroupManifest(sealed.version, tensors, sealed.checksums))
    member.broadcast(torch.tensor([len(manifest)], device=member.device))
    member.broadcast(torch.frombuffer(bytearray(manifest), dtype=torch.uint8).to(member.device))
    for bucket in _buckets([*map(_bytes, sealed.weights.values())]):
        member.broadcast(torch.cat([piece.to(member.device) for piece in bucket]))


def receive(member: GroupMember) -> Sealed:
    """The received weights, every tensor verified; a PolicyError names those that differ from the sealed ones."""
    size = int(member.broadcast(torch.zeros(1, dtype=torch.int64, device=member.device)))
    sent = member.broadcast(torch.empty(size, dtype=torch.uint8, device=member.device))
    manifest = msgspec.msgpack.decode(sent.cpu().numpy().tobytes(), type=GroupManifest)
    weights = {name: torch.empty(shape, dtype=getattr(torch, kind)) for name, (kind, shape) in manifest.tensors.items()}
    for bucket in _buckets([*map(_bytes, weights.values())]):
        sizes = [len(piece) for piece in bucket]
        buffer = member.broadcast(torch.empty(sum(sizes), dtype=torch.uint8, device=member.device))
        for piece, arrived in zip(bucket, buffer.split(sizes), strict=True):
            piece.copy_(arrived)
    sealed = Sealed(manifest.version, weights, manifest.checksums)
    sealed.verify()
    return sealed


def _bytes(tensor: Tensor) -> Tensor:
    """The memory of a contiguous tensor or copy."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _buckets(parts: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """All bytes in order, cut so that every list but the last is a full bucket."""
    bucket = list[Tensor]()
    room = BUCKET_BYTES
    for part in parts:
        while len(part):
            bucket.append(part[:room])
            part = part[room:]
            room = room - len(bucket[-1])
            if not room:
                yield bucket
                bucket = []
                room = BUCKET_BYTES
    if bucket:
        yield bucket


def _gloo(store: PrefixStore, rank: int, meeting: Meeting) -> Any:
    from torch.distributed import ProcessGroupGloo

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect((meeting.host, meeting.port))  # sends nothing, and says by which of our addresses we go there
        own = way.getsockname()[0]
    options: Any = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [ProcessGroupGloo.create_device(hostname=own)]
    options._timeout = timedelta(seconds=TIMEOUT_S)
    return ProcessGroupGloo(store, rank, meeting.size, options)


def _nccl(store: PrefixStore, rank: int, meeting: Meeting) -> Any:
    from torch.distributed import ProcessGroupNCCL

    options = ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=2 * TIMEOUT_S)
    with _no_watchdog():
        return ProcessGroupNCCL(store, rank, meeting.size, options)


@contextmanager
def _no_watchdog() -> Iterator[None]:
    """Groups built here do not end the process when a member is missing: `broadcast` detects that."""
    name = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
    before = os.environ.get(name)
    os.environ[name] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def _on(device: torch.device) -> Iterator[None]:
    """Select the device: threads start on the first GPU."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        yield


@contextmanager
def _said(what: str) -> Iterator[None]:
    """torch's errors as ours."""
    try:
        yield
    except RuntimeError as error:
        raise PolicyError(f"{what}: {str(error).splitlines()[0][:300]}") from None
