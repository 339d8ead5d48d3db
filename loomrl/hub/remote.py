"""A hub elsewhere: every operation of the contract becomes one question, which is safe to ask twice."""

import inspect
import uuid
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from typing_extensions import override

from loomrl.errors import LeaseLost
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
