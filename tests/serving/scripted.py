"""A policy of a script: it answers with what it is told to, in ids of its own, and logs every id that it drew."""

import json
import random
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from loomrl.serving.call import (
    ChatMessage,
    ChatRequest,
    ChoiceClosed,
    Drawing,
    Event,
    Finish,
    PromptOpened,
    Token,
    TokenCandidate,
    TokensDrawn,
    ToolCall,
    ToolSpec,
)
from loomrl.serving.policy import About, ActRequest, ActResult, Continuation
from loomrl.serving.recorder import Recorder
from loomrl.serving.recording.record import CallToRecord, SpokenChoice
from loomrl.serving.thread import KnownBeginning, continuation

END = 0


def encoded(text: str) -> list[int]:
    """One id for each character."""
    return [ord(letter) + 1 for letter in text]


def decoded(ids: "np.ndarray[tuple[int], np.dtype[np.int32]]") -> str:
    """The text of ids."""
    return "".join(chr(int(id) - 1) for id in ids if id > END)


def said(message: ChatMessage) -> str:
    """A message as the script renders it."""
    calls = "".join(f"<{call.name} {call.arguments}>" for call in message.calls)
    return f"[{message.role}:{message.text}{calls}]"


@dataclass(frozen=True, slots=True, eq=False)
class Logged:
    """One choice as the engine saw it."""

    context: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]


class Speaker:
    """A language policy that does not act."""

    about = About(kind="language", version="v", number=1, context=1 << 20)

    async def act(self, act: ActRequest) -> ActResult:
        raise NotImplementedError


def tokens_drawn(
    ids: Sequence[int],
    text: str = "",
    *,
    index: int = 0,
    logprobs: Sequence[float] | float = -0.5,
    versions: Sequence[int] | int = 1,
    tokens: tuple[Token, ...] = (),
) -> TokensDrawn:
    """The event of these ids; a number holds for each of them."""
    return TokensDrawn(
        index=index,
        ids_T=np.array(ids, np.int32),
        logprobs_T=np.full(len(ids), logprobs, np.float32),
        versions_T=np.full(len(ids), versions, np.int32),
        text=text,
        tokens=tokens,
    )


@dataclass
class Script(Speaker):
    """Answers at random, and logs what it drew."""

    rng: random.Random = field(default_factory=lambda: random.Random(0))
    log: list[Logged] = field(default_factory=list)
    version: int = 1

    async def answer(self, continuation: Continuation) -> AsyncIterator[Event]:
        """The same new ids for all choices; other answers for each."""
        opening = "" if continuation.known_T.size else "".join(tool.name for tool in continuation.tools)
        new = encoded(opening + "".join(map(said, continuation.messages)) + "[assistant:")
        if continuation.prompt is not None:
            new = encoded(continuation.prompt) if isinstance(continuation.prompt, str) else list(continuation.prompt)
        for index in range(continuation.drawing.n):
            text, calls, finish = self._answer(continuation)
            ids = encoded(text + "".join(f"<{call.name} {call.arguments}>" for call in calls))
            ids += [END] if finish != "length" else []
            logprobs = [-self.rng.random() for _ in ids]
            versions = [self.version + (at > len(ids) // 2) for at in range(len(ids))]
            context = (*map(int, continuation.known_T), *new)
            logged = Logged(context, tuple(ids), tuple(np.float32(logprobs).tolist()), tuple(versions))
            self.log.append(logged)
            yield PromptOpened(index=index, ids_T=np.array(new, np.int32))
            half = len(ids) // 2
            for part in (slice(0, half), slice(half, None)):
                yield tokens_drawn(ids[part], index=index, logprobs=logprobs[part], versions=versions[part])
            yield ChoiceClosed(index=index, text=text, calls=calls, finish=finish)

    def _answer(self, continuation: Continuation) -> "tuple[str, tuple[ToolCall, ...], str]":
        text = "".join(self.rng.choices("ab é漢🙂\n", k=self.rng.randint(1, 5)))
        calls: tuple[ToolCall, ...] = ()
        if continuation.tools and self.rng.random() < 0.5:
            arguments = f'{{"b": 1, "a": "{self.rng.randint(0, 2)}"}}'
            calls = (ToolCall(id=f"call{self.rng.random()}", name=continuation.tools[0].name, arguments=arguments),)
        cut = self.rng.random() < 0.2
        return text, calls, "length" if cut else "tool_calls" if calls else "stop"


@dataclass
class Desk:
    """A gateway in small: knows, answers, keeps."""

    recorder: Recorder
    policy: Script = field(default_factory=Script)
    key: str = "key"
    count: int = 0

    async def call(self, session: str, ask: ChatRequest, *, id: str = "") -> CallToRecord:
        """One call, kept."""
        known = await self.recorder.find_beginning(session, ask, key=self.key)
        call = await self.answered(session, ask, known, id=id)
        await self.recorder.keep(call)
        return call

    async def answered(
        self, session: str, ask: ChatRequest, known: KnownBeginning | None, *, id: str = ""
    ) -> CallToRecord:
        """One call, not kept yet."""
        self.count += 1
        events = [event async for event in self.policy.answer(continuation(ask, known))]
        return CallToRecord(
            id=id or f"{session}-{self.count}",
            session=session,
            endpoint="end",
            arm="stable",
            version="v",
            parent="" if known is None else known.parent,
            dialect="script",
            ask=ask,
            choices=tuple(choice(events, index) for index in range(ask.drawing.n)),
            key=self.key,
            started_at=float(self.count),
            finished_at=self.count + 0.5,
        )


def choice(events: list[Event], index: int) -> SpokenChoice:
    """One choice from its events."""
    mine = [event for event in events if event.index == index]
    drawn = [event for event in mine if isinstance(event, TokensDrawn)]
    (opened,) = [event for event in mine if isinstance(event, PromptOpened)]
    (closed,) = [event for event in mine if isinstance(event, ChoiceClosed)]
    return SpokenChoice(
        index=index,
        opened_T=opened.ids_T,
        ids_T=np.concatenate([one.ids_T for one in drawn]),
        logprobs_T=np.concatenate([one.logprobs_T for one in drawn]),
        versions_T=np.concatenate([one.versions_T for one in drawn]),
        text=closed.text,
        calls=closed.calls,
        finish=closed.finish,
    )


def ask(*messages: ChatMessage, tools: tuple[ToolSpec, ...] = (), n: int = 1) -> ChatRequest:
    """A conversation."""
    return ChatRequest(model="m", messages=messages, tools=tools, drawing=Drawing(n=n))


def user(text: str) -> ChatMessage:
    """A user's message."""
    return ChatMessage(role="user", text=text)


def reply(call: CallToRecord, index: int = 0, *, id: str = "") -> ChatMessage:
    """An answer as a client repeats it: outer spaces lost, ids and the layout of arguments its own."""
    one = call.choices[index]
    calls = tuple(
        ToolCall(id=id or f"other{at}", name=c.name, arguments=_laid_out_anew(c.arguments))
        for at, c in enumerate(one.calls)
    )
    return ChatMessage(role="assistant", text=one.text.strip(), calls=calls)


def _laid_out_anew(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), separators=(",", ":"), ensure_ascii=False)
    except ValueError:
        return arguments


PIECE = 4
"""Characters of a delta."""


@dataclass
class Adder(Speaker):
    """Adds with a tool. It draws one id for each character."""

    about = replace(Speaker.about, version="adder/1")
    asked: list[Continuation] = field(default_factory=list)

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
        add = next((name for name in tools if name.endswith("add")), None)
        last = continuation.messages[-1] if continuation.messages else ChatMessage(role="user", text="Hello")
        asked = re.findall(r"(\d+) \+ (\d+)", last.text.rpartition("Observation:")[2])
        result = last.text if last.role == "tool" else last.text.rpartition("Observation:")[2]
        if add is None:
            return f"I have no tool for {last.text!r}.", ()
        if asked:
            a, b = map(int, asked[-1])
            return "Let me see.", (self._call(add, {"a": a, "b": b}),)
        if number := re.search(r"\d+", result):
            told = f"The sum is {number[0]}."
            return ("", (self._call("final_answer", {"answer": told}),)) if "final_answer" in tools else (told, ())
        return "What shall I add?", ()

    def _call(self, name: str, arguments: object) -> ToolCall:
        return ToolCall(id=f"call_{len(self.asked)}", name=name, arguments=json.dumps(arguments))


class Weigher(Adder):
    """Reads a preference."""

    about = replace(Speaker.about, version="weigher/1", weighs=("right", "short"))


def _rendered(continuation: Continuation) -> str:
    return continuation.prompt if isinstance(continuation.prompt, str) else "".join(map(said, continuation.messages))


def _drawn(index: int, letters: str, *, text: str | None = None, logprobs: bool = False) -> TokensDrawn:
    ids = encoded(letters)
    candidates = [TokenCandidate(id=i, token=c.encode(), logprob=-0.5) for i, c in zip(ids, letters, strict=True)]
    tokens = tuple(Token(drawn=one, top=(one,)) for one in candidates) if logprobs else ()
    return tokens_drawn(ids, letters if text is None else text, index=index, tokens=tokens)
