"""The interface of a dialect."""

from collections.abc import Mapping
from typing import Any, Protocol

from loomrl.serving.call import Answer, Ask, Event, Heading, Usage
from loomrl.serving.refusal import Refusal


class Stream(Protocol):
    """Writes one answer as server-sent events. Pure: bytes out for events in."""

    def begin(self, heading: Heading) -> bytes:
        """The first bytes; may be empty."""

    def write(self, event: Event) -> bytes:
        """The bytes of the next event; may be empty."""

    def finish(self, usage: Usage) -> bytes:
        """The last bytes, once everything is on record."""

    def fail(self, refusal: Refusal) -> bytes:
        """The last bytes of a stream that cannot be finished."""


class Dialect(Protocol):
    """A wire format. Everything here is a pure function of its arguments."""

    path: str
    """Below the root or a session, as `/v1/chat/completions`."""

    def read(self, body: Mapping[str, Any]) -> Ask:
        """The request; a Refusal names whatever is unknown, unsupported or wrong."""

    def whole(self, ask: Ask, answer: Answer) -> dict[str, Any]:
        """The answer to a call that does not stream."""

    def stream(self, ask: Ask) -> Stream:
        """The writer for a call that streams."""

    def refusal(self, refusal: Refusal) -> dict[str, Any]:
        """The error's body in this API's shape."""
