"""A hub that another process serves over HTTP."""

import time
import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar

import httpx
import msgspec
from typing_extensions import override

from loomrl.errors import Conflict, CorruptPayload, HubError, LeaseLost, StoreError
from loomrl.hub import wire
from loomrl.hub.codec import encode
from loomrl.hub.hub import EVERYTHING, GroupPlan, Hub, HubStats, Lease, Ready, Selection, lease_once
from loomrl.types import Trajectory

T = TypeVar("T")
ERRORS = {error.__name__: error for error in (Conflict, CorruptPayload, HubError, LeaseLost, StoreError)}
LONGEST_PAUSE_S = 1.0


class HubClient(Hub):
    """The hub at `url`. Every call may be repeated without harm; one that finds no connection is, for `patience_s`."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        patience_s: float = 30.0,
        timeout_s: float = 120.0,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s, trust_env=False)
        self._patience_s = patience_s
        self._new_id = new_id

    @override
    def append(self, trajectories: Sequence[Trajectory]) -> list[int]:
        return self.append_payloads([encode(trajectory) for trajectory in trajectories])

    @override
    def append_payloads(self, payloads: Sequence[bytes | memoryview]) -> list[int]:
        return wire.parse(self._send("append", b"".join(payloads), content_type=wire.PAYLOADS), wire.Cursors).cursors

    @override
    def open(self, plans: Sequence[GroupPlan]) -> list[str]:
        return self._ask("open", wire.OpenBody(tuple(plans)), wire.Admitted).admitted

    @override
    def demand(self, *, version: int) -> int:
        return int(self._ask("demand", wire.VersionBody(version), wire.Number).value)

    @override
    def lease(
        self, count: int, *, version: int, consumer: str, at_least: int = 1, lease_id: str | None = None
    ) -> Lease:
        def ask(id: str) -> Lease:
            body = wire.LeaseBody(count, version, consumer, at_least, id)
            return wire.unpack_lease(self._send("lease", msgspec.json.encode(body)))

        return lease_once(ask, lease_id, self._new_id)

    @override
    def ready(self, *, limit: int = 1000) -> list[Ready]:
        return self._ask("ready", wire.LimitBody(limit), wire.Waiting).ready

    @override
    def lease_groups(self, ids: Sequence[str], *, version: int, consumer: str, lease_id: str | None = None) -> Lease:
        def ask(id: str) -> Lease:
            body = wire.LeaseGroupsBody(tuple(ids), version, consumer, id)
            return wire.unpack_lease(self._send("lease_groups", msgspec.json.encode(body)))

        return lease_once(ask, lease_id, self._new_id)

    @override
    def renew(self, lease_id: str) -> float:
        return self._ask("renew", wire.LeaseIdBody(lease_id), wire.Number).value

    @override
    def release(self, lease_id: str) -> None:
        self._ask("release", wire.LeaseIdBody(lease_id), wire.Done)

    @override
    def ack(self, lease_id: str, *, version: int) -> None:
        self._ask("ack", wire.AckBody(lease_id, version), wire.Done)

    @override
    def read(
        self, after: int = 0, *, limit: int = 100, selection: Selection = EVERYTHING
    ) -> list[tuple[int, Trajectory]]:
        return wire.unpack_page(self._send("read", msgspec.json.encode(wire.ReadBody(after, limit, selection))))

    @override
    def stats(self) -> HubStats:
        return wire.parse(self._send("stats", b""), HubStats)

    @override
    def share(self, environment: str, *, weight: float = 1.0, min_share: float = 0.0) -> None:
        self._ask("share", wire.ShareBody(environment, weight, min_share), wire.Done)

    @override
    def remember(self, key: str, text: str) -> None:
        self._ask("remember", wire.NoteBody(key, text), wire.Done)

    @override
    def recall(self, key: str) -> str | None:
        return self._ask("recall", wire.NoteBody(key), wire.Note).text

    @override
    def sweep(self) -> None:
        self._send("sweep", b"")

    @override
    def close(self) -> None:
        self._http.close()

    def _ask(self, call: str, body: wire.Message, answer: type[T]) -> T:
        return wire.parse(self._send(call, msgspec.json.encode(body)), answer)

    def _send(self, call: str, body: bytes, *, content_type: str = wire.JSON) -> bytes:
        answer = self._post(f"/v2/{call}", body, content_type)
        if answer.is_success:
            return answer.content
        raise _error(answer)

    def _post(self, path: str, body: bytes, content_type: str) -> httpx.Response:
        """The answer, however often it takes to get a connection."""
        deadline, pause = time.monotonic() + self._patience_s, 0.05
        while True:
            try:
                return self._http.post(path, content=body, headers={"content-type": content_type})
            except httpx.TransportError as error:
                if time.monotonic() + pause > deadline:
                    where = f"{self._http.base_url}{path}"
                    raise HubError(f"{where}: no answer: {error}. Is the hub serving?") from error
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)


def _error(answer: httpx.Response) -> Exception:
    """The error the hub raised there, raised here again."""
    try:
        fault = msgspec.json.decode(answer.content, type=wire.Fault)
    except msgspec.DecodeError:
        return HubError(f"{answer.url}: HTTP {answer.status_code}: {answer.text:.200}. Is a LoomRL hub there?")
    return ERRORS.get(fault.error, HubError)(fault.message)
