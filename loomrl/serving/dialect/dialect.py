"""The interface of a dialect, and server-sent events."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from loomrl.serving.call import ChatAnswer, ChatRequest, Event, Heading, Usage
from loomrl.serving.refusal import Refusal
from loomrl.serving.thread import RecalledConversation

DONE = b"data: [DONE]\n\n"
"""The end of OpenAI's older streams."""


ANSWER_ID = re.compile(r"(?:resp|msg|fc)_([0-9a-f]{32})(?:_(\d+))?")
"""The ids of responses, messages and calls that we gave: the id of the gateway's call, and of a call its number."""


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """The circumstances in which a request is read."""

    recalled: Mapping[str, RecalledConversation] = field(default_factory=dict)
    """The conversations that it names by ids of earlier answers, by the id of their last call."""
    ignored: list[str] | None = None
    """Takes the paths of fields that are unknown or unsupported; None refuses them."""

    def recall(self, name: object) -> RecalledConversation | None:
        """The conversation up to the answer of this id, if it is on record."""
        found = ANSWER_ID.fullmatch(str(name))
        return None if found is None else self.recalled.get(found[1])


PLAIN = Reading()


def references(body: Mapping[str, Any]) -> list[str]:
    """Ids of the calls whose answers a request names instead of repeating them."""
    thread = body.get("thread")
    items = body.get("input")
    named = [body.get("previous_response_id"), thread.get("previous_message_id") if isinstance(thread, dict) else None]
    if isinstance(items, list):
        named += [one.get("id") for one in items if isinstance(one, dict) and one.get("type") == "item_reference"]
    found = [ANSWER_ID.fullmatch(name) for name in named if isinstance(name, str)]
    return list(dict.fromkeys(one[1] for one in found if one is not None))


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

    def read(self, body: Mapping[str, Any], reading: Reading = PLAIN) -> ChatRequest:
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
