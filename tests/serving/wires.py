"""The dialects as their clients see them: a smallest request, what a stream says, and how an answer is sent back."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from loomrl.serving.asgi import DIALECTS
from loomrl.serving.call import ChatMessage, ToolCall
from loomrl.serving.dialect.dialect import Dialect

Body = dict[str, Any]
Heard = tuple[str, list[tuple[str, str, str]]]
"""Text, and calls by id, name and arguments."""


@dataclass(frozen=True)
class Wire:
    """One dialect."""

    name: str
    body: Body
    tools: Body
    """More fields, which offer a tool `add`."""
    again: Callable[[Mapping[str, Any]], tuple[str, list[Body]]]
    """The field of the conversation, and what a client appends to it for an answer and the results of its calls."""
    heard: Callable[[list[Body]], Heard]
    """The text and the calls of a stream's events."""
    said: Callable[[Mapping[str, Any]], Heard]
    """The same of a whole answer."""

    @property
    def dialect(self) -> Dialect:
        """The dialect itself."""
        return DIALECTS[self.name]


def events(stream: bytes) -> list[Body]:
    """The events of a stream; their names are their types."""
    found = []
    for block in stream.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line)
        if fields and fields["data"] != "[DONE]":
            payload = json.loads(fields["data"])
            assert fields.get("event", payload.get("type")) == payload.get("type")
            found.append(payload)
    return found


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}


# -- chat ------------------------------------------------------------------------------------------------------------


def _chat_again(answer: Mapping[str, Any]) -> tuple[str, list[Body]]:
    message = answer["choices"][0]["message"]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "3"} for call in message.get("tool_calls", [])]
    return "messages", [message, *results, {"role": "user", "content": "And?"}]


def _chat_heard(found: list[Body]) -> Heard:
    text, calls = "", []
    for choice in (choice for event in found for choice in event["choices"]):
        text += choice["delta"].get("content") or ""
        for call in choice["delta"].get("tool_calls", []):
            calls.append((call["id"], call["function"]["name"], call["function"]["arguments"]))
    return text, calls


def _chat_said(answer: Mapping[str, Any]) -> Heard:
    message = answer["choices"][0]["message"]
    calls = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", [])]
    return message["content"] or "", calls


# -- completions -----------------------------------------------------------------------------------------------------


def _completion_again(answer: Mapping[str, Any]) -> tuple[str, list[Body]]:
    raise NotImplementedError


def _completion_heard(found: list[Body]) -> Heard:
    return "".join(choice["text"] for event in found for choice in event["choices"]), []


# -- responses -------------------------------------------------------------------------------------------------------


def _response_again(answer: Mapping[str, Any]) -> tuple[str, list[Body]]:
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "3"}
        for item in answer["output"]
        if item["type"] == "function_call"
    ]
    return "input", [*answer["output"], *results, {"role": "user", "content": "And?"}]


def _response_heard(found: list[Body]) -> Heard:
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    assert found[-1]["response"]["output"] == [e["item"] for e in found if e["type"] == "response.output_item.done"]
    text = "".join(event["delta"] for event in found if event["type"] == "response.output_text.delta")
    added = [e["item"] for e in found if e["type"] == "response.output_item.added" if "call_id" in e["item"]]
    whole = [e["arguments"] for e in found if e["type"] == "response.function_call_arguments.done"]
    return text, [(call["call_id"], call["name"], part) for call, part in zip(added, whole, strict=True)]


def _response_said(answer: Mapping[str, Any]) -> Heard:
    texts = [part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"]]
    calls = [item for item in answer["output"] if item["type"] == "function_call"]
    return "".join(texts), [(call["call_id"], call["name"], call["arguments"]) for call in calls]


# -- Anthropic's messages --------------------------------------------------------------------------------------------


def _message_again(answer: Mapping[str, Any]) -> tuple[str, list[Body]]:
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "3"}
        for block in answer["content"]
        if block["type"] == "tool_use"
    ]
    content = [*results, {"type": "text", "text": "And?"}]
    return "messages", [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": content}]


def _message_heard(found: list[Body]) -> Heard:
    blocks: list[Body] = []
    for event in found:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append(event["content_block"] | {"input": ""})
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            blocks[-1]["text"] = blocks[-1].get("text", "") + delta.get("text", "")
            blocks[-1]["input"] += delta.get("partial_json", "")
    starts, ends = ([e["index"] for e in found if e["type"] == f"content_block_{t}"] for t in ("start", "stop"))
    assert starts == ends
    calls = [(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
    return "".join(block["text"] for block in blocks if block["type"] == "text"), calls


def _message_said(answer: Mapping[str, Any]) -> Heard:
    calls = [block for block in answer["content"] if block["type"] == "tool_use"]
    text = "".join(block["text"] for block in answer["content"] if block["type"] == "text")
    return text, [(call["id"], call["name"], json.dumps(call["input"], ensure_ascii=False)) for call in calls]


FUNCTION = {"name": "add", "description": "Sum.", "parameters": SCHEMA}
USER = {"role": "user", "content": "1 + 2?"}
WIRES = {
    wire.name: wire
    for wire in (
        Wire(
            "/v1/chat/completions",
            {"model": "m", "messages": [USER]},
            {"tools": [{"type": "function", "function": FUNCTION}]},
            _chat_again,
            _chat_heard,
            _chat_said,
        ),
        Wire(
            "/v1/completions",
            {"model": "m", "prompt": "1 + 2 ="},
            {},
            _completion_again,
            _completion_heard,
            lambda answer: (answer["choices"][0]["text"], []),
        ),
        Wire(
            "/v1/responses",
            {"model": "m", "input": [USER]},
            {"tools": [{"type": "function", **FUNCTION}]},
            _response_again,
            _response_heard,
            _response_said,
        ),
        Wire(
            "/v1/messages",
            {"model": "m", "max_tokens": 9, "messages": [USER]},
            {"tools": [{"name": "add", "description": "Sum.", "input_schema": SCHEMA}]},
            _message_again,
            _message_heard,
            _message_said,
        ),
    )
}


def as_said(heard: Heard) -> ChatMessage:
    """An answer as the message that a later call repeats."""
    calls = tuple(ToolCall(id=id, name=name, arguments=arguments) for id, name, arguments in heard[1])
    return ChatMessage(role="assistant", text=heard[0], calls=calls)
