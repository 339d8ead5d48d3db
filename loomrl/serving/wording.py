"""Messages, tools, calls and results as text for a chat template: one way for every template."""

import json
import secrets
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from loomrl.inference.form_trial import LAYOUT
from loomrl.serving.call import ChatMessage, Conversation, ToolCall, ToolSpec
from loomrl.types import Form, Message

OPENING = "<tool_call>"
CLOSING = "</tool_call>"
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


class CallReader:
    """Splits an answer into text to show and calls. Text that may become a call is held back.

    A malformed call stays text. Space around calls belongs to them.
    """

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self._held = ""
        self._searched = 0
        """Offset after an opening tag from which its closing tag is searched for."""
        self._shown = False
        self._after_call = False
        """Only space has come since the last call."""

    def add(self, text: str) -> str:
        """Take the next text; returns the text that is certain to be shown."""
        self._held += text
        return self._read(ended=False)

    def end(self, *, is_cut: bool = False) -> str:
        """The rest to show. A last call that is whole but not closed counts; if the answer was cut, one that is not
        whole is not shown.
        """
        rest = self._read(ended=True)
        return rest.partition(OPENING)[0].rstrip() if is_cut and OPENING in rest else rest

    def _read(self, *, ended: bool) -> str:
        shown = ""
        while True:
            before, opening, rest = self._held.partition(OPENING)
            if not opening:
                certain = self._held if ended else before[: len(before) - overlap(before, [OPENING])].rstrip()
                self._held = self._held[len(certain) :]
                return shown + self._show(certain)
            length = self._find(rest, ended=ended)
            if length is None:
                certain = before.rstrip()
                self._held = self._held[len(certain) :]
                return shown + self._show(certain)
            self._searched = 0
            if length:
                shown += self._show(before.rstrip())
                self._after_call = True
            else:
                shown += self._show(before + OPENING)
            self._held = rest[length:]

    def _find(self, rest: str, *, ended: bool) -> int | None:
        """The length of the call after an opening tag; 0 if it is malformed, None if it has not ended."""
        while (at := rest.find(CLOSING, self._searched)) >= 0:
            try:
                self.calls.append(read_call(rest[:at]))
                return at + len(CLOSING)
            except json.JSONDecodeError as error:
                if not error.msg.startswith("Unterminated string"):
                    return 0
                self._searched = at + len(CLOSING)  # this tag is part of an argument
            except (ValueError, RecursionError):
                return 0
        if not ended:
            self._searched = max(self._searched, len(rest) - len(CLOSING) + 1)
            return None
        try:
            self.calls.append(read_call(rest[: len(rest) - overlap(rest, [CLOSING])]))
        except (ValueError, RecursionError):
            return 0
        return len(rest)

    def _show(self, text: str) -> str:
        if self._after_call and not text.strip():
            return ""
        if self._after_call and not self._shown:
            text = text.lstrip()
        if text:
            self._shown = True
            self._after_call = False
        return text


def overlap(text: str, searched: Iterable[str]) -> int:
    """The length of the longest end of a text with which one of these strings may begin; less than all of it."""
    longest = 0
    for one in searched:
        for length in range(min(len(one) - 1, len(text)), longest, -1):
            if text.endswith(one[:length]):
                longest = length
                break
    return longest


def read_call(text: str) -> ToolCall:
    """The call in the text between the tags; a ValueError if it is none. Its id is random."""
    found = json.loads(text, strict=False, parse_constant=_refuse, parse_float=_read_float)
    if not isinstance(found, dict) or not found.keys() <= {"name", "arguments"}:
        raise ValueError("a call is an object with name and arguments")
    name = found.get("name")
    arguments = found.get("arguments", {})
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise ValueError("a call's name is text, and its arguments are an object")
    name.encode()  # a ValueError if half a surrogate pair is in it
    return ToolCall(id=f"call_{secrets.token_hex(12)}", name=name, arguments=_to_json(arguments))


def _read_float(text: str) -> float:
    """The nearest number: a JSON schema allows 1e999, which is infinity here and no JSON again."""
    return max(-sys.float_info.max, min(float(text), sys.float_info.max))


def write_call(call: ToolCall) -> str:
    """A call as a policy would write it; equal calls become equal text, also if their ids differ."""
    arguments: Any
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments
    return write_use(call.name, arguments)


def write_use(name: str, arguments: Any) -> str:
    """`write_call` of what is no JSON text yet."""
    return f"{OPENING}\n{_to_json({'name': name, 'arguments': arguments})}\n{CLOSING}"


def _to_json(value: Any) -> str:
    text = _ENCODER.encode(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False)
    return text


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


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


def to_messages(said: Sequence[ChatMessage], tools: Sequence[ToolSpec] = (), *, tool_role: bool) -> tuple[Message, ...]:
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


def describe(tools: Sequence[ToolSpec]) -> str:
    """The description of tools, with the form of a call."""
    return TOOLS.format(tools="\n".join(map(_signature, tools)))


def opening(choice: str, tools: Sequence[ToolSpec]) -> str:
    """The beginning of an answer that must call a tool; else empty."""
    if choice in ("auto", "none"):
        return ""
    names = [choice.removeprefix("tool:")] if choice.startswith("tool:") else [tool.name for tool in tools]
    begun = f'{OPENING}\n{{"name": "'
    return f'{begun}{json.dumps(names[0], ensure_ascii=False)[1:]}, "arguments":' if len(names) == 1 else begun


def begun_call(text: str) -> str:
    """The end of a text with which a call begins that is not over; empty if there is none."""
    at = text.rfind(OPENING)
    if at >= 0 and CLOSING not in text[at:]:
        return text[at:]
    return text[len(text) - overlap(text, [OPENING]) :]


def schema_text(schema: Mapping[str, Any], *, strict: bool) -> str:
    """A JSON schema as text. Without `strict`, what cannot be obeyed in it is left out, and not refused."""
    return _to_json({**schema, "x-guidance": {**LAYOUT, "lenient": not strict}})


def restrict_calls(asked: Conversation) -> Form | None:
    """The form of an answer that may call tools, from its `opening` on; None if it is free.

    Every call of an answer that has to call has the arguments that its tool wants, and so has every call if a tool is
    strict. With a form of the caller's, an answer is that or calls. A ValueError if the form cannot stand beside calls.
    """
    choice = asked.tool_choice
    tools = asked.tools
    form = asked.drawing.form
    if choice == "none" or not tools:
        return form
    forced = opening(choice, tools)
    if not forced and form is None and not any(tool.strict for tool in tools):
        return None
    heads = [f'{OPENING}\n{{"name": {_to_json(tool.name)}, "arguments": ' for tool in tools]
    chosen = [at for at, tool in enumerate(tools) if choice in ("auto", "required", f"tool:{tool.name}")]
    more = "" if choice.startswith("tool:") or not asked.parallel_tool_calls else ' ("\\n" call)*'
    if forced:
        rules = [f"start: first{more}", _calls("first", chosen, heads, after=forced)]
    elif form is None:
        # text of any kind, but after the opening tag comes a call
        rules = ["start: (lead rest)* TEXT", f"lead[lazy]: TEXT {_to_json(OPENING)}", r"TEXT: /(.|\n)*/"]
        rules.append(_calls("rest", chosen, heads, after=OPENING))
    else:
        rules = [f"start: answer | call{more}", f"answer: {_embed(form)}"]
    if "call" in rules[0]:
        rules.append(_calls("call", chosen, heads))
    for at in chosen:
        schema = {"type": "object", **tools[at].parameters}
        rules.append(f"args_{at}: %json {schema_text(schema, strict=tools[at].strict)}")
    return Form("grammar", "\n".join(rules))


def _calls(rule: str, chosen: Sequence[int], heads: Sequence[str], *, after: str = "") -> str:
    """A rule of a call, of which this much is there already."""
    end = _to_json("}\n" + CLOSING)
    return f"{rule}: " + " | ".join(f"{_to_json(heads[at].removeprefix(after))} args_{at} {end}" for at in chosen)


def _embed(form: Form) -> str:
    """A form as a part of a grammar."""
    match form.kind:
        case "json":
            return f"%json {schema_text({'type': 'object'}, strict=True)}"
        case "schema":
            return f"%json {form.text}"
        case "choice":
            return " | ".join(map(_to_json, json.loads(form.text)))
        case kind:
            raise ValueError(f"form={kind} beside tools is not supported. Set tool_choice to none, or send a schema.")


def _text(said: ChatMessage) -> str:
    """A message's text, with its calls written out."""
    return "\n".join([*([said.text] if said.text or not said.calls else []), *map(write_call, said.calls)])


def _signature(tool: ToolSpec) -> str:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False)
