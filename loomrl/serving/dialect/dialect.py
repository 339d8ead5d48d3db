"""The interface of a dialect, and server-sent events."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from loomrl.serving.call import ChatAnswer, ChatRequest, Event, Heading, Usage
from loomrl.serving.refusal import Refusal

DONE = b"data: [DONE]\n\n"
"""The end of OpenAI's older streams."""


class AnswerStream(Protocol):
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

    def read(self, body: Mapping[str, Any]) -> ChatRequest:
        """The request; a Refusal names the first part that is unknown, unsupported or wrong."""

    def whole(self, ask: ChatRequest, answer: ChatAnswer) -> dict[str, Any]:
        """The answer to a call that does not stream."""

    def stream(self, ask: ChatRequest) -> AnswerStream:
        """The writer for a call that streams."""

    def refusal(self, refusal: Refusal) -> dict[str, Any]:
        """The error's body in this API's shape."""


def sse(payload: Any) -> bytes:
    """A server-sent event without a name."""
    return b"data: " + msgspec.json.encode(payload) + b"\n\n"


def sse_with_name(payload: dict[str, Any]) -> bytes:
    """A server-sent event whose name is its type."""
    return b"event: " + str(payload["type"]).encode() + b"\n" + sse(payload)


def unsent(sent: str, whole: str) -> str:
    """The part of a whole text that was not sent yet."""
    return whole[len(sent) :] if whole.startswith(sent) else ""
