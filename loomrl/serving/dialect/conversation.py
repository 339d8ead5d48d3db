"""Rules of a conversation that hold in every dialect."""

from collections.abc import Sequence
from dataclasses import replace

from loomrl.picture import MOST
from loomrl.serving.call import Said, Tool, ToolCall
from loomrl.serving.dialect.fields import invalid

MOST_MESSAGES = 4096
MOST_PARTS = 256
"""Parts of one message."""
MOST_CALLS = 128
"""Calls of one message."""
MOST_TOOLS = 512
BETWEEN = "\n"
"""Between the text parts of one message."""


class Conversation:
    """Messages as they are read. Tools answer calls before them; a conversation ends before the policy's turn."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._said = list[Said]()
        self._called: dict[str, str] = {}

    def add(self, said: Said, where: str) -> None:
        """The next message."""
        if said.role == "tool" and said.answers not in self._called:
            raise invalid(where, f"a tool answers {said.answers!r}, and no message before it has a call of this id.")
        if len(said.images) > MOST:
            raise invalid(where, f"{len(said.images)} pictures in one message are more than {MOST}.")
        self._called.update({call.id: call.name for call in said.calls})
        self._said.append(said)

    def last(self) -> Said | None:
        """The newest message."""
        return self._said[-1] if self._said else None

    def amend(self, call: ToolCall) -> None:
        """One more call of the last message."""
        self._called[call.id] = call.name
        self._said[-1] = replace(self._said[-1], calls=(*self._said[-1].calls, call))

    def named(self, call: str) -> str:
        """The tool of a call."""
        return self._called[call]

    def end(self) -> tuple[Said, ...]:
        """All messages."""
        if not self._said:
            raise invalid(self._where, "the conversation has no message.")
        if self._said[-1].role == "assistant":
            raise invalid(self._where, "the last message is the assistant's, which is not continued: add one.")
        return tuple(self._said)


def check_tools(tools: Sequence[Tool], choice: str, where: str = "tool_choice") -> None:
    """Tools differ by name, and a choice is one of them."""
    names = [tool.name for tool in tools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise invalid("tools", f"two tools are named {twice!r}.")
    if choice == "required" and not tools:
        raise invalid(where, "a call is required, and there are no tools.")
    if choice.startswith("tool:") and choice.removeprefix("tool:") not in names:
        raise invalid(where, f"no tool is named {choice.removeprefix('tool:')!r}. Known: {', '.join(names) or 'none'}.")
