"""Threads of a session: the earlier answer that a conversation continues, found by hashes of its beginnings.

A mark stands for a beginning of a conversation: its tools and its messages so far. Messages of the assistant are equal
if role, text without outer spaces, and calls (name and arguments as JSON) are equal; ids of calls do not count.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loomrl.serving.call import ChatMessage, ChatRequest, ToolCall, ToolSpec
from loomrl.serving.policy import Continuation, Picture

Ids = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownBeginning:
    """The longest beginning of a conversation that ends with an answer on record."""

    call: str
    index: int
    """The answer's choice."""
    ids_T: Ids
    """The whole thread up to and including the answer."""
    pictures: tuple[Picture, ...] = ()
    messages: int
    """The number of messages of the conversation that it covers."""

    @property
    def parent(self) -> str:
        """The answer's name, as calls refer to it."""
        return f"{self.call}/{self.index}"


@dataclass(frozen=True, slots=True, eq=False)
class RecalledConversation:
    """A conversation on record that a caller names by the id of its last answer."""

    messages: tuple[ChatMessage, ...]
    instructed: bool = False
    """The first message is the caller's instructions."""
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"


@dataclass(slots=True, kw_only=True, eq=False)
class RecordedAnswer:
    """An answer on record and the way to it. Its ids are only what is new since its parent."""

    call: str
    index: int
    mark: bytes
    """Empty if its text may not be recognised: it began with a bare prompt."""
    messages: int
    """Messages of the conversation, with the answer."""
    opened_T: Ids
    ids_T: Ids
    pictures: tuple[Picture, ...] = ()
    """The new ones."""
    said: tuple[ChatMessage, ...] = ()
    """The new messages, the answer last."""
    instructed: bool = False
    """The thread's first message is the caller's instructions."""
    tools: tuple[ToolSpec, ...] = ()
    """Those of the thread, with its first answer."""
    tool_choice: str = "auto"
    parent: "RecordedAnswer | None" = None
    continued: bool = False
    redacted: bool = False
    """Its ids, or those before it, may not be stored."""

    @property
    def name(self) -> str:
        """The name by which calls refer to it."""
        return f"{self.call}/{self.index}"

    @property
    def size(self) -> int:
        """About its bytes in memory."""
        texts = sum(len(said.text) for said in self.said)
        pictures = sum(len(picture.png) for picture in self.pictures)
        return 500 + self.opened_T.nbytes + self.ids_T.nbytes + texts + pictures

    def beginning(self) -> KnownBeginning:
        """With all ids since the beginning of the thread."""
        way = self._way()
        ids_T = np.concatenate([part_T for one in way for part_T in (one.opened_T, one.ids_T)]).astype(np.int32)
        pictures = tuple(picture for one in way for picture in one.pictures)
        return KnownBeginning(call=self.call, index=self.index, ids_T=ids_T, pictures=pictures, messages=self.messages)

    def recalled(self) -> "RecalledConversation":
        """All messages since the beginning of the thread."""
        way = self._way()
        return RecalledConversation(
            messages=tuple(said for one in way for said in one.said),
            instructed=way[0].instructed,
            tools=way[0].tools,
            tool_choice=self.tool_choice,
        )

    def _way(self) -> "list[RecordedAnswer]":
        way = [self]
        while (earlier := way[-1].parent) is not None:
            way.append(earlier)
        return way[::-1]


@dataclass(slots=True)
class SessionThreads:
    """The answers of one session, by name and by mark."""

    named: dict[str, RecordedAnswer] = field(default_factory=dict)
    marked: dict[bytes, list[RecordedAnswer]] = field(default_factory=dict)
    size: int = 0
    """About its bytes in memory."""

    def add(self, spoken: RecordedAnswer) -> None:
        """Take an answer; its parent counts as continued from now on."""
        if spoken.name in self.named:
            return
        self.named[spoken.name] = spoken
        self.size += spoken.size
        if spoken.mark:
            self.marked.setdefault(spoken.mark, []).append(spoken)
        if spoken.parent is not None:
            spoken.parent.continued = True

    def remove(self, name: str) -> None:
        """Forget an answer that could not be stored."""
        spoken = self.named.pop(name, None)
        if spoken is None:
            return
        self.size -= spoken.size
        if spoken.mark:
            self.marked[spoken.mark].remove(spoken)

    def longest(self, ask: ChatRequest) -> RecordedAnswer | None:
        """The answer that ends the longest known beginning; among equal ones the latest that was not continued."""
        found = marks(ask)
        for count in _answers(ask):
            if same := self.marked.get(found[count]):
                return next((one for one in reversed(same) if not one.continued), same[-1])
        return None

    def is_newest(self, ask: ChatRequest, spoken: RecordedAnswer | None) -> bool:
        """True if no answer still to be stored could continue more of the conversation."""
        latest = next(iter(_answers(ask)), 0)
        return latest == (0 if spoken is None else spoken.messages)


def continuation(ask: ChatRequest, known: KnownBeginning | None) -> Continuation:
    """The question to a policy: the known ids, and the messages after them."""
    return Continuation(
        known_T=np.zeros(0, np.int32) if known is None else known.ids_T,
        pictures=() if known is None else known.pictures,
        messages=ask.messages if known is None else ask.messages[known.messages :],
        prompt=ask.prompt,
        prefill=ask.prefill,
        tools=ask.tools,
        tool_choice=ask.tool_choice,
        parallel_tool_calls=ask.parallel_tool_calls,
        drawing=ask.drawing,
    )


def marks(ask: ChatRequest) -> tuple[bytes, ...]:
    """The mark before the first message, then the one after each message."""
    tools = [[tool.name, tool.description, tool.parameters] for tool in ask.tools]
    found = [_mark(b"", _json(tools))]
    calls: dict[str, int] = {}
    count = 0
    for said in ask.messages:
        found.append(_mark(found[-1], *_parts(said, calls)))
        for call in said.calls:
            calls[call.id] = count
            count = count + 1
    return tuple(found)


def answer_marks(ask: ChatRequest) -> list[bytes]:
    """The marks of the beginnings that end with an answer, the longest first."""
    found = marks(ask)
    return [found[count] for count in _answers(ask)]


def answer_mark(before: bytes, text: str, calls: Sequence[ToolCall]) -> bytes:
    """The mark after an answer, given the one of the conversation that it answers."""
    return _mark(before, *_parts(ChatMessage(role="assistant", text=text, calls=tuple(calls)), {}))


def _answers(ask: ChatRequest) -> list[int]:
    """Lengths of the beginnings that end with the assistant, longest first."""
    return [count for count in range(len(ask.messages), 0, -1) if ask.messages[count - 1].role == "assistant"]


def _parts(said: ChatMessage, calls: Mapping[str, int]) -> list[bytes]:
    """A message as what counts of it; a tool's answer names its call by position."""
    answers = str(calls.get(said.answers, "")) if said.answers else ""
    text = said.text.strip() if said.role == "assistant" else said.text
    words = [said.role, text, answers, *(part for call in said.calls for part in (call.name, _same(call.arguments)))]
    return [_json(words), *(blake2b(image, digest_size=16).digest() for image in said.images)]


def _same(arguments: str) -> str:
    """One text for equal arguments."""
    try:
        return _json(json.loads(arguments)).decode()
    except (ValueError, RecursionError):
        return arguments.strip()


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _mark(before: bytes, *parts: bytes) -> bytes:
    digest = blake2b(before, digest_size=20)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()
