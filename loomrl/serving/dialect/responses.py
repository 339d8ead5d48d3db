"""OpenAI's responses."""

from collections.abc import Mapping, Sequence
from typing import Any

from loomrl.serving.call import Answer, Ask, Closed, Drawn, Event, Heading, Token, ToolCall, Usage
from loomrl.serving.dialect import sse
from loomrl.serving.dialect.openai import error_of, logprobs_of, message_of
from loomrl.serving.dialect.responses_request import read_request
from loomrl.serving.refusal import Cause, Refusal

Item = dict[str, Any]


class Responses:
    """`POST /v1/responses`."""

    path = "/v1/responses"

    def read(self, body: Mapping[str, Any]) -> Ask:
        """The request."""
        return read_request(body)

    def whole(self, ask: Ask, answer: Answer) -> dict[str, Any]:
        """The answer."""
        choice = answer.choices[0]
        items = _items(answer.heading, choice.closed, choice.tokens if ask.drawing.logprobs else ())
        return _closed_response(ask, answer.heading, choice.closed, items) | {"usage": _usage(answer.usage)}

    def stream(self, ask: Ask) -> "ResponseStream":
        """The answer's writer."""
        return ResponseStream(ask)

    def refusal(self, refusal: Refusal) -> dict[str, Any]:
        """The error's body."""
        return error_of(refusal)


_CUT = {"length": "max_output_tokens", "filtered": "content_filter"}
"""Reasons why a response is incomplete."""


class ResponseStream:
    """Events with numbers. The response is completed once everything is on record."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._heading: Heading | None = None
        self._closed: Closed | None = None
        self._number = 0
        self._sent = ""
        self._is_open = False
        self._tokens: list[Token] = []
        self._unsent: list[Token] = []
        """Tokens whose text is held back."""

    def begin(self, heading: Heading) -> bytes:
        """The response without output."""
        self._heading = heading
        response = _response(self._ask, heading, "in_progress", [])
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def write(self, event: Event) -> bytes:
        """New text, then calls."""
        if isinstance(event, Drawn):
            if self._ask.drawing.logprobs:
                self._unsent.extend(event.tokens)
            return self._text(event.text) if event.text else b""
        if not isinstance(event, Closed):
            return b""
        self._closed = event
        rest = sse.rest(self._sent, event.text)
        left = self._text(rest) if rest or not (self._is_open or event.calls) else b""
        return left + self._end_items(event)

    def finish(self, usage: Usage) -> bytes:
        """The whole response."""
        heading = self._begun
        closed = self._closed
        assert closed is not None, "a stream is finished after its choice is closed"
        response = _closed_response(self._ask, heading, closed, _items(heading, closed, self._tokens))
        return self._event(f"response.{response['status']}", response=response | {"usage": _usage(usage)})

    def fail(self, refusal: Refusal) -> bytes:
        """The response with the error."""
        code = "rate_limit_exceeded" if refusal.status == 429 else "server_error"
        code = "invalid_prompt" if refusal.cause in (Cause.INVALID, Cause.TOO_LONG) else code
        failed = _response(self._ask, self._begun, "failed", [])
        return self._event(
            "response.failed", response=failed | {"error": {"code": code, "message": message_of(refusal)}}
        )

    @property
    def _begun(self) -> Heading:
        assert self._heading is not None, "a stream begins with its heading"
        return self._heading

    def _text(self, text: str) -> bytes:
        opened = b"" if self._is_open else self._open_message()
        logprobs = logprobs_of(self._unsent)
        self._tokens += self._unsent
        self._unsent = []
        self._sent += text
        return opened + self._part("response.output_text.delta", delta=text, logprobs=logprobs)

    def _open_message(self) -> bytes:
        self._is_open = True
        item = _message(self._begun, "in_progress", [])
        added = self._event("response.output_item.added", output_index=0, item=item)
        return added + self._part("response.content_part.added", part=_output_text("", ()))

    def _end_items(self, closed: Closed) -> bytes:
        if self._is_open:
            self._tokens += self._unsent
        items = _items(self._begun, closed, self._tokens)
        ended = b""
        for index, item in enumerate(items):
            ended += self._end_message(item) if item["type"] == "message" else self._call(index, item)
            ended += self._event("response.output_item.done", output_index=index, item=item)
        return ended

    def _end_message(self, item: Item) -> bytes:
        part = item["content"][0]
        done = self._part("response.output_text.done", text=part["text"], logprobs=part["logprobs"])
        return done + self._part("response.content_part.done", part=part)

    def _call(self, index: int, item: Item) -> bytes:
        begun = item | {"arguments": "", "status": "in_progress"}
        place = {"item_id": item["id"], "output_index": index}
        name = "response.function_call_arguments"
        arguments = item["arguments"]
        return (
            self._event("response.output_item.added", output_index=index, item=begun)
            + self._event(f"{name}.delta", **place, delta=arguments)
            + self._event(f"{name}.done", **place, name=item["name"], arguments=arguments)
        )

    def _part(self, kind: str, **fields: Any) -> bytes:
        return self._event(kind, item_id=_message_id(self._begun), output_index=0, content_index=0, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        return sse.event({"type": kind, "sequence_number": self._number - 1, **fields})


def _items(heading: Heading, closed: Closed, tokens: Sequence[Token]) -> list[Item]:
    """A message, where there is text or nothing else, and the calls."""
    items = []
    if closed.text or not closed.calls:
        items.append(_message(heading, _status(closed), [_output_text(closed.text, tokens)]))
    return items + [_function_call(heading, index, call) for index, call in enumerate(closed.calls)]


def _message_id(heading: Heading) -> str:
    return f"msg_{heading.id}"


def _message(heading: Heading, status: str, content: list[Item]) -> Item:
    return {
        "id": _message_id(heading),
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def _output_text(text: str, tokens: Sequence[Token]) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs_of(tokens)}


def _function_call(heading: Heading, index: int, call: ToolCall) -> Item:
    head = {"id": f"fc_{heading.id}_{index}", "type": "function_call", "status": "completed"}
    return head | {"call_id": call.id, "name": call.name, "arguments": call.arguments}


def _status(closed: Closed) -> str:
    return "incomplete" if closed.finish in _CUT else "completed"


def _closed_response(ask: Ask, heading: Heading, closed: Closed, items: list[Item]) -> dict[str, Any]:
    cut = {"incomplete_details": {"reason": _CUT[closed.finish]}} if closed.finish in _CUT else {}
    return _response(ask, heading, _status(closed), items) | cut


def _response(ask: Ask, heading: Heading, status: str, items: list[Item]) -> dict[str, Any]:
    return {
        "id": f"resp_{heading.id}",
        "object": "response",
        "created_at": int(heading.created),
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": heading.model,
        "output": items,
        "usage": None,
        **ask.shown,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    }
