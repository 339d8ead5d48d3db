"""Anthropic's messages."""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, Tag, model_validator
from typing_extensions import override

from loomrl.serving.body import (
    MOST_STOPS,
    TEXT_OR_PARTS,
    Body,
    Label,
    MaxTokens,
    Name,
    Plain,
    Probability,
    Texts,
    TopK,
    invalid,
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
    TokensDrawn,
    ToolCall,
    ToolSpec,
    Usage,
)
from loomrl.serving.dialect.conversation import (
    BETWEEN,
    MOST_CALLS,
    MOST_MESSAGES,
    MOST_PARTS,
    MOST_TOOLS,
    Cacheable,
    ConversationReader,
    PicturePart,
    TextPart,
    begin_again,
    check_tools,
    png_of,
    split_content,
    unknown_answer,
)
from loomrl.serving.dialect.dialect import PLAIN, Reading, sse_with_name, unsent
from loomrl.serving.dialect.form import MessagesFormat
from loomrl.serving.dialect.openai import message_of
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.thread import RecalledConversation
from loomrl.types import Form, Odds

FAILED = "Error: "
"""Before the text of a result that is an error: policies read text."""
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_KINDS = {
    RefusalCause.INVALID: "invalid_request_error",
    RefusalCause.TOO_LONG: "invalid_request_error",
    RefusalCause.TOO_LARGE: "request_too_large",
    RefusalCause.KEY: "authentication_error",
    RefusalCause.FORBIDDEN: "permission_error",
    RefusalCause.UNKNOWN: "not_found_error",
    RefusalCause.METHOD: "invalid_request_error",
    RefusalCause.CONFLICT: "invalid_request_error",
    RefusalCause.FULL: "rate_limit_error",
    RefusalCause.BUDGET: "rate_limit_error",
    RefusalCause.UNAVAILABLE: "overloaded_error",
    RefusalCause.TIMEOUT: "timeout_error",
    RefusalCause.INTERNAL: "api_error",
}
_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "filtered": "refusal"}


class _TextContent(TextPart):
    type: Literal["text"]
    citations: Annotated[Any, only([])] = None


class _Source(Body):
    type: Literal["base64"]
    media_type: str
    data: str
    png: bytes = b""

    @model_validator(mode="before")
    @classmethod
    def _decode(cls, raw: Any) -> Any:
        if isinstance(raw, dict) and isinstance(raw.get("data"), str):
            return {**raw, "png": png_of(raw["data"], str(raw.get("media_type")))}
        return raw


class _PictureContent(PicturePart):
    type: Literal["image"]
    source: _Source

    @property
    @override
    def png(self) -> bytes:
        return self.source.png


class _BlockCaller(Body):
    type: Literal["direct"]


class _Use(Cacheable):
    type: Literal["tool_use"]
    id: Name
    name: Name
    input: Plain
    caller: _BlockCaller | None = None
    toolset_name: Annotated[Any, only()] = None

    def call(self) -> ToolCall:
        """The same for a policy."""
        return ToolCall(id=self.id, name=self.name, arguments=json.dumps(self.input, ensure_ascii=False))


_TextBlock = Annotated[Annotated[_TextContent, Tag("§text")], tag_by("type")]
_Shown = Annotated[Annotated[_TextContent, Tag("§text")] | Annotated[_PictureContent, Tag("§image")], tag_by("type")]
_Texts = Annotated[
    Annotated[str, Tag("§text")] | Annotated[list[_TextBlock], Tag("§parts"), Field(max_length=MOST_PARTS)],
    TEXT_OR_PARTS,
]


class _ResultBlock(Cacheable):
    type: Literal["tool_result"]
    tool_use_id: Name
    is_error: bool = False
    content: Annotated[
        Annotated[str, Tag("§text")] | Annotated[list[_Shown], Tag("§parts"), Field(max_length=MOST_PARTS)],
        TEXT_OR_PARTS,
    ] = ""
    toolset_name: Annotated[Any, only()] = None

    def said(self) -> ChatMessage:
        """The same for a policy."""
        text, images = split_content(self.content)
        text = FAILED + text if self.is_error and not text.startswith(FAILED) else text
        return ChatMessage(role="tool", text=text, images=images, answers=self.tool_use_id)


class _ThoughtBlock(Cacheable):
    """Thoughts of another model, which this one does not read."""

    type: Literal["thinking", "redacted_thinking"]
    thinking: str = ""
    signature: str = ""
    data: str = ""


_SaidBlock = Annotated[
    Annotated[_TextContent, Tag("§text")]
    | Annotated[_Use, Tag("§tool_use")]
    | Annotated[_ThoughtBlock, Tag("§thinking")],
    tag_by("type", same={"redacted_thinking": "thinking"}),
]
_UserBlock = Annotated[
    Annotated[_TextContent, Tag("§text")]
    | Annotated[_PictureContent, Tag("§image")]
    | Annotated[_ResultBlock, Tag("§tool_result")],
    tag_by("type"),
]


class _SystemTurn(Body):
    role: Literal["system"]
    content: _Texts


class _AssistantTurn(Body):
    role: Literal["assistant"]
    content: Annotated[
        Annotated[str, Tag("§text")] | Annotated[list[_SaidBlock], Tag("§parts"), Field(max_length=MOST_PARTS)],
        TEXT_OR_PARTS,
    ]


class _UserTurn(Body):
    role: Literal["user"]
    content: Annotated[
        Annotated[str, Tag("§text")] | Annotated[list[_UserBlock], Tag("§parts"), Field(max_length=MOST_PARTS)],
        TEXT_OR_PARTS,
    ]


class _CustomTool(Cacheable):
    type: Literal["custom"] = "custom"
    name: Name
    description: str = ""
    input_schema: Plain
    strict: bool = False
    defer_loading: Annotated[Any, only(False)] = None
    eager_input_streaming: bool = False
    """Without effect: arguments are sent once they are whole."""
    allowed_callers: Annotated[Any, only(["direct"])] = None

    def tool(self) -> ToolSpec:
        """The same for a policy."""
        return ToolSpec(name=self.name, description=self.description, parameters=self.input_schema, strict=self.strict)


class _ToolChoice(Body):
    type: Literal["auto", "any", "none", "tool"] = "auto"
    name: Label = ""
    disable_parallel_tool_use: bool = False

    @model_validator(mode="after")
    def _name_the_tool(self) -> "_ToolChoice":
        if (self.type == "tool") != bool(self.name):
            raise ValueError("type 'tool' needs the tool's name, and no other type has one.")
        return self


class _CallerMetadata(Body):
    user_id: Label = ""


class _Thinking(Body):
    type: Literal["disabled"]


class _MessageThread(Body):
    """A conversation that continues an answer on record; every answer may be continued, as if it had been created."""

    type: Literal["create", "continue"]
    previous_message_id: Label = ""

    @model_validator(mode="after")
    def _name_the_message(self) -> "_MessageThread":
        if (self.type == "continue") != bool(self.previous_message_id):
            raise ValueError("type 'continue' needs previous_message_id, and 'create' has none.")
        return self


class _OutputConfig(Body):
    format: MessagesFormat | None = None


class MessagesBody(Cacheable):
    """The request."""

    model: Name
    max_tokens: MaxTokens
    messages: Annotated[
        list[
            Annotated[
                Annotated[_SystemTurn, Tag("§system")]
                | Annotated[_UserTurn, Tag("§user")]
                | Annotated[_AssistantTurn, Tag("§assistant")],
                tag_by("role"),
            ]
        ],
        Field(max_length=MOST_MESSAGES),
    ]
    system: _Texts | None = None
    tools: Annotated[list[_CustomTool], Field(max_length=MOST_TOOLS)] = Field(default_factory=list)
    tool_choice: _ToolChoice = _ToolChoice()
    temperature: Probability | None = None
    top_p: Probability | None = None
    top_k: TopK = 0
    stop_sequences: Annotated[Texts, Field(max_length=MOST_STOPS)] = Field(default_factory=list)
    stream: bool = False
    metadata: _CallerMetadata = _CallerMetadata()
    thinking: _Thinking | None = None
    output_config: _OutputConfig = _OutputConfig()
    output_format: MessagesFormat | None = None
    """The older name of `output_config.format`."""
    thread: _MessageThread | None = None
    service_tier: Annotated[Any, only("auto", "standard_only")] = None
    speed: Annotated[Any, only("standard")] = None
    mcp_servers: Annotated[Any, only([])] = None


class MessagesDialect:
    """`POST /v1/messages`."""

    path = "/v1/messages"

    def read(self, body: Mapping[str, Any], reading: Reading = PLAIN) -> ChatRequest:
        """The request."""
        asked = read_body(MessagesBody, body, ignored=reading.ignored)
        tools = tuple(tool.tool() for tool in asked.tools)
        choice = asked.tool_choice
        name = f"tool:{choice.name}" if choice.type == "tool" else _CHOICES[choice.type]
        earlier = _earlier(asked, reading)
        if earlier is not None:  # what a thread began with holds where the request does not say it again
            tools = tools or earlier.tools
            name = name if "tool_choice" in asked.model_fields_set else earlier.tool_choice
        check_tools(tools, name)
        conversation = _read_conversation(asked, earlier)
        prefill = conversation.take_prefill(name)
        return ChatRequest(
            model=asked.model,
            messages=conversation.end(),
            prefill=prefill,
            instructed=asked.system is not None or (earlier is not None and earlier.instructed),
            tools=tools,
            tool_choice=name,
            parallel_tool_calls=not choice.disable_parallel_tool_use,
            drawing=Drawing(
                temperature=asked.temperature,
                top_p=asked.top_p,
                max_tokens=asked.max_tokens,
                stop=tuple(asked.stop_sequences),
                odds=Odds(top_k=asked.top_k) if asked.top_k > 0 else None,
                form=_form(asked),
            ),
            stream=asked.stream,
            user=asked.metadata.user_id,
        )

    def whole(self, ask: ChatRequest, answer: ChatAnswer) -> dict[str, Any]:
        """The answer."""
        closed = answer.choices[0].closed
        texts = [{"type": "text", "text": closed.text, "citations": None}] if closed.text else []
        calls = [_call(call) | {"input": json.loads(call.arguments)} for call in closed.calls]
        end = {"content": [*texts, *calls], **_end(closed), "usage": _usage(answer.usage)}
        return _head(answer.heading) | end

    def stream(self, ask: ChatRequest) -> "MessageStream":
        """The answer's writer."""
        return MessageStream()

    def refusal(self, refusal: Refusal) -> dict[str, Any]:
        """The error's body."""
        return {"type": "error", "error": {"type": _KINDS[refusal.cause], "message": message_of(refusal)}}


class MessageStream:
    """Blocks of content, one after the other. The message ends once everything is on record."""

    def __init__(self) -> None:
        self._sent = ""
        self._blocks = 0
        self._is_open = False
        self._closed: ChoiceClosed | None = None

    def begin(self, heading: Heading) -> bytes:
        """The message without content. Its counts come at the end."""
        empty = _usage(Usage(prompt=0, completion=0))
        head = _head(heading) | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": empty}
        return sse_with_name({"type": "message_start", "message": head})

    def write(self, event: Event) -> bytes:
        """New text, then calls."""
        if isinstance(event, TokensDrawn):
            return self._text(event.text)
        if not isinstance(event, ChoiceClosed):
            return b""
        self._closed = event
        left = self._text(unsent(self._sent, event.text)) + self._stop()
        return left + b"".join(self._call(call) for call in event.calls)

    def finish(self, usage: Usage) -> bytes:
        """The reason why it ended, and the counts."""
        assert self._closed is not None, "a stream is finished after its choice is closed"
        delta = {"type": "message_delta", "delta": _end(self._closed), "usage": _usage(usage)}
        return sse_with_name(delta) + sse_with_name({"type": "message_stop"})

    def fail(self, refusal: Refusal) -> bytes:
        """The error."""
        return sse_with_name(MessagesDialect().refusal(refusal))

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
        return sse_with_name({"type": "content_block_start", "index": self._blocks, "content_block": block})

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return sse_with_name({"type": "content_block_delta", "index": self._blocks, "delta": delta})

    def _stop(self) -> bytes:
        if not self._is_open:
            return b""
        self._is_open = False
        self._blocks += 1
        return sse_with_name({"type": "content_block_stop", "index": self._blocks - 1})


def _head(heading: Heading) -> dict[str, Any]:
    return {"id": f"msg_{heading.id}", "type": "message", "role": "assistant", "model": heading.model}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name}


def _end(closed: ChoiceClosed) -> dict[str, Any]:
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


def _form(asked: MessagesBody) -> Form | None:
    newer = asked.output_config.format
    if newer is not None and asked.output_format is not None:
        raise invalid("output_format", "it is the older name of output_config.format: set one of them.")
    wanted = newer or asked.output_format
    return None if wanted is None else wanted.form()


def _earlier(asked: MessagesBody, reading: Reading) -> RecalledConversation | None:
    if asked.thread is None or asked.thread.type == "create":
        return None
    name = asked.thread.previous_message_id
    earlier = reading.recall(name)
    if earlier is None:
        raise unknown_answer(name, "thread.previous_message_id")
    return earlier


def _read_conversation(asked: MessagesBody, earlier: RecalledConversation | None) -> ConversationReader:
    if asked.system is not None:
        before = begin_again(earlier, split_content(asked.system)[0])
    else:
        before = [] if earlier is None else list(earlier.messages)
    conversation = ConversationReader("messages", before)
    for at, message in enumerate(asked.messages):
        where = f"messages.{at}"
        if isinstance(message, _UserTurn):
            for said, inner in _user_messages(message, where):
                conversation.add(said, inner)
        elif isinstance(message, _SystemTurn):
            conversation.add(ChatMessage(role="system", text=split_content(message.content)[0]), where)
        else:
            conversation.add(_assistant_message(message, where), where)
    return conversation


def _assistant_message(message: _AssistantTurn, where: str) -> ChatMessage:
    if isinstance(message.content, str):
        return ChatMessage(role="assistant", text=message.content)
    kinds = [block.type for block in message.content]
    calls = tuple(block.call() for block in message.content if isinstance(block, _Use))
    if "text" in kinds[kinds.index("tool_use") :] if calls else False:
        raise invalid(f"{where}.content", "text after a call in one message is not supported.")
    if len(calls) > MOST_CALLS:
        raise invalid(f"{where}.content", f"{len(calls)} calls in one message are more than {MOST_CALLS}.")
    texts = [block.text for block in message.content if isinstance(block, _TextContent)]
    return ChatMessage(role="assistant", text=BETWEEN.join(texts), calls=calls)


def _user_messages(message: _UserTurn, where: str) -> Iterator[tuple[ChatMessage, str]]:
    """Results of tools become messages of their own, in front of what else was said."""
    if isinstance(message.content, str):
        yield ChatMessage(role="user", text=message.content), where
        return
    rest: list[_TextContent | _PictureContent] = []
    for at, block in enumerate(message.content):
        if not isinstance(block, _ResultBlock):
            rest.append(block)
        elif rest:
            raise invalid(f"{where}.content.{at}", "results of tools come before text and pictures.")
        else:
            yield block.said(), f"{where}.content.{at}.tool_use_id"
    if rest or not message.content:
        text, images = split_content(rest)
        yield ChatMessage(role="user", text=text, images=images), where
