"""The request of OpenAI's responses."""

from collections.abc import Mapping
from typing import Any

from loomrl.serving.call import Ask, Drawing, Said, Tool, ToolCall
from loomrl.serving.dialect import image
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
from loomrl.serving.dialect.openai import MOST_TOKENS, MOST_TOP, check_json, read_metadata, read_tool_choice, read_user
from loomrl.serving.dialect.openai import read_stream_options as read_options

LOGPROBS = "message.output_text.logprobs"
REASONING = "reasoning.encrypted_content"
"""Asked for by clients of models that reason; there is none, so that nothing is left out."""
STATUSES = ("in_progress", "completed", "incomplete")
ROLES = ("system", "developer", "user", "assistant")
NOT_KEPT = "answers are not kept to be continued by their ids: send the whole conversation as input."


def read_request(body: Mapping[str, Any]) -> Ask:
    """The request; a Refusal names whatever is unknown, unsupported or wrong."""
    check_bounds(body)
    fields = Fields(body)
    stream = fields.flag("stream", default=False)
    tools = tuple(_tool(entry) for entry in fields.parts("tools", MOST_TOOLS))
    choice = read_tool_choice(fields, lambda entry: entry.name("name"))
    check_tools(tools, choice)
    ask = Ask(
        model=fields.name("model"),
        messages=_messages(fields),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=fields.flag("parallel_tool_calls", default=True),
        drawing=_drawing(fields),
        stream=stream,
        store=fields.flag("store", default=True),
        user=read_user(fields),
        shown=_shown(fields, tools),
    )
    read_options(fields, stream=stream)
    _refuse_others(fields)
    return ask


def _drawing(fields: Fields) -> Drawing:
    include = fields.texts("include", 16)
    for one in include:
        if one not in (LOGPROBS, REASONING):
            raise invalid("include", f"{one[:60]!r} is not supported. Supported: {LOGPROBS}, {REASONING}.")
    top = fields.count("top_logprobs", 0, MOST_TOP) or 0
    if top and LOGPROBS not in include:
        raise invalid("top_logprobs", f"it is for log-probabilities: include {LOGPROBS}.")
    return Drawing(
        temperature=fields.number("temperature", 0, 2),
        top_p=fields.number("top_p", 0, 1),
        max_tokens=fields.count("max_output_tokens", 1, MOST_TOKENS),
        logprobs=LOGPROBS in include,
        top_logprobs=top,
    )


def _shown(fields: Fields, tools: tuple[Tool, ...]) -> dict[str, Any]:
    """The settings that a response repeats. `strict` is false: arguments are not forced to follow their schema."""
    choice = fields.take("tool_choice")
    return {
        "instructions": fields.take("instructions"),
        "max_output_tokens": fields.take("max_output_tokens"),
        "metadata": read_metadata(fields),
        "parallel_tool_calls": fields.flag("parallel_tool_calls", default=True),
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": fields.flag("store", default=True),
        "temperature": fields.take("temperature"),
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto" if choice is None else choice,
        "tools": [_shown_tool(tool) for tool in tools],
        "top_logprobs": fields.take("top_logprobs"),
        "top_p": fields.take("top_p"),
        "truncation": "disabled",
    }


def _shown_tool(tool: Tool) -> dict[str, Any]:
    shown = {"type": "function", "name": tool.name, "description": tool.description}
    return shown | {"parameters": dict(tool.parameters), "strict": False}


def _refuse_others(fields: Fields) -> None:
    text = fields.part("text")
    if text is not None:
        form = text.part("format")
        if form is not None:
            form.choice("type", ("text",))
            form.end()
        text.neutral("verbosity", "medium")
        text.end()
    reasoning = fields.part("reasoning")
    if reasoning is not None:
        reasoning.neutral("effort", "none")
        reasoning.end()
    fields.neutral("truncation", "disabled")
    fields.neutral("background", False)
    fields.neutral("service_tier", "auto", "default")
    fields.refuse("previous_response_id", NOT_KEPT)
    fields.refuse("conversation", NOT_KEPT)
    fields.refuse("prompt", "there are no stored prompts here: send instructions and input.")
    fields.end()


def _tool(entry: Fields) -> Tool:
    entry.choice("type", ("function",))
    tool = Tool(
        name=entry.name("name"), description=entry.text("description", ""), parameters=entry.plain("parameters")
    )
    entry.flag("strict", default=False)
    entry.neutral("defer_loading", False)
    entry.neutral("async", False)
    entry.neutral("allowed_callers", ["direct"])
    entry.end()
    return tool


def _messages(fields: Fields) -> tuple[Said, ...]:
    conversation = Conversation("input")
    if fields.has("instructions"):
        conversation.add(Said(role="system", text=fields.text("instructions")), "instructions")
    given = fields.need("input")
    if isinstance(given, str):
        conversation.add(Said(role="user", text=given), "input")
        return conversation.end()
    for item in objects(given, "input", MOST_MESSAGES):
        _add_item(item, conversation)
        item.end()
    return conversation.end()


def _add_item(item: Fields, conversation: Conversation) -> None:
    kind = item.text("type", "message")
    if kind == "item_reference":
        raise invalid(item.where, NOT_KEPT)
    item.choice("type", ("message", "function_call", "function_call_output"), "message")
    item.name("id", "")  # ours, or the client's: nothing is looked up by it
    item.choice("status", STATUSES, "completed")
    if kind == "message":
        conversation.add(_message(item), item.where)
    elif kind == "function_call":
        _add_call(item, conversation)
    else:
        _add_output(item, conversation)


def _message(item: Fields) -> Said:
    role = item.choice("role", ROLES)
    item.neutral("phase")
    if role == "assistant":
        return Said(role="assistant", text=_content(item, "content", ("output_text", "input_text"))[0])
    kinds = ("input_text", "input_image") if role == "user" else ("input_text",)
    text, images = _content(item, "content", kinds)
    return Said(role="user" if role == "user" else "system", text=text, images=images)


def _add_call(item: Fields, conversation: Conversation) -> None:
    """A call belongs to the message of the assistant before it."""
    arguments = check_json(item.text("arguments"), item.path("arguments"))
    call = ToolCall(id=item.name("call_id"), name=item.name("name"), arguments=arguments)
    item.neutral("namespace", "")
    item.neutral("async", False)
    _caller(item)
    last = conversation.last()
    if last is None or last.role != "assistant":
        conversation.add(Said(role="assistant", calls=(call,)), item.where)
    elif len(last.calls) < MOST_CALLS:
        conversation.amend(call)
    else:
        raise invalid(item.where, f"more than {MOST_CALLS} calls follow each other.")


def _add_output(item: Fields, conversation: Conversation) -> None:
    text, images = _content(item, "output", ("input_text", "input_image"))
    answers = item.name("call_id")
    conversation.add(Said(role="tool", text=text, images=images, answers=answers), item.path("call_id"))
    item.neutral("name", conversation.named(answers))
    item.neutral("namespace", "")
    _caller(item)


def _caller(item: Fields) -> None:
    caller = item.part("caller")
    if caller is not None:
        caller.choice("type", ("direct",))
        caller.end()


def _content(item: Fields, name: str, kinds: tuple[str, ...]) -> tuple[str, tuple[bytes, ...]]:
    content = item.need(name)
    if isinstance(content, str):
        return content, ()
    texts = []
    images = []
    for part in objects(content, item.path(name), MOST_PARTS):
        if part.choice("type", kinds) == "input_image":
            part.neutral("detail", "auto")
            images.append(image.from_url(part.text("image_url"), part.path("image_url")))
        else:
            texts.append(part.text("text"))
            part.neutral("annotations", [])
            part.take("logprobs")  # those of our own answer
        part.end()
    return BETWEEN.join(texts), tuple(images)
