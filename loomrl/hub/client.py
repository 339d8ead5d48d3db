"""A hub that another process serves over HTTP."""

import inspect
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import httpx
import msgspec
from typing_extensions import override

from loomrl.errors import Conflict, CorruptPayload, HubError, LeaseLost, StoreAway, StoreError
from loomrl.http.listen import trusted
from loomrl.hub import wire
from loomrl.hub.codec import encode
from loomrl.hub.hub import Hub
from loomrl.types import Trajectory

F = TypeVar("F", bound=Callable[..., Any])


def asked(operation: F) -> F:
    """The operation of a contract as a question with the same signature.

    A lease without an id gets one, so that a request sent twice leases once. Where the answer got lost and the
    repetition came only after the lease had expired, it is asked for anew.
    """
    name = operation.__name__
    signature = inspect.signature(operation)

    def ask(self: "RemoteHub", *args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        arguments = dict(list(bound.arguments.items())[1:])
        if arguments.get("lease_id", "") is not None:
            return self._ask(name, arguments)
        while True:
            try:
                return self._ask(name, {**arguments, "lease_id": self._new_id()})
            except LeaseLost:
                continue

    ask.__name__ = name
    ask.__doc__ = operation.__doc__
    return cast(F, ask)


class RemoteHub(Hub):
    """The contract over `_ask`."""

    def __init__(self, *, new_id: Callable[[], str] = lambda: uuid.uuid4().hex) -> None:
        self._new_id = new_id

    @override
    def append(self, trajectories: Sequence[Trajectory | bytes | memoryview]) -> list[int]:
        payloads = [encode(one) if isinstance(one, Trajectory) else bytes(one) for one in trajectories]
        cursors: list[int] = self._ask("append", {"trajectories": payloads})
        return cursors

    open = asked(Hub.open)
    lease = asked(Hub.lease)
    ready = asked(Hub.ready)
    renew = asked(Hub.renew)
    release = asked(Hub.release)
    ack = asked(Hub.ack)
    read = asked(Hub.read)
    delete = asked(Hub.delete)
    stats = asked(Hub.stats)

    @abstractmethod
    def _ask(self, operation: str, arguments: dict[str, Any]) -> Any:
        """The answer to an operation; its errors are raised as they were raised there."""


ERRORS = {error.__name__: error for error in (Conflict, CorruptPayload, HubError, LeaseLost, StoreAway, StoreError)}
LONGEST_PAUSE_S = 1.0


class HubClient(RemoteHub):
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
        super().__init__(new_id=new_id)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s, trust_env=False, verify=trusted())
        self._patience_s = patience_s

    @override
    def close(self) -> None:
        self._http.close()

    @override
    def _ask(self, operation: str, arguments: dict[str, Any]) -> Any:
        asked = wire.OPERATIONS[operation]
        answer = self._post(f"/v2/{operation}", *asked.request(arguments))
        if answer.is_success:
            return asked.result(answer.content)
        raise _error(answer)

    def _post(self, path: str, body: bytes, content_type: str) -> httpx.Response:
        """The answer, however often it takes to get a connection."""
        deadline = time.monotonic() + self._patience_s
        pause = 0.05
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
