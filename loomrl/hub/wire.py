"""What travels between `HubClient` and the `/v2` routes: JSON, and payloads of trajectories as they are.

A body with trajectories is payloads one after the other (`codec.split`); an answer with trajectories has its JSON in
front, announced by its length (u32).
"""

import struct
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from loomrl.errors import CorruptPayload, HubError
from loomrl.hub.codec import decode, encode, split
from loomrl.hub.hub import EVERYTHING, GroupPlan, Lease, Ready, Selection
from loomrl.types import NO_VERSION, Group, Trajectory

T = TypeVar("T")
LENGTH = struct.Struct("<I")
JSON = "application/json"
PAYLOADS = "application/vnd.loomrl.trajectories"


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON body. Unknown keys are refused."""


class OpenBody(Message, frozen=True):
    """`open`."""

    plans: tuple[GroupPlan, ...]


class LeaseBody(Message, frozen=True):
    """`lease`."""

    count: int
    version: int
    consumer: str
    at_least: int
    lease_id: str | None


class LeaseGroupsBody(Message, frozen=True):
    """`lease_groups`."""

    ids: tuple[str, ...]
    version: int
    consumer: str
    lease_id: str | None


class LeaseIdBody(Message, frozen=True):
    """`renew`, `release`."""

    lease_id: str


class AckBody(Message, frozen=True):
    """`ack`."""

    lease_id: str
    version: int


class ReadBody(Message, frozen=True):
    """`read`."""

    after: int = 0
    limit: int = 100
    selection: Selection = EVERYTHING


class ShareBody(Message, frozen=True):
    """`share`."""

    environment: str
    weight: float
    min_share: float


class NoteBody(Message, frozen=True):
    """`remember`; `text` is left out in `recall`."""

    key: str
    text: str = ""


class VersionBody(Message, frozen=True):
    """`demand`."""

    version: int = NO_VERSION


class LimitBody(Message, frozen=True):
    """`ready`."""

    limit: int


class Cursors(Message, frozen=True):
    """What `append` answers, and what stands in front of the trajectories of `read`."""

    cursors: list[int]


class Admitted(Message, frozen=True):
    """What `open` answers."""

    admitted: list[str]


class Number(Message, frozen=True):
    """What `demand` and `renew` answer."""

    value: float


class Waiting(Message, frozen=True):
    """What `ready` answers."""

    ready: list[Ready]


class Note(Message, frozen=True):
    """What `recall` answers."""

    text: str | None


class Done(Message, frozen=True):
    """What answers that only confirm."""

    status: str = "ok"


class Fault(Message, frozen=True):
    """An error: the name of its type, and its message."""

    error: str
    message: str


class GroupHead(Message, frozen=True):
    """A group of a lease without its trajectories."""

    id: str
    cause: str
    count: int


class LeaseHead(Message, frozen=True):
    """What stands in front of the trajectories of a lease."""

    id: str
    expires_at: float
    groups: tuple[GroupHead, ...]


def parse(body: bytes | memoryview, kind: type[T]) -> T:
    """A JSON body as what it should be; HubError says where it differs."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HubError(f"The body is no {kind.__name__}: {error}.") from None


def pack_lease(lease: Lease) -> bytes:
    """An answer to `lease`."""
    heads = tuple(GroupHead(group.id, group.cause, len(group.trajectories)) for group in lease.groups)
    members = [trajectory for group in lease.groups for trajectory in group.trajectories]
    return _with_head(LeaseHead(lease.id, lease.expires_at, heads), members)


def unpack_lease(answer: bytes) -> Lease:
    """The lease of an answer."""
    head, members = _head_and_trajectories(answer, LeaseHead)
    rest = iter(members)
    groups = tuple(Group(g.id, tuple(next(rest) for _ in range(g.count)), g.cause) for g in head.groups)
    return Lease(head.id, groups, head.expires_at)


def pack_page(page: Sequence[tuple[int, Trajectory]]) -> bytes:
    """An answer to `read`."""
    return _with_head(Cursors([cursor for cursor, _ in page]), [trajectory for _, trajectory in page])


def unpack_page(answer: bytes) -> list[tuple[int, Trajectory]]:
    """The page of an answer."""
    head, trajectories = _head_and_trajectories(answer, Cursors)
    return list(zip(head.cursors, trajectories, strict=True))


def _with_head(head: Message, trajectories: Iterable[Trajectory]) -> bytes:
    text = msgspec.json.encode(head)
    return b"".join((LENGTH.pack(len(text)), text, *map(encode, trajectories)))


def _head_and_trajectories(answer: bytes, kind: type[T]) -> tuple[T, list[Trajectory]]:
    if len(answer) < LENGTH.size:
        raise CorruptPayload("The hub's answer is cut off. Is something between here and the hub that changes it?")
    end = LENGTH.size + LENGTH.unpack_from(answer)[0]
    view = memoryview(answer)
    payloads = split(view[end:], origin="answer")
    return parse(view[LENGTH.size : end], kind), [decode(payload, origin="answer") for payload in payloads]
