"""OpenAI's chat completions."""

from collections.abc import Mapping, Sequence
from typing import Any

from loomrl.serving.call import (
    Answer,
    Ask,
    Choice,
    Closed,
    Drawing,
    Drawn,
    Event,
    Heading,
    Said,
    Token,
    Tool,
    ToolCall,
    Usage,
)
from loomrl.serving.dialect import image, sse
from loomrl.serving.dialect.conversation import (
    BETWEEN,
    MOST_CALLS,
    MOST_MESSAGES,
    MOST_PARTS,
    MOST_TOOLS,
    Conversation,
    check_tools,
)
from loomrl.serving.dialect.fields import Fields, check_bounds, invalid, objects
from loomrl.serving.dialect.openai import (
    MOST_TOKENS,
    MOST_TOP,
    check_json,
    error_of,
    finish_of,
    logprobs_of,
    read_drawing,
    read_metadata,
    read_neutral,
    read_stream_options,
    read_tool_choice,
    read_user,
    usage_of,
)
from loomrl.serving.refusal import Refusal

ROLES = ("system", "developer", "user", "assistant", "tool")


class Chat:
    """`POST /v1/chat/completions`."""

    path = "/v1/chat/completions"

    def read(self, body: Mapping[str, Any]) -> Ask:
        """The request."""
        check_bounds(body)
        fields = Fields(body)
        stream = fields.flag("stream", default=False)
        tools = _tools(fields)
        choice = read_tool_choice(fields, _chosen_tool)
        check_tools(tools, choice)
        metadata = read_metadata(fields)
        ask = Ask(
            model=fields.name("model"),
            messages=_messages(fields),
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=fields.flag("parallel_tool_calls", default=True),
            drawing=_drawing(fields),
            stream=stream,
            stream_usage=read_stream_options(fields, stream=stream),
            store=fields.flag("store", default=True),
            user=read_user(fields),
            preference=fields.plain("preference") or None,
            shown={"metadata": metadata} if metadata else {},
        )
        _refuse_others(fields)
        return ask

    def whole(self, ask: Ask, answer: Answer) -> dict[str, Any]:
        """The answer."""
        choices = [_choice(index, choice, ask) for index, choice in enumerate(answer.choices)]
        head = _head(answer.heading, "chat.completion")
        return head | {"choices": choices, "usage": usage_of(answer.usage)} | dict(ask.shown)

    def stream(self, ask: Ask) -> "ChatStream":
        """The answer's writer."""
        return ChatStream(ask)

    def refusal(self, refusal: Refusal) -> dict[str, Any]:
        """The error's body."""
        return error_of(refusal)


class ChatStream:
    """Chunks. The finish reason of a choice is held until everything is on record."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._sent = [""] * ask.drawing.n
        self._finish: list[str | None] = [None] * ask.drawing.n
        self._head: dict[str, Any] = {}

    def begin(self, heading: Heading) -> bytes:
        """The role of each choice."""
        self._head = _head(heading, "chat.completion.chunk")
        return b"".join(self._delta(index, {"role": "assistant", "content": ""}) for index in range(len(self._sent)))

    def write(self, event: Event) -> bytes:
        """New text with the tokens that were drawn, then calls."""
        if isinstance(event, Drawn):
            return self._text(event.index, event.text, event.tokens)
        if not isinstance(event, Closed):
            return b""
        self._finish[event.index] = finish_of(event.finish)
        left = self._text(event.index, sse.rest(self._sent[event.index], event.text), ())
        calls = [{"index": at} | _call(call) for at, call in enumerate(event.calls)]
        return left + b"".join(self._delta(event.index, {"tool_calls": [call]}) for call in calls)

    def finish(self, usage: Usage) -> bytes:
        """The end of each choice, and the counts if they were asked for."""
        ends = b"".join(self._delta(index, {}, finish=finish) for index, finish in enumerate(self._finish))
        last = sse.data(self._head | {"choices": [], "usage": usage_of(usage)}) if self._ask.stream_usage else b""
        return ends + last + sse.DONE

    def fail(self, refusal: Refusal) -> bytes:
        """The error."""
        return sse.data(error_of(refusal))

    def _text(self, index: int, text: str, tokens: Sequence[Token]) -> bytes:
        asked = self._ask.drawing.logprobs and bool(tokens)
        if not text and not asked:
            return b""
        self._sent[index] += text
        return self._delta(index, {"content": text}, logprobs=_logprobs(tokens) if asked else None)

    def _delta(
        self, index: int, delta: dict[str, Any], *, logprobs: dict[str, Any] | None = None, finish: str | None = None
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        usage = {"usage": None} if self._ask.stream_usage else {}
        return sse.data(self._head | {"choices": [choice]} | usage)


def _head(heading: Heading, kind: str) -> dict[str, Any]:
    head = {"id": f"chatcmpl-{heading.id}", "object": kind, "created": int(heading.created)}
    return head | {"model": heading.model, "system_fingerprint": heading.version}


def _choice(index: int, choice: Choice, ask: Ask) -> dict[str, Any]:
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


def _drawing(fields: Fields) -> Drawing:
    logprobs = fields.flag("logprobs", default=False)
    top = fields.count("top_logprobs", 0, MOST_TOP) or 0
    if top and not logprobs:
        raise invalid("top_logprobs", "it is for log-probabilities: set logprobs.")
    older, newer = (fields.count(name, 1, MOST_TOKENS) for name in ("max_tokens", "max_completion_tokens"))
    if older is not None and newer is not None and older != newer:
        raise invalid("max_tokens", f"{older} differs from max_completion_tokens={newer}, its newer name: set one.")
    return read_drawing(fields, max_tokens=older if newer is None else newer, logprobs=logprobs, top=top)


def _refuse_others(fields: Fields) -> None:
    read_neutral(fields)
    form = fields.part("response_format")
    if form is not None:
        form.choice("type", ("text",))
        form.end()
    fields.neutral("modalities", ["text"])
    fields.neutral("service_tier", "auto", "default")
    fields.neutral("reasoning_effort", "none")
    fields.neutral("verbosity", "medium")
    fields.refuse("functions", "it is the older form of tools: use tools.")
    fields.refuse("function_call", "it is the older form of tool_choice: use tool_choice.")
    fields.end()


def _tools(fields: Fields) -> tuple[Tool, ...]:
    return tuple(_tool(entry) for entry in fields.parts("tools", MOST_TOOLS))


def _tool(entry: Fields) -> Tool:
    entry.choice("type", ("function",))
    function = Fields(entry.need("function"), entry.path("function"))
    entry.end()
    tool = Tool(
        name=function.name("name"),
        description=function.text("description", ""),
        parameters=function.plain("parameters"),
    )
    function.flag("strict", default=False)
    function.end()
    return tool


def _chosen_tool(entry: Fields) -> str:
    function = Fields(entry.need("function"), entry.path("function"))
    name = function.name("name")
    function.end()
    return name


def _messages(fields: Fields) -> tuple[Said, ...]:
    conversation = Conversation("messages")
    for message in objects(fields.need("messages"), "messages", MOST_MESSAGES):
        role = message.choice("role", ROLES)
        if role == "assistant":
            conversation.add(_assistant(message), message.where)
        elif role == "tool":
            _add_result(message, conversation)
        else:
            text, images = _content(message, pictures=role == "user")
            said = Said(role="user" if role == "user" else "system", text=text, images=images)
            conversation.add(said, message.where)
        message.end()
    return conversation.end()


def _assistant(message: Fields) -> Said:
    text, _ = _content(message, pictures=False) if message.has("content") else (message.take("content") or "", ())
    calls = tuple(_read_call(call) for call in message.parts("tool_calls", MOST_CALLS))
    message.neutral("refusal")
    message.neutral("audio")
    message.neutral("annotations", [])
    _refuse_specifics(message)
    message.refuse("function_call", "it is the older form of tool_calls: use tool_calls.")
    return Said(role="assistant", text=text, calls=calls)


def _refuse_specifics(message: Fields) -> None:
    """Fields that LiteLLM adds to an answer, all of them empty if it was ours."""
    specifics = message.part("provider_specific_fields")
    if specifics is not None:
        for name in specifics.names():
            specifics.neutral(name, "", [], {})
    message.neutral("thinking_blocks", [])
    message.neutral("reasoning_content", "")


def _read_call(call: Fields) -> ToolCall:
    call.choice("type", ("function",), "function")
    call.take("index")  # of a stream's delta: some clients send it back
    function = Fields(call.need("function"), call.path("function"))
    name = function.name("name")
    arguments = function.text("arguments")
    made = ToolCall(id=call.name("id"), name=name, arguments=check_json(arguments, function.path("arguments")))
    function.end()
    call.end()
    return made


def _add_result(message: Fields, conversation: Conversation) -> None:
    answers = message.name("tool_call_id")
    text, _ = _content(message, pictures=False)
    conversation.add(Said(role="tool", text=text, answers=answers), message.path("tool_call_id"))
    message.neutral("name", conversation.named(answers))


def _content(message: Fields, *, pictures: bool) -> tuple[str, tuple[bytes, ...]]:
    content = message.need("content")
    if isinstance(content, str):
        return content, ()
    texts = []
    images = []
    for part in objects(content, message.path("content"), MOST_PARTS):
        if part.choice("type", ("text", "image_url") if pictures else ("text",)) == "text":
            texts.append(part.text("text"))
        else:
            images.append(_image(part))
        part.end()
    return BETWEEN.join(texts), tuple(images)


def _image(part: Fields) -> bytes:
    source = Fields(part.need("image_url"), part.path("image_url"))
    source.neutral("detail", "auto")
    picture = image.from_url(source.text("url"), source.path("url"))
    source.end()
    return picture
