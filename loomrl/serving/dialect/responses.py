"""OpenAI's responses."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, Tag
from typing_extensions import override

from loomrl.serving.body import (
    TEXT_OR_PARTS,
    Body,
    Label,
    MaxTokens,
    Name,
    Plain,
    Whole,
    invalid,
    never,
    only,
    read_body,
    tag_by,
)
from loomrl.serving.call import (
    ChatAnswer,
    ChatMessage,
    ChatRequest,
    ChoiceClosed,
    Drawing,
    Event,
    Heading,
    Token,
    TokensDrawn,
    ToolCall,
    ToolSpec,
    Usage,
)
from loomrl.serving.dialect.conversation import (
    MOST_CALLS,
    MOST_MESSAGES,
    MOST_PARTS,
    MOST_TOOLS,
    ConversationReader,
    PicturePart,
    PictureUrl,
    TextPart,
    begin_again,
    check_tools,
    split_content,
    unknown_answer,
)
from loomrl.serving.dialect.dialect import PLAIN, Reading, sse_with_name, unsent
from loomrl.serving.dialect.form import ResponseFormat
from loomrl.serving.dialect.openai import (
    MOST_TOP,
    Arguments,
    Function,
    Metadata,
    OpenAIBody,
    StreamOptions,
    error_of,
    logprobs_of,
    message_of,
)
from loomrl.serving.refusal import Refusal, RefusalCause

Item = dict[str, Any]
LOGPROBS = "message.output_text.logprobs"
REASONING = "reasoning.encrypted_content"
"""Requested by clients of models that reason; there is none, so that nothing is left out."""
NOT_KEPT = "conversations are not kept under names: continue an answer by previous_response_id, or send it whole."


class _ItemText(TextPart):
    type: Literal["input_text", "output_text"]
    annotations: Annotated[Any, only([])] = None
    logprobs: Any = None
    """Those of our own answer."""


class _ItemPicture(PicturePart):
    type: Literal["input_image"]
    image_url: PictureUrl
    detail: Annotated[Any, only("auto")] = None

    @property
    @override
    def png(self) -> bytes:
        return self.image_url


_InputText = Annotated[Annotated[_ItemText, Tag("§input_text")], tag_by("type")]
_AnswerText = Annotated[Annotated[_ItemText, Tag("§input_text")], tag_by("type", same={"output_text": "input_text"})]
_InputPart = Annotated[
    Annotated[_ItemText, Tag("§input_text")] | Annotated[_ItemPicture, Tag("§input_image")], tag_by("type")
]
_Texts = Annotated[
    Annotated[str, Tag("§text")] | Annotated[list[_InputText], Tag("§parts"), Field(max_length=MOST_PARTS)],
    TEXT_OR_PARTS,
]
_Content = Annotated[
    Annotated[str, Tag("§text")] | Annotated[list[_InputPart], Tag("§parts"), Field(max_length=MOST_PARTS)],
    TEXT_OR_PARTS,
]
_Answer = Annotated[
    Annotated[str, Tag("§text")] | Annotated[list[_AnswerText], Tag("§parts"), Field(max_length=MOST_PARTS)],
    TEXT_OR_PARTS,
]


class _Item(Body):
    id: Label = ""
    """Ours, or the client's: an item that is sent is not looked up."""
    status: Literal["in_progress", "completed", "incomplete"] = "completed"


class _Message(_Item):
    type: Literal["message"] = "message"
    phase: Literal["commentary", "final_answer"] | None = None
    """Without effect: the policy tells no comments from answers."""
    name: Label = ""
    """Without effect: chat templates show no names."""


class _SystemItem(_Message):
    role: Literal["system", "developer"]
    content: _Texts


class _UserItem(_Message):
    role: Literal["user"]
    content: _Content


class _AssistantItem(_Message):
    role: Literal["assistant"]
    content: _Answer


class _ItemCaller(Body):
    type: Literal["direct"]


class _CallItem(_Item):
    call_id: Name
    namespace: Annotated[Any, only("")] = None
    caller: _ItemCaller | None = None


class _FunctionCallItem(_CallItem):
    type: Literal["function_call"]
    name: Name
    arguments: Arguments
    is_async: Annotated[Any, only(False)] = Field(default=None, alias="async")


class _Output(_CallItem):
    type: Literal["function_call_output"]
    output: _Content
    name: str | None = None


class _Thought(_Item):
    """Thoughts of another model, which this one does not read."""

    type: Literal["reasoning"]
    summary: list[Plain] = Field(default_factory=list)
    content: list[Plain] = Field(default_factory=list)
    encrypted_content: str = ""


class _Reference(Body):
    type: Literal["item_reference"]
    id: Name


_ByRole = Annotated[
    Annotated[_SystemItem, Tag("§system")]
    | Annotated[_UserItem, Tag("§user")]
    | Annotated[_AssistantItem, Tag("§assistant")],
    tag_by("role", same={"developer": "system"}),
]
_InputItem = Annotated[
    Annotated[_ByRole, Tag("§message")]
    | Annotated[_FunctionCallItem, Tag("§function_call")]
    | Annotated[_Output, Tag("§function_call_output")]
    | Annotated[_Thought, Tag("§reasoning")]
    | Annotated[_Reference, Tag("§item_reference")],
    tag_by("type", "message"),
]


class _ResponseTool(Function):
    type: Literal["function"]
    defer_loading: Annotated[Any, only(False)] = None
    is_async: Annotated[Any, only(False)] = Field(default=None, alias="async")
    allowed_callers: Annotated[Any, only(["direct"])] = None


class _ResponseNamedTool(Body):
    type: Literal["function"]
    name: Name


class _TextSettings(Body):
    format: ResponseFormat | None = None
    verbosity: Annotated[Any, only("medium")] = None


class _Reasoning(Body):
    effort: Annotated[Any, only("none")] = None


class ResponseBody(OpenAIBody):
    """The request."""

    input: Annotated[
        Annotated[str, Tag("§text")] | Annotated[list[_InputItem], Tag("§parts"), Field(max_length=MOST_MESSAGES)],
        TEXT_OR_PARTS,
    ]
    instructions: str | None = None
    max_output_tokens: MaxTokens | None = None
    tools: Annotated[list[_ResponseTool], Field(max_length=MOST_TOOLS)] = Field(default_factory=list)
    tool_choice: Annotated[
        Annotated[Literal["auto", "none", "required"], Tag("§text")] | Annotated[_ResponseNamedTool, Tag("§parts")],
        TEXT_OR_PARTS,
    ] = "auto"
    parallel_tool_calls: bool = True
    include: list[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]] = Field(default_factory=list)
    top_logprobs: Annotated[Whole, Field(ge=0, le=MOST_TOP)] | None = None
    stream_options: StreamOptions | None = None
    metadata: Metadata = Field(default_factory=dict)
    text: _TextSettings | None = None
    reasoning: _Reasoning | None = None
    truncation: Annotated[Any, only("disabled")] = None
    background: Annotated[Any, only(False)] = None
    service_tier: Annotated[Any, only("auto", "default")] = None
    previous_response_id: Label = ""
    conversation: Annotated[Any, never(NOT_KEPT)] = None
    prompt: Annotated[Any, never("there are no stored prompts here: send instructions and input.")] = None


class ResponsesDialect:
    """`POST /v1/responses`."""

    path = "/v1/responses"

    def read(self, body: Mapping[str, Any], reading: Reading = PLAIN) -> ChatRequest:
        """The request."""
        asked = read_body(ResponseBody, body, ignored=reading.ignored)
        tools = tuple(tool.tool() for tool in asked.tools)
        choice = asked.tool_choice if isinstance(asked.tool_choice, str) else f"tool:{asked.tool_choice.name}"
        check_tools(tools, choice)
        wants_logprobs = LOGPROBS in asked.include
        if asked.top_logprobs and not wants_logprobs:
            raise invalid("top_logprobs", f"it is for log-probabilities: include {LOGPROBS}.")
        if asked.stream_options is not None and not asked.stream:
            raise invalid("stream_options", "it is for streams: set stream.")
        return ChatRequest(
            model=asked.model,
            messages=_messages(asked, reading),
            instructed=asked.instructions is not None,
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=asked.parallel_tool_calls,
            drawing=Drawing(
                temperature=asked.temperature,
                top_p=asked.top_p,
                max_tokens=asked.max_output_tokens,
                logprobs=wants_logprobs,
                top_logprobs=asked.top_logprobs or 0,
                form=None if asked.text is None or asked.text.format is None else asked.text.format.form(),
            ),
            stream=asked.stream,
            store=asked.store,
            user=asked.user or asked.safety_identifier,
            shown=_repeat_settings(asked, tools, body),
        )

    def whole(self, ask: ChatRequest, answer: ChatAnswer) -> dict[str, Any]:
        """The answer."""
        choice = answer.choices[0]
        items = _items(answer.heading, choice.closed, choice.tokens if ask.drawing.logprobs else ())
        return _response_at_end(ask, answer.heading, choice.closed, items) | {"usage": _usage(answer.usage)}

    def stream(self, ask: ChatRequest) -> "ResponseStream":
        """The answer's writer."""
        return ResponseStream(ask)

    def refusal(self, refusal: Refusal) -> dict[str, Any]:
        """The error's body."""
        return error_of(refusal)


_CUT = {"length": "max_output_tokens", "filtered": "content_filter"}
"""Reasons why a response is incomplete."""


class ResponseStream:
    """Events with numbers. The response is completed once everything is on record."""

    def __init__(self, ask: ChatRequest) -> None:
        self._ask = ask
        self._heading: Heading | None = None
        self._closed: ChoiceClosed | None = None
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
        if isinstance(event, TokensDrawn):
            if self._ask.drawing.logprobs:
                self._unsent.extend(event.tokens)
            return self._text(event.text) if event.text else b""
        if not isinstance(event, ChoiceClosed):
            return b""
        self._closed = event
        rest = unsent(self._sent, event.text)
        left = self._text(rest) if rest or not (self._is_open or event.calls) else b""
        return left + self._end_items(event)

    def finish(self, usage: Usage) -> bytes:
        """The whole response."""
        heading = self._open_heading
        closed = self._closed
        assert closed is not None, "a stream is finished after its choice is closed"
        response = _response_at_end(self._ask, heading, closed, _items(heading, closed, self._tokens))
        return self._event(f"response.{response['status']}", response=response | {"usage": _usage(usage)})

    def fail(self, refusal: Refusal) -> bytes:
        """The response with the error."""
        code = "rate_limit_exceeded" if refusal.status == 429 else "server_error"
        code = "invalid_prompt" if refusal.cause in (RefusalCause.INVALID, RefusalCause.TOO_LONG) else code
        failed = _response(self._ask, self._open_heading, "failed", [])
        return self._event(
            "response.failed", response=failed | {"error": {"code": code, "message": message_of(refusal)}}
        )

    @property
    def _open_heading(self) -> Heading:
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
        item = _message(self._open_heading, "in_progress", [])
        added = self._event("response.output_item.added", output_index=0, item=item)
        return added + self._part("response.content_part.added", part=_output_text("", ()))

    def _end_items(self, closed: ChoiceClosed) -> bytes:
        if self._is_open:
            self._tokens += self._unsent
        items = _items(self._open_heading, closed, self._tokens)
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
        return self._event(kind, item_id=_message_id(self._open_heading), output_index=0, content_index=0, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        return sse_with_name({"type": kind, "sequence_number": self._number - 1, **fields})


def _items(heading: Heading, closed: ChoiceClosed, tokens: Sequence[Token]) -> list[Item]:
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


def _status(closed: ChoiceClosed) -> str:
    return "incomplete" if closed.finish in _CUT else "completed"


def _response_at_end(ask: ChatRequest, heading: Heading, closed: ChoiceClosed, items: list[Item]) -> dict[str, Any]:
    cut = {"incomplete_details": {"reason": _CUT[closed.finish]}} if closed.finish in _CUT else {}
    return _response(ask, heading, _status(closed), items) | cut


def _response(ask: ChatRequest, heading: Heading, status: str, items: list[Item]) -> dict[str, Any]:
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


def _repeat_settings(asked: ResponseBody, tools: tuple[ToolSpec, ...], body: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a response repeats."""
    has_format = asked.text is not None and asked.text.format is not None
    return {
        "instructions": asked.instructions,
        "max_output_tokens": asked.max_output_tokens,
        "metadata": asked.metadata,
        "parallel_tool_calls": asked.parallel_tool_calls,
        "previous_response_id": asked.previous_response_id or None,
        "reasoning": {"effort": None, "summary": None},
        "store": asked.store,
        "temperature": asked.temperature,
        "text": {"format": body["text"]["format"] if has_format else {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": [_repeat_tool(tool) for tool in tools],
        "top_logprobs": asked.top_logprobs,
        "top_p": asked.top_p,
        "truncation": "disabled",
    }


def _repeat_tool(tool: ToolSpec) -> dict[str, Any]:
    shown = {"type": "function", "name": tool.name, "description": tool.description}
    return shown | {"parameters": dict(tool.parameters), "strict": tool.strict}


def _messages(asked: ResponseBody, reading: Reading) -> tuple[ChatMessage, ...]:
    earlier = None
    if name := asked.previous_response_id:
        earlier = reading.recall(name)
        if earlier is None:
            raise unknown_answer(name, "previous_response_id")
    conversation = ConversationReader("input", begin_again(earlier, asked.instructions))
    if isinstance(asked.input, str):
        conversation.add(ChatMessage(role="user", text=asked.input), "input")
        return conversation.end()
    for at, item in enumerate(asked.input):
        if isinstance(item, _Reference):
            _add_reference(item.id, reading, conversation, f"input.{at}.id")
        else:
            _add_item(item, conversation, f"input.{at}")
    return conversation.end()


def _add_reference(name: str, reading: Reading, conversation: ConversationReader, where: str) -> None:
    """Add an item of an earlier answer: its text, or one of its calls."""
    earlier = reading.recall(name)
    said = None if earlier is None else earlier.messages[-1]
    number = name.rpartition("_")[2] if name.startswith("fc_") else ""
    if said is None or (number and int(number) >= len(said.calls)):
        raise unknown_answer(name, where)
    if number:
        _add_call(said.calls[int(number)], conversation, where)
    else:
        conversation.add(replace(said, calls=()), where)


def _add_item(
    item: _SystemItem | _UserItem | _AssistantItem | _FunctionCallItem | _Output | _Thought,
    conversation: ConversationReader,
    where: str,
) -> None:
    if isinstance(item, _FunctionCallItem):
        _add_call(ToolCall(id=item.call_id, name=item.name, arguments=item.arguments), conversation, where)
    elif isinstance(item, _Output):
        text, images = split_content(item.output)
        said = ChatMessage(role="tool", text=text, images=images, answers=item.call_id)
        conversation.add(said, f"{where}.call_id")
        conversation.check_tool(item.name, item.call_id, f"{where}.name")
    elif not isinstance(item, _Thought):
        text, images = split_content(item.content)
        role: Literal["system", "user", "assistant"] = "system" if isinstance(item, _SystemItem) else item.role
        conversation.add(ChatMessage(role=role, text=text, images=images), where)


def _add_call(call: ToolCall, conversation: ConversationReader, where: str) -> None:
    """A call belongs to the message of the assistant before it."""
    last = conversation.last()
    if last is None or last.role != "assistant":
        conversation.add(ChatMessage(role="assistant", calls=(call,)), where)
    elif len(last.calls) < MOST_CALLS:
        conversation.amend(call)
    else:
        raise invalid(where, f"more than {MOST_CALLS} calls follow each other.")
