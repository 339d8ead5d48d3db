"""Anthropic's messages."""

import json
from collections.abc import Mapping
from typing import Any

from loomrl.serving.call import Answer, Ask, Closed, Drawn, Event, Heading, ToolCall, Usage
from loomrl.serving.dialect import sse
from loomrl.serving.dialect.anthropic_request import read_request
from loomrl.serving.refusal import Cause, Refusal

_KINDS = {
    Cause.INVALID: "invalid_request_error",
    Cause.TOO_LONG: "invalid_request_error",
    Cause.TOO_LARGE: "request_too_large",
    Cause.KEY: "authentication_error",
    Cause.FORBIDDEN: "permission_error",
    Cause.UNKNOWN: "not_found_error",
    Cause.CONFLICT: "invalid_request_error",
    Cause.FULL: "rate_limit_error",
    Cause.BUDGET: "rate_limit_error",
    Cause.UNAVAILABLE: "overloaded_error",
    Cause.TIMEOUT: "timeout_error",
    Cause.INTERNAL: "api_error",
}
_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "filtered": "refusal"}


class Messages:
    """`POST /v1/messages`."""

    path = "/v1/messages"

    def read(self, body: Mapping[str, Any]) -> Ask:
        """The request."""
        return read_request(body)

    def whole(self, ask: Ask, answer: Answer) -> dict[str, Any]:
        """The answer."""
        closed = answer.choices[0].closed
        texts = [{"type": "text", "text": closed.text, "citations": None}] if closed.text else []
        calls = [_call(call) | {"input": json.loads(call.arguments)} for call in closed.calls]
        end = {"content": [*texts, *calls], **_end(closed), "usage": _usage(answer.usage)}
        return _head(answer.heading) | end

    def stream(self, ask: Ask) -> "MessageStream":
        """The answer's writer."""
        return MessageStream()

    def refusal(self, refusal: Refusal) -> dict[str, Any]:
        """The error's body."""
        message = f"{refusal.where}: {refusal}" if refusal.where else str(refusal)
        return {"type": "error", "error": {"type": _KINDS[refusal.cause], "message": message}}


class MessageStream:
    """Blocks of content, one after the other. The message ends once everything is on record."""

    def __init__(self) -> None:
        self._sent = ""
        self._blocks = 0
        self._is_open = False
        self._closed: Closed | None = None

    def begin(self, heading: Heading) -> bytes:
        """The message without content. Its counts come at the end."""
        empty = _usage(Usage(prompt=0, completion=0))
        head = _head(heading) | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": empty}
        return sse.event({"type": "message_start", "message": head})

    def write(self, event: Event) -> bytes:
        """New text, then calls."""
        if isinstance(event, Drawn):
            return self._text(event.text)
        if not isinstance(event, Closed):
            return b""
        self._closed = event
        left = self._text(sse.rest(self._sent, event.text)) + self._stop()
        return left + b"".join(self._call(call) for call in event.calls)

    def finish(self, usage: Usage) -> bytes:
        """The reason why it ended, and the counts."""
        assert self._closed is not None, "a stream is finished after its choice is closed"
        delta = {"type": "message_delta", "delta": _end(self._closed), "usage": _usage(usage)}
        return sse.event(delta) + sse.event({"type": "message_stop"})

    def fail(self, refusal: Refusal) -> bytes:
        """The error."""
        return sse.event(Messages().refusal(refusal))

    def _text(self, text: str) -> bytes:
        if not text:
            return b""
        start = b"" if self._is_open else self._start({"type": "text", "text": "", "citations": None})
        self._sent += text
        return start + self._delta({"type": "text_delta", "text": text})

    def _call(self, call: ToolCall) -> bytes:
        start = self._start(_call(call) | {"input": {}})
        return start + self._delta({"type": "input_json_delta", "partial_json": call.arguments}) + self._stop()

    def _start(self, block: dict[str, Any]) -> bytes:
        self._is_open = True
        return sse.event({"type": "content_block_start", "index": self._blocks, "content_block": block})

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return sse.event({"type": "content_block_delta", "index": self._blocks, "delta": delta})

    def _stop(self) -> bytes:
        if not self._is_open:
            return b""
        self._is_open = False
        self._blocks += 1
        return sse.event({"type": "content_block_stop", "index": self._blocks - 1})


def _head(heading: Heading) -> dict[str, Any]:
    return {"id": f"msg_{heading.id}", "type": "message", "role": "assistant", "model": heading.model}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name}


def _end(closed: Closed) -> dict[str, Any]:
    if closed.finish == "stop" and closed.stopped_by:
        return {"stop_reason": "stop_sequence", "stop_sequence": closed.stopped_by}
    return {"stop_reason": _STOPS[closed.finish], "stop_sequence": None}


def _usage(usage: Usage) -> dict[str, Any]:
    """Counts of tokens: in this API `input_tokens` are those that were not continued from an earlier call."""
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.completion,
    }
