"""Messages, tools, calls and results as text for a chat template: one way for every template."""

import json
from collections.abc import Sequence

from loomrl.serving.call import Said, Tool
from loomrl.serving.reading import OPENING, write_call
from loomrl.types import Message

TOOLS = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
"""The words that Hermes and Qwen were trained with."""


def worded(said: Sequence[Said], tools: Sequence[Tool] = (), *, tool_role: bool) -> tuple[Message, ...]:
    """The messages for the template; the tools come at the end of the first system message.

    `tool_role`: the template takes messages of tools; without it, results that follow each other are one of the user.
    """
    messages: list[Message] = []
    results = False
    for one in said:
        text = _text(one)
        role = one.role
        if role == "tool" and not tool_role:
            role = "user"
            text = f"<tool_response>\n{text}\n</tool_response>"
        if results and one.role == "tool" and not tool_role:
            last = messages.pop()
            messages.append(Message(role, f"{last.content}\n{text}", last.images + one.images))
        else:
            messages.append(Message(role, text, one.images))
        results = one.role == "tool"
    if not tools:
        return tuple(messages)
    first = messages.pop(0) if messages and messages[0].role == "system" else Message("system", "")
    described = f"{first.content}\n\n{describe(tools)}" if first.content else describe(tools)
    return (Message("system", described, first.images), *messages)


def describe(tools: Sequence[Tool]) -> str:
    """The description of tools, with the form of a call."""
    return TOOLS.format(tools="\n".join(map(_signature, tools)))


def opening(choice: str, tools: Sequence[Tool]) -> str:
    """The beginning of an answer that must call a tool; else empty."""
    if choice in ("auto", "none"):
        return ""
    names = [choice.removeprefix("tool:")] if choice.startswith("tool:") else [tool.name for tool in tools]
    begun = f'{OPENING}\n{{"name": "'
    return f'{begun}{json.dumps(names[0], ensure_ascii=False)[1:]}, "arguments":' if len(names) == 1 else begun


def _text(said: Said) -> str:
    """A message's text, with its calls written out."""
    return "\n".join([*([said.text] if said.text or not said.calls else []), *map(write_call, said.calls)])


def _signature(tool: Tool) -> str:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False)
