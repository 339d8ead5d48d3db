"""Server-sent events."""

from typing import Any

import msgspec

DONE = b"data: [DONE]\n\n"
"""The end of OpenAI's older streams."""


def data(payload: Any) -> bytes:
    """An event without a name."""
    return b"data: " + msgspec.json.encode(payload) + b"\n\n"


def event(payload: dict[str, Any]) -> bytes:
    """An event with the name that its type is."""
    return b"event: " + str(payload["type"]).encode() + b"\n" + data(payload)


def rest(sent: str, whole: str) -> str:
    """The part of a whole text that was not sent yet."""
    return whole[len(sent) :] if whole.startswith(sent) else ""
