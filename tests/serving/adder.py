"""A policy of a script that real clients talk to: it calls `add` for two numbers, and says the sum that comes back."""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import numpy as np

from loomrl.serving.call import (
    ChatMessage,
    ChoiceClosed,
    Event,
    Finish,
    PromptOpened,
    Token,
    TokenCandidate,
    TokensDrawn,
    ToolCall,
)
from loomrl.serving.policy import About, ActRequest, ActResult, Continuation
from tests.serving.scripted import encoded, said

PIECE = 4
"""Characters of a delta."""


@dataclass
class Adder:
    """A ServedPolicy. It draws one id for each character."""

    asked: list[Continuation] = field(default_factory=list)

    @property
    def about(self) -> About:
        """Its description."""
        return About(kind="language", version="adder/1", number=1, context=1 << 20)

    async def act(self, act: ActRequest) -> ActResult:
        raise NotImplementedError

    async def answer(self, continuation: Continuation) -> AsyncIterator[Event]:
        """The same answer for each choice."""
        self.asked.append(continuation)
        text, calls = self._said(continuation)
        new = continuation.prompt if isinstance(continuation.prompt, tuple) else encoded(_rendered(continuation))
        finish: Finish = "tool_calls" if calls else "stop"
        for index in range(continuation.drawing.n):
            yield PromptOpened(index=index, ids_T=np.array(new, np.int32))
            for start in range(0, len(text), PIECE):
                yield _drawn(index, text[start : start + PIECE], logprobs=continuation.drawing.logprobs)
            if calls:
                yield _drawn(index, "".join(call.arguments for call in calls), text="")
            yield ChoiceClosed(index=index, text=text, calls=calls, finish=finish)

    def _said(self, continuation: Continuation) -> tuple[str, tuple[ToolCall, ...]]:
        tools = {tool.name for tool in continuation.tools}
        last = continuation.messages[-1] if continuation.messages else ChatMessage(role="user", text="Hello")
        asked = re.findall(r"(\d+) \+ (\d+)", last.text.rpartition("Observation:")[2])
        result = last.text if last.role == "tool" else last.text.rpartition("Observation:")[2]
        if "add" not in tools:
            return f"I have no tool for {last.text!r}.", ()
        if asked:
            a, b = map(int, asked[-1])
            return "Let me see.", (self._call("add", {"a": a, "b": b}),)
        if number := re.search(r"\d+", result):
            told = f"The sum is {number[0]}."
            return ("", (self._call("final_answer", {"answer": told}),)) if "final_answer" in tools else (told, ())
        return "What shall I add?", ()

    def _call(self, name: str, arguments: object) -> ToolCall:
        return ToolCall(id=f"call_{len(self.asked)}", name=name, arguments=json.dumps(arguments))


class Weigher(Adder):
    """Reads a preference."""

    @property
    def about(self) -> About:
        """Its description."""
        return replace(super().about, version="weigher/1", weighs=("right", "short"))


def _rendered(continuation: Continuation) -> str:
    return continuation.prompt if isinstance(continuation.prompt, str) else "".join(map(said, continuation.messages))


def _drawn(index: int, letters: str, *, text: str | None = None, logprobs: bool = False) -> TokensDrawn:
    ids_T = np.array(encoded(letters), np.int32)
    candidates = [
        TokenCandidate(id=int(i), token=c.encode(), logprob=-0.5) for i, c in zip(ids_T, letters, strict=True)
    ]
    return TokensDrawn(
        index=index,
        ids_T=ids_T,
        logprobs_T=np.full(len(ids_T), -0.5, np.float32),
        versions_T=np.ones(len(ids_T), np.int32),
        text=letters if text is None else text,
        tokens=tuple(Token(drawn=one, top=(one,)) for one in candidates) if logprobs else (),
    )
