"""The `/v2` routes, derived from the contract: JSON, and payloads of trajectories as they are.

A body is the operation's parameters by name, an answer its result; only trajectories are not JSON. A body with
trajectories is payloads one after the other (`codec.split`); an answer with trajectories has its JSON in front,
announced by its length (u32).
"""

import inspect
import struct
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_type_hints

import msgspec

from loomrl.errors import CorruptPayload, HubError
from loomrl.hub.codec import decode, encode, split
from loomrl.hub.hub import Hub, Lease
from loomrl.types import Group, Trajectory

T = TypeVar("T")
LENGTH = struct.Struct("<I")
JSON = "application/json"
PAYLOADS = "application/vnd.loomrl.trajectories"
DONE = b'{"status":"ok"}'
KEYS = {"append": "cursors", "open": "admitted", "ready": "ready", "renew": "value", "delete": "deleted"}
"""The one key of an operation's answer."""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON body. Unknown keys are refused."""


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
    """The head before the trajectories of a lease."""

    id: str
    expires_at: float
    groups: tuple[GroupHead, ...]


class Cursors(Message, frozen=True):
    """The head before the trajectories of `read`."""

    cursors: list[int]


class Operation:
    """One method of the hub as a request and its answer."""

    def __init__(self, name: str) -> None:
        method = getattr(Hub, name)
        hints = get_type_hints(method)
        _, *parameters = inspect.signature(method).parameters.values()
        fields: list[Any] = [
            (one.name, hints[one.name])
            if one.default is one.empty
            else (one.name, hints[one.name], msgspec.field(default=one.default))
            for one in parameters
        ]
        self.name = name
        self._body = msgspec.defstruct(f"{name.title()}Body", fields, bases=(Message,), frozen=True, kw_only=True)
        self._result = hints["return"]

    def request(self, arguments: Mapping[str, Any]) -> tuple[bytes, str]:
        """The body that asks for this, and its content type."""
        if self.name == "append":
            return b"".join(arguments["trajectories"]), PAYLOADS
        return msgspec.json.encode(arguments), JSON

    def serve(self, hub: Hub, body: bytes) -> tuple[bytes, str]:
        """The answer of `hub` to a body, and its content type."""
        if self.name == "append":
            result: Any = hub.append(list(split(body)))
        else:
            result = getattr(hub, self.name)(**msgspec.structs.asdict(parse(body or b"{}", self._body)))
        if self._result is Lease:
            return _pack_lease(result), PAYLOADS
        if self.name == "read":
            return _with_head(Cursors([cursor for cursor, _ in result]), [one for _, one in result]), PAYLOADS
        if self._result is type(None):
            return DONE, JSON
        return msgspec.json.encode({KEYS[self.name]: result} if self.name in KEYS else result), JSON

    def result(self, answer: bytes) -> Any:
        """The result of the hub's method."""
        if self._result is Lease:
            return _unpack_lease(answer)
        if self.name == "read":
            head, trajectories = _head_and_trajectories(answer, Cursors)
            return list(zip(head.cursors, trajectories, strict=True))
        if self._result is type(None):
            return None
        if self.name in KEYS:
            return parse(answer, dict[str, self._result])[KEYS[self.name]]  # type: ignore[name-defined]
        return parse(answer, self._result)


OPERATIONS = {
    name: Operation(name)
    for name, method in vars(Hub).items()
    if getattr(method, "__isabstractmethod__", False) and name != "close"
}


def parse(body: bytes | memoryview, kind: type[T]) -> T:
    """A JSON body as what it should be; HubError says where it differs."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HubError(f"The body is no {kind.__name__}: {error}.") from None


def _pack_lease(lease: Lease) -> bytes:
    heads = tuple(GroupHead(group.id, group.cause, len(group.trajectories)) for group in lease.groups)
    members = [trajectory for group in lease.groups for trajectory in group.trajectories]
    return _with_head(LeaseHead(lease.id, lease.expires_at, heads), members)


def _unpack_lease(answer: bytes) -> Lease:
    head, members = _head_and_trajectories(answer, LeaseHead)
    rest = iter(members)
    groups = tuple(Group(g.id, tuple(next(rest) for _ in range(g.count)), g.cause) for g in head.groups)
    return Lease(head.id, groups, head.expires_at)


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
