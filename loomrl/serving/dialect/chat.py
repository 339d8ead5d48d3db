"""OpenAI's chat completions."""

from collections.abc import Mapping, Sequence
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
    AnswerChoice,
    ChatAnswer,
    ChatMessage,
    ChatRequest,
    ChoiceClosed,
    Drawing,
    Event,
    Finish,
    Heading,
    Token,
    TokensDrawn,
    ToolCall,
)
from loomrl.serving.dialect.conversation import (
    MOST_CALLS,
    MOST_MESSAGES,
    MOST_PARTS,
    MOST_TOOLS,
    Cacheable,
    ConversationReader,
    PicturePart,
    PictureUrl,
    TextPart,
    check_tools,
    split_content,
)
from loomrl.serving.dialect.dialect import PLAIN, Reading, unsent
from loomrl.serving.dialect.form import ChatFormat
from loomrl.serving.dialect.openai import (
    MOST_TOP,
    Arguments,
    ChunkStream,
    Function,
    Metadata,
    SamplingBody,
    error_of,
    finish_of,
    head_of,
    logprobs_of,
    usage_of,
)
from loomrl.serving.refusal import Refusal


class _ChatText(TextPart):
    type: Literal["text"]


class _ImageUrl(Body):
    url: PictureUrl
    detail: Annotated[Any, only("auto")] = None


class _ChatPicture(PicturePart):
    type: Literal["image_url"]
    image_url: _ImageUrl

    @property
    @override
    def png(self) -> bytes:
        return self.image_url.url


_TextPart = Annotated[Annotated[_ChatText, Tag("§text")], tag_by("type")]
_Part = Annotated[Annotated[_ChatText, Tag("§text")] | Annotated[_ChatPicture, Tag("§image_url")], tag_by("type")]
_Texts = Annotated[
    Annotated[str, Tag("§text")] | Annotated[list[_TextPart], Tag("§parts"), Field(max_length=MOST_PARTS)],
    TEXT_OR_PARTS,
]
_Content = Annotated[
    Annotated[str, Tag("§text")] | Annotated[list[_Part], Tag("§parts"), Field(max_length=MOST_PARTS)], TEXT_OR_PARTS
]


class _ChatMessage(Cacheable):
    name: Label = ""
    """Without effect: chat templates show no names."""


class _ChatSystem(_ChatMessage):
    role: Literal["system", "developer"]
    content: _Texts


class _ChatUser(_ChatMessage):
    role: Literal["user"]
    content: _Content


class _CalledFunction(Body):
    name: Name
    arguments: Arguments
    parsed_arguments: Any = None
    """The arguments once more, as OpenAI's client reads them."""


class _ChatToolCall(Body):
    type: Literal["function"] = "function"
    id: Name
    function: _CalledFunction
    index: Any = None
    """The position in a stream's delta, which some clients send back."""

    def call(self) -> ToolCall:
        """The same for a policy."""
        return ToolCall(id=self.id, name=self.function.name, arguments=self.function.arguments)


class _SaidText(TextPart):
    type: Literal["text", "output_text"]
    role: Literal["assistant"] | None = None
    """The message's own again, as some clients repeat it."""
    refusal: Annotated[Any, only()] = None
    annotations: Annotated[Any, only([])] = None
    tool_calls: Annotated[list[_ChatToolCall], Field(max_length=MOST_CALLS)] = Field(default_factory=list)
    """The message's own again."""


_SaidPart = Annotated[Annotated[_SaidText, Tag("§text")], tag_by("type", same={"output_text": "text"})]
_Said = Annotated[
    Annotated[str, Tag("§text")] | Annotated[list[_SaidPart], Tag("§parts"), Field(max_length=MOST_PARTS)],
    TEXT_OR_PARTS,
]


class _ChatAssistant(_ChatMessage):
    role: Literal["assistant"]
    content: _Said = ""
    tool_calls: Annotated[list[_ChatToolCall], Field(max_length=MOST_CALLS)] = Field(default_factory=list)
    refusal: Annotated[Any, only()] = None
    audio: Annotated[Any, only()] = None
    annotations: Annotated[Any, only([])] = None
    provider_specific_fields: dict[str, Annotated[Any, only(None, "", [], {})]] | None = None
    """LiteLLM adds these to an answer, all of them empty if it was ours."""
    thinking_blocks: list[Plain] = Field(default_factory=list)
    """These are thoughts of another model, which this one does not read."""
    reasoning_content: str = ""
    reasoning: str = ""
    prefix: bool = False
    """The answer continues this message, which has to be the last."""
    parsed: Any = None
    """The content once more, as OpenAI's client reads it."""
    function_call: Annotated[Any, never("it is the older form of tool_calls: use tool_calls.")] = None


class _ChatResult(Cacheable):
    role: Literal["tool"]
    tool_call_id: Name
    content: _Texts
    name: str | None = None


class _ChatTool(Cacheable):
    type: Literal["function"]
    function: Function


class _NamedFunction(Body):
    name: Name


class _ChatNamedTool(Body):
    type: Literal["function"]
    function: _NamedFunction


_Message = Annotated[
    Annotated[_ChatSystem, Tag("§system")]
    | Annotated[_ChatUser, Tag("§user")]
    | Annotated[_ChatAssistant, Tag("§assistant")]
    | Annotated[_ChatResult, Tag("§tool")],
    tag_by("role", same={"developer": "system"}),
]


class ChatBody(SamplingBody):
    """The request."""

    messages: Annotated[list[_Message], Field(max_length=MOST_MESSAGES)]
    tools: Annotated[list[_ChatTool], Field(max_length=MOST_TOOLS)] = Field(default_factory=list)
    tool_choice: Annotated[
        Annotated[Literal["auto", "none", "required"], Tag("§text")] | Annotated[_ChatNamedTool, Tag("§parts")],
        TEXT_OR_PARTS,
    ] = "auto"
    parallel_tool_calls: bool = True
    max_completion_tokens: MaxTokens | None = None
    logprobs: bool = False
    top_logprobs: Annotated[Whole, Field(ge=0, le=MOST_TOP)] = 0
    continue_final_message: bool = False
    """The answer continues the last message, the assistant's."""
    add_generation_prompt: bool | None = None
    preference: Plain = Field(default_factory=dict)
    metadata: Metadata = Field(default_factory=dict)
    response_format: ChatFormat | None = None
    modalities: Annotated[Any, only(["text"])] = None
    service_tier: Annotated[Any, only("auto", "default")] = None
    reasoning_effort: Annotated[Any, only("none")] = None
    verbosity: Annotated[Any, only("medium")] = None
    functions: Annotated[Any, never("it is the older form of tools: use tools.")] = None
    function_call: Annotated[Any, never("it is the older form of tool_choice: use tool_choice.")] = None


class ChatDialect:
    """`POST /v1/chat/completions`."""

    path = "/v1/chat/completions"

    def read(self, body: Mapping[str, Any], reading: Reading = PLAIN) -> ChatRequest:
        """The request."""
        chat = read_body(ChatBody, body, ignored=reading.ignored)
        tools = tuple(tool.function.tool() for tool in chat.tools)
        choice = chat.tool_choice if isinstance(chat.tool_choice, str) else f"tool:{chat.tool_choice.function.name}"
        check_tools(tools, choice)
        conversation = _read_conversation(chat.messages)
        prefill = conversation.take_prefill(choice) if _is_continued(chat) else ""
        return ChatRequest(
            model=chat.model,
            messages=conversation.end(),
            prefill=prefill,
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=chat.parallel_tool_calls,
            drawing=_drawing(chat),
            stream=chat.stream,
            stream_usage=chat.wants_usage,
            store=chat.store,
            user=chat.user or chat.safety_identifier,
            preference=chat.preference or None,
            shown={"metadata": chat.metadata} if chat.metadata else {},
        )

    def whole(self, ask: ChatRequest, answer: ChatAnswer) -> dict[str, Any]:
        """The answer."""
        choices = [_choice(index, choice, ask) for index, choice in enumerate(answer.choices)]
        head = head_of(answer.heading, "chat.completion", prefix="chatcmpl")
        return head | {"choices": choices, "usage": usage_of(answer.usage)} | dict(ask.shown)

    def stream(self, ask: ChatRequest) -> "ChatStream":
        """The answer's writer."""
        return ChatStream(ask)

    def refusal(self, refusal: Refusal) -> dict[str, Any]:
        """The error's body."""
        return error_of(refusal)


class ChatStream(ChunkStream):
    """Chunks of messages."""

    def begin(self, heading: Heading) -> bytes:
        """The role of each choice."""
        self._head = head_of(heading, "chat.completion.chunk", prefix="chatcmpl")
        return b"".join(self._delta(index, {"role": "assistant", "content": ""}) for index in range(len(self._sent)))

    def write(self, event: Event) -> bytes:
        """New text with the tokens that were drawn, then calls."""
        if isinstance(event, TokensDrawn):
            return self._text(event.index, event.text, event.tokens)
        if not isinstance(event, ChoiceClosed):
            return b""
        self._finish[event.index] = event.finish
        left = self._text(event.index, unsent(self._sent[event.index], event.text), ())
        calls = [{"index": at} | _call(call) for at, call in enumerate(event.calls)]
        return left + b"".join(self._delta(event.index, {"tool_calls": [call]}) for call in calls)

    @override
    def _end(self, index: int, finish: Finish | None) -> bytes:
        return self._chunk(index, None, None if finish is None else finish_of(finish), delta={})

    def _text(self, index: int, text: str, tokens: Sequence[Token]) -> bytes:
        asked = self._ask.drawing.logprobs and bool(tokens)
        if not text and not asked:
            return b""
        self._sent[index] += text
        return self._delta(index, {"content": text}, _logprobs(tokens) if asked else None)

    def _delta(self, index: int, delta: dict[str, Any], logprobs: dict[str, Any] | None = None) -> bytes:
        return self._chunk(index, logprobs, None, delta=delta)


def _choice(index: int, choice: AnswerChoice, ask: ChatRequest) -> dict[str, Any]:
    closed = choice.closed
    message: dict[str, Any] = {"role": "assistant", "content": closed.text, "refusal": None}
    if closed.calls:
        message |= {"content": closed.text or None, "tool_calls": [_call(call) for call in closed.calls]}
    logprobs = _logprobs(choice.tokens) if ask.drawing.logprobs else None
    return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish_of(closed.finish)}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _logprobs(tokens: Sequence[Token]) -> dict[str, Any]:
    return {"content": logprobs_of(tokens), "refusal": None}


def _drawing(chat: ChatBody) -> Drawing:
    if chat.top_logprobs and not chat.logprobs:
        raise invalid("top_logprobs", "it is for log-probabilities: set logprobs.")
    older = chat.max_tokens
    newer = chat.max_completion_tokens
    if older is not None and newer is not None and older != newer:
        raise invalid("max_tokens", f"{older} differs from max_completion_tokens={newer}, its newer name: set one.")
    wanted = None if chat.response_format is None else chat.response_format.form()
    return chat.drawing(
        max_tokens=older if newer is None else newer,
        logprobs=chat.logprobs,
        top=chat.top_logprobs,
        form=chat.form(("response_format", wanted)),
    )


def _check_repeated(message: _ChatAssistant, where: str) -> None:
    """Parts may repeat the calls of their message, and no others."""
    for at, part in enumerate(() if isinstance(message.content, str) else message.content):
        if part.tool_calls and part.tool_calls != message.tool_calls:
            raise invalid(f"{where}.content.{at}.tool_calls", "they differ from those of the message.")


def _is_continued(chat: ChatBody) -> bool:
    """True if the answer continues the last message."""
    last = chat.messages[-1] if chat.messages else None
    if chat.continue_final_message and not isinstance(last, _ChatAssistant):
        raise invalid(
            "continue_final_message", "the last message is not the assistant's: there is nothing to continue."
        )
    if chat.continue_final_message and chat.add_generation_prompt:
        raise invalid("add_generation_prompt", "it must be false where the last message is continued.")
    if chat.add_generation_prompt is False and not chat.continue_final_message:
        raise invalid("add_generation_prompt", "without it, continue_final_message must be true.")
    return chat.continue_final_message or (isinstance(last, _ChatAssistant) and last.prefix)


def _read_conversation(
    messages: Sequence[_ChatSystem | _ChatUser | _ChatAssistant | _ChatResult],
) -> ConversationReader:
    conversation = ConversationReader("messages")
    for at, message in enumerate(messages):
        where = f"messages.{at}"
        text, images = split_content(message.content)
        if isinstance(message, _ChatAssistant):
            _check_repeated(message, where)
            calls = tuple(call.call() for call in message.tool_calls)
            conversation.add(ChatMessage(role="assistant", text=text, calls=calls), where)
        elif isinstance(message, _ChatResult):
            answers = message.tool_call_id
            conversation.add(ChatMessage(role="tool", text=text, answers=answers), f"{where}.tool_call_id")
            conversation.check_tool(message.name, answers, f"{where}.name")
        else:
            role: Literal["user", "system"] = "user" if isinstance(message, _ChatUser) else "system"
            conversation.add(ChatMessage(role=role, text=text, images=images), where)
    return conversation
