"""Served policies without tokens: oracles, programs, other servers."""

import json
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, Protocol

import numpy as np

from loomrl.serving.answer import Closed, Drawn, Event, Opened
from loomrl.serving.policy import About, Act, Acted, Continuation
from loomrl.serving.reading import Reader
from loomrl.serving.refusal import Cause, Refusal
from loomrl.serving.wording import worded
from loomrl.types import NO_VERSION, Message


class Said(Protocol):
    """Gives the next text of a conversation."""

    def __call__(self, conversation: tuple[Message, ...]) -> Awaitable[str]:
        """The text, with calls as a policy writes them."""


class Scripted:
    """A ServedPolicy without a model: an oracle, a program, another server. Its ids are the bytes of its messages."""

    def __init__(self, says: Said, *, tool_role: bool = True) -> None:
        self._says = says
        self._tool_role = tool_role
        self.conversations: list[tuple[Message, ...]] = []
        """Every conversation up to now, with its answer, in the order of the answers."""

    @property
    def about(self) -> About:
        """It has no version."""
        return About(kind="language", version="scripted", number=NO_VERSION, context=2**31)

    async def act(self, act: Act) -> Acted:
        """Always a Refusal."""
        raise Refusal(Cause.INVALID, "this policy answers in words.")

    async def answer(self, continuation: Continuation) -> AsyncIterator[Event]:
        """The text, at once."""
        known_T = continuation.known_T
        tools = () if len(known_T) else continuation.tools
        new = worded(continuation.messages, tools, tool_role=self._tool_role)
        conversation = (*_read(known_T), *new)
        try:
            text = await self._says(conversation)
        except Exception as error:  # the boundary: whoever speaks here
            raise Refusal(Cause.UNAVAILABLE, f"{type(error).__name__}: {error}") from error
        said = Message("assistant", text)
        self.conversations.append((*conversation, said))
        reader = Reader()
        shown = reader.add(text) + reader.end()
        yield Opened(ids_T=_written(new))
        ids_T = _written([said])
        nothing = np.zeros(len(ids_T), np.float32)
        yield Drawn(ids_T=ids_T, logprobs_T=nothing, versions_T=np.full(len(ids_T), NO_VERSION, np.int32), text=shown)
        calls = tuple(reader.calls)
        yield Closed(text=shown, calls=calls, finish="tool_calls" if calls else "stop")


def _written(messages: Sequence[Message]) -> Any:
    lines = "".join(f"{json.dumps([message.role, message.content])}\n" for message in messages)
    return np.frombuffer(lines.encode(), np.uint8).astype(np.int32)


def _read(ids_T: Any) -> tuple[Message, ...]:
    lines = ids_T.astype(np.uint8).tobytes().decode().splitlines()
    return tuple(Message(*json.loads(line)) for line in lines)
