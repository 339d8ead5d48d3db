"""A language policy behind the gateway: conversations become token ids here, and sampled ids become text and calls."""

import asyncio
import codecs
import math
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from loomrl.errors import PolicyError
from loomrl.inference.chat import Spelling
from loomrl.inference.engine import CompletionPiece, FinishReason, Unsupported
from loomrl.inference.policy import Voice
from loomrl.inference.weights.sealed import Sealed
from loomrl.serving.call import (
    ChoiceClosed,
    Event,
    PromptOpened,
    Token,
    TokenCandidate,
    TokensDrawn,
    ToolCall,
    join_tokens,
)
from loomrl.serving.policy import About, ActRequest, ActResult, Continuation
from loomrl.serving.preparation import Preparation, PreparedRequest
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.repeat import merge
from loomrl.serving.wording import CallReader, overlap


class Writing:
    """Turns tokens into text that no later token changes: pieces of characters and of stop strings are held back.

    With a `reader`, calls are taken out of the text. `forced` is the answer's beginning, which was not sampled. The
    caller's own part of it, `hidden` characters, is shown only within a call.
    """

    def __init__(
        self,
        spelling: Spelling,
        *,
        stop: Sequence[str] = (),
        reader: CallReader | None = None,
        forced: str = "",
        hidden: int = 0,
    ) -> None:
        self.stopped_by = ""
        """The stop string that came."""
        self._spelling = spelling
        self._stop = stop
        self._reader = reader
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self._tail = ""
        """Text with which a stop string may begin."""
        self._hidden = hidden
        self._parts: list[str] = []
        self._keep("" if reader is None else reader.add(forced))

    @property
    def text(self) -> str:
        """All text that is certain."""
        return "".join(self._parts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls that are whole."""
        return tuple(self._reader.calls) if self._reader else ()

    def add(self, id: int) -> str:
        """The text that is certain with one more token."""
        return self._take(self._search(self._bytes.decode(self._spelling[id])))

    def end(self, *, is_cut: bool = False) -> str:
        """The rest of the text; if the answer was cut, without the call that it ends in."""
        rest = "" if self.stopped_by else self._search(self._bytes.decode(b"", final=True))
        rest = self._read(rest) + self._read("" if self.stopped_by else self._tail)
        self._tail = ""
        return self._keep(rest + (self._reader.end(is_cut=is_cut) if self._reader else ""))

    def _take(self, text: str) -> str:
        return self._keep(self._read(text))

    def _keep(self, text: str) -> str:
        if self._hidden:
            cut = 0 if self.calls else min(self._hidden, len(text))
            self._hidden = 0 if self.calls else self._hidden - cut
            text = text[cut:]
        self._parts.append(text)
        return text

    def _read(self, text: str) -> str:
        return self._reader.add(text) if self._reader and text else text

    def _search(self, text: str) -> str:
        """The text before the stop string that is complete first, or before what may become one."""
        text = self._tail + text
        found = min(((at + len(one), at, one) for one in self._stop if (at := text.find(one)) >= 0), default=None)
        if found is not None:
            self._tail = ""
            self.stopped_by = found[2]
            return text[: found[1]]
        certain = len(text) - overlap(text, self._stop)
        self._tail = text[certain:]
        return text[:certain]


LONG = 1 << 15
"""Characters of a conversation that is tokenised in a thread."""
RETRY_S = 1.0
"""Pause before a caller's next try after the engine failed."""
PACE_S = 0.02
"""Tokens that are drawn within this time after a piece leave in the next one, since every piece costs its way through
gateway and network. The first piece and the last one wait for nothing. Shorter than the pauses of an engine that
gathers tokens itself, so that none waits twice.
"""


class LanguageServedPolicy:
    """A ServedPolicy: samples from an engine, in the words of a chat template."""

    def __init__(self, voice: Voice, *, version: str = "", number: int | None = None) -> None:
        """`number` is the version's, unless it is the engine's own."""
        self._voice = voice
        self._chat = voice.chat
        self._preparation = Preparation(voice)
        self._long = asyncio.Semaphore(1)
        self._about = About(
            kind="language",
            version=version,
            number=voice.engine.version if number is None else number,
            context=voice.context,
            sees=voice.chat.sees,
            weighs=voice.chat.objectives,
        )

    @property
    def about(self) -> About:
        """The policy's description."""
        return self._about

    async def load(self, sealed: Sealed) -> None:
        """Sample with these weights from the next token on, as the engine's `load`; with an adapter from the next
        request on.
        """
        voice = self._voice
        if voice.adapter:
            await voice.engine.add_adapter(voice.adapter, sealed)
        else:
            await voice.engine.load(sealed)

    async def close(self) -> None:
        """Close the engine. Open answers end with a Refusal."""
        await self._voice.engine.close()

    async def act(self, act: ActRequest) -> ActResult:
        """Not supported: a Refusal."""
        raise Refusal(RefusalCause.INVALID, "this policy answers in words. Ask it through a chat or completions API.")

    async def answer(self, continuation: Continuation) -> AsyncGenerator[Event, None]:
        """The events of all choices, each choice's in order; a Refusal before the first one if it cannot be answered.

        A Refusal (UNAVAILABLE) later if the engine fails. Closing it ends the sampling.
        """
        task = await self._prepare(continuation)
        count = continuation.drawing.n
        echoed = await self._echo(task) if continuation.drawing.echo else ()
        if continuation.drawing.max_tokens == 0:
            for index in range(count):
                yield PromptOpened(index=index, ids_T=task.opened_T, tokens=echoed)
                yield ChoiceClosed(index=index, text="", finish="length")
            return
        choices = [self._choice(task, index, echoed) for index in range(count)]
        async with aclosing(choices[0] if count == 1 else merge(choices)) as events:
            async for event in events:
                yield event

    async def _prepare(self, continuation: Continuation) -> PreparedRequest:
        """The task; long text is tokenised in a thread, so that others do not wait for it."""
        prompt = continuation.prompt
        texts = [prompt] if isinstance(prompt, str) else [said.text for said in continuation.messages]
        if sum(map(len, texts)) < LONG:
            return self._preparation.task(continuation)
        async with self._long:
            return await asyncio.to_thread(self._preparation.task, continuation)

    async def _echo(self, task: PreparedRequest) -> tuple[Token, ...]:
        """The prompt's tokens; with their log-probabilities, if they are asked for."""
        ids = task.request.prompt_T.tolist()
        if not task.continuation.drawing.logprobs:
            return tuple(Token(drawn=self._candidate(id, math.nan)) for id in ids)
        try:
            found = await self._voice.engine.score(task.request)
        except Unsupported as error:
            raise Refusal(RefusalCause.INVALID, str(error)) from error
        except PolicyError as error:
            raise Refusal(RefusalCause.UNAVAILABLE, str(error), retry_after_s=RETRY_S) from error
        rows = zip(found.ids_TK.tolist(), found.logprobs_TK.tolist(), strict=True)
        scored = [tuple(map(self._candidate, ids_K, logprobs_K)) for ids_K, logprobs_K in rows]
        return (
            Token(drawn=self._candidate(ids[0], math.nan)),
            *(Token(drawn=own, top=tuple(likeliest)) for own, *likeliest in scored),
        )

    async def _choice(
        self, task: PreparedRequest, index: int, echoed: tuple[Token, ...]
    ) -> AsyncGenerator[Event, None]:
        """The events of one choice."""
        asked = task.continuation
        reads = bool(asked.tools) and asked.tool_choice != "none"
        writing = Writing(
            self._chat.spelling,
            stop=asked.drawing.stop,
            reader=CallReader() if reads else None,
            forced=task.forced,
            hidden=len(task.forced) if asked.prefill else 0,
        )
        sights = tuple(sight.start for sight in task.request.sights[len(asked.pictures) :])
        opened: PromptOpened | None = PromptOpened(index=index, ids_T=task.opened_T, sights=sights, tokens=echoed)
        request = replace(task.request, seed=(task.request.seed + index) % 2**63)
        waiting = list[TokensDrawn]()
        next_at = 0.0
        try:
            async with aclosing(self._voice.engine.stream(request)) as pieces:
                async for piece in pieces:
                    if opened is not None:  # now the engine has accepted the request
                        yield opened
                        opened = None
                    drawn, finish = self._draw_event(piece, writing, asked, index)
                    if len(drawn.ids_T) or drawn.text:
                        waiting.append(drawn)
                    if waiting and (finish is not None or time.perf_counter() >= next_at):
                        yield join_tokens(waiting)
                        waiting = []
                        next_at = time.perf_counter() + PACE_S
                    if finish is not None:
                        break
        except Unsupported as error:
            raise Refusal(RefusalCause.INVALID, str(error)) from error
        except PolicyError as error:
            if waiting:
                yield join_tokens(waiting)
            raise Refusal(RefusalCause.UNAVAILABLE, str(error), retry_after_s=RETRY_S) from error
        assert finish is not None, "an engine's last piece says why it ended"
        yield ChoiceClosed(
            index=index,
            text=writing.text,
            calls=writing.calls,
            finish="length" if finish is FinishReason.LENGTH else "tool_calls" if writing.calls else "stop",
            stopped_by=writing.stopped_by,
        )

    def _draw_event(
        self, piece: CompletionPiece, writing: Writing, asked: Continuation, index: int
    ) -> tuple[TokensDrawn, FinishReason | None]:
        """The event of a piece up to the token that ends the answer, and the reason if there is one."""
        text = ""
        count = 0
        finish = piece.finish
        for id in piece.ids_T.tolist():
            count += 1
            if id in self._chat.stop:
                break
            text += writing.add(id)
            if writing.stopped_by or (writing.calls and not asked.parallel_tool_calls):
                finish = FinishReason.STOP
                break
        if finish is not None:
            text += writing.end(is_cut=finish is FinishReason.LENGTH)
        drawn = TokensDrawn(
            index=index,
            ids_T=piece.ids_T[:count],
            logprobs_T=piece.logprobs_T[:count],
            versions_T=piece.versions_T[:count],
            text=text,
            tokens=self._tokens(piece, count) if asked.drawing.logprobs else (),
            shifts_T=None if piece.shifts_T is None else piece.shifts_T[:count],
        )
        return drawn, finish

    def _tokens(self, piece: CompletionPiece, count: int) -> tuple[Token, ...]:
        """The tokens with their bytes, without the end of the turn, which is no part of the text."""
        pairs = list(zip(piece.ids_T[:count].tolist(), piece.logprobs_T[:count].tolist(), strict=True))
        if pairs and pairs[-1][0] in self._chat.stop:
            pairs.pop()
        top = (
            [()] * count
            if piece.top is None
            else [
                tuple(map(self._candidate, ids, logprobs))
                for ids, logprobs in zip(piece.top.ids_TK.tolist(), piece.top.logprobs_TK.tolist(), strict=True)
            ]
        )
        return tuple(Token(drawn=self._candidate(*pair), top=best) for pair, best in zip(pairs, top, strict=False))

    def _candidate(self, id: int, logprob: float) -> TokenCandidate:
        return TokenCandidate(id=id, token=self._chat.spelling[id], logprob=logprob)
