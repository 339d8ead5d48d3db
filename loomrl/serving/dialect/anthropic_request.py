"""The request of Anthropic's messages."""

import json
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

MOST_STOPS = 16
MOST_TOKENS = 1 << 31
FAILED = "Error: "
"""Before the text of a result that is an error: policies read text."""
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def read_request(body: Mapping[str, Any]) -> Ask:
    """The request; a Refusal names whatever is unknown, unsupported or wrong."""
    check_bounds(body)
    fields = Fields(body)
    tools = tuple(_tool(entry) for entry in fields.parts("tools", MOST_TOOLS))
    choice, parallel = _tool_choice(fields)
    check_tools(tools, choice)
    if fields.take("max_tokens") is None:
        raise invalid("max_tokens", "the field is missing.")
    ask = Ask(
        model=fields.name("model"),
        messages=_messages(fields),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=parallel,
        drawing=Drawing(
            temperature=fields.number("temperature", 0, 1),
            top_p=fields.number("top_p", 0, 1),
            max_tokens=fields.count("max_tokens", 1, MOST_TOKENS),
            stop=fields.texts("stop_sequences", MOST_STOPS),
        ),
        stream=fields.flag("stream", default=False),
        user=_user(fields),
    )
    _refuse_others(fields)
    return ask


def _refuse_others(fields: Fields) -> None:
    _cache_control(fields)
    thinking = fields.part("thinking")
    if thinking is not None:
        thinking.choice("type", ("disabled",))
        thinking.end()
    fields.neutral("output_config", {})
    fields.neutral("service_tier", "auto", "standard_only")
    fields.neutral("speed", "standard")
    fields.neutral("mcp_servers", [])
    fields.end()


def _user(fields: Fields) -> str:
    metadata = fields.part("metadata")
    if metadata is None:
        return ""
    user = metadata.name("user_id", "")
    metadata.end()
    return user


def _cache_control(fields: Fields) -> None:
    """A hint for the provider's cache, which changes no answer."""
    hint = fields.part("cache_control")
    if hint is not None:
        hint.choice("type", ("ephemeral",))
        hint.choice("ttl", ("5m", "1h"), "5m")
        hint.end()


def _tool(entry: Fields) -> Tool:
    entry.choice("type", ("custom",), "custom")
    name = entry.name("name")
    description = entry.text("description", "")
    entry.need("input_schema")
    tool = Tool(name=name, description=description, parameters=entry.plain("input_schema"))
    entry.neutral("strict", False)
    entry.neutral("defer_loading", False)
    entry.neutral("eager_input_streaming", False)
    entry.neutral("allowed_callers", ["direct"])
    _cache_control(entry)
    entry.end()
    return tool


def _tool_choice(fields: Fields) -> tuple[str, bool]:
    choice = fields.part("tool_choice")
    if choice is None:
        return "auto", True
    kind = choice.choice("type", (*_CHOICES, "tool"))
    parallel = not choice.flag("disable_parallel_tool_use", default=False)
    made = f"tool:{choice.name('name')}" if kind == "tool" else _CHOICES[kind]
    choice.end()
    return made, parallel


def _messages(fields: Fields) -> tuple[Said, ...]:
    conversation = Conversation("messages")
    if fields.has("system"):
        conversation.add(Said(role="system", text=_texts(fields, "system")), "system")
    for message in objects(fields.need("messages"), "messages", MOST_MESSAGES):
        role = message.choice("role", ("user", "assistant", "system"))
        if role == "system":
            conversation.add(Said(role="system", text=_texts(message, "content")), message.where)
        elif role == "assistant":
            conversation.add(_assistant(message), message.where)
        else:
            _add_user(message, conversation)
        message.end()
    return conversation.end()


def _texts(fields: Fields, name: str) -> str:
    """A string, or blocks of text."""
    content = fields.need(name)
    if isinstance(content, str):
        return content
    return BETWEEN.join(_text(block) for block in _blocks(fields, name, ("text",)))


def _blocks(fields: Fields, name: str, kinds: tuple[str, ...]) -> list[Fields]:
    """Blocks of these types."""
    blocks = objects(fields.need(name), fields.path(name), MOST_PARTS)
    for block in blocks:
        block.choice("type", kinds)
    return blocks


def _text(block: Fields) -> str:
    text = block.text("text")
    block.neutral("citations", [])
    _cache_control(block)
    block.end()
    return text


def _assistant(message: Fields) -> Said:
    if isinstance(message.need("content"), str):
        return Said(role="assistant", text=message.text("content"))
    texts = []
    calls = list[ToolCall]()
    for block in _blocks(message, "content", ("text", "tool_use")):
        if block.text("type") == "tool_use":
            calls.append(_call(block))
            continue
        if calls:
            raise invalid(block.where, "text after a call in one message is not supported.")
        texts.append(_text(block))
    if len(calls) > MOST_CALLS:
        raise invalid(message.path("content"), f"{len(calls)} calls in one message are more than {MOST_CALLS}.")
    return Said(role="assistant", text=BETWEEN.join(texts), calls=tuple(calls))


def _call(block: Fields) -> ToolCall:
    block.need("input")
    arguments = json.dumps(block.plain("input"), ensure_ascii=False)
    call = ToolCall(id=block.name("id"), name=block.name("name"), arguments=arguments)
    caller = block.part("caller")
    if caller is not None:
        caller.choice("type", ("direct",))
        caller.end()
    block.neutral("toolset_name")
    _cache_control(block)
    block.end()
    return call


def _add_user(message: Fields, conversation: Conversation) -> None:
    """Results of tools become messages of their own, in front of what else was said."""
    if isinstance(message.need("content"), str):
        conversation.add(Said(role="user", text=message.text("content")), message.where)
        return
    texts = list[str]()
    images = list[bytes]()
    is_result = False
    for block in _blocks(message, "content", ("text", "image", "tool_result")):
        kind = block.text("type")
        if kind == "tool_result":
            if texts or images:
                raise invalid(block.where, "results of tools come before text and pictures.")
            conversation.add(_result(block), block.path("tool_use_id"))
            is_result = True
        elif kind == "text":
            texts.append(_text(block))
        else:
            images.append(_image(block))
    if texts or images or not is_result:
        conversation.add(Said(role="user", text=BETWEEN.join(texts), images=tuple(images)), message.where)


def _result(block: Fields) -> Said:
    texts = list[str]()
    images = list[bytes]()
    if isinstance(block.take("content"), str):
        texts.append(block.text("content"))
    elif block.has("content"):
        for part in _blocks(block, "content", ("text", "image")):
            if part.text("type") == "text":
                texts.append(_text(part))
            else:
                images.append(_image(part))
    text = BETWEEN.join(texts)
    if block.flag("is_error", default=False) and not text.startswith(FAILED):
        text = FAILED + text
    said = Said(role="tool", text=text, images=tuple(images), answers=block.name("tool_use_id"))
    block.neutral("toolset_name")
    _cache_control(block)
    block.end()
    return said


def _image(block: Fields) -> bytes:
    source = Fields(block.need("source"), block.path("source"))
    source.choice("type", ("base64",))
    media = source.text("media_type")
    picture = image.from_base64(source.text("data"), media, source.path("data"))
    source.end()
    _cache_control(block)
    block.end()
    return picture
