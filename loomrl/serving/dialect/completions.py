"""OpenAI's completions: a text or token ids, continued."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import isnan
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from typing_extensions import override

from loomrl.serving.body import Whole, invalid, only, read_body
from loomrl.serving.call import (
    AnswerChoice,
    ChatAnswer,
    ChatRequest,
    ChoiceClosed,
    Event,
    Finish,
    Heading,
    Prompt,
    PromptOpened,
    Token,
    TokenCandidate,
    TokensDrawn,
)
from loomrl.serving.dialect.dialect import PLAIN, Reading, unsent
from loomrl.serving.dialect.openai import (
    MOST_CHOICES,
    ChunkStream,
    SamplingBody,
    bound_logprob,
    error_of,
    finish_of,
    head_of,
    usage_of,
)
from loomrl.serving.refusal import Refusal

MOST_TOP = 20
MAX_TOKENS = 16
"""This API's own default."""
LARGEST_ID = (1 << 31) - 1


def _read_prompts(given: Any) -> tuple[Prompt, ...]:
    """One prompt or several, each a text or ids."""
    several = given if isinstance(given, list) and given and isinstance(given[0], str | list) else [given]
    wrong = next((one for one in several if not (isinstance(one, str) or _is_ids(one))), None)
    if wrong is not None or len(several) > MOST_CHOICES:
        raise ValueError(
            f"it must be a text, a list of ids from 0 to {LARGEST_ID}, or a list of 1 to {MOST_CHOICES} such prompts."
        )
    return tuple(one if isinstance(one, str) else tuple(one) for one in several)


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_id, value))


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_ID


class CompletionBody(SamplingBody):
    """The request."""

    prompt: Annotated[tuple[Prompt, ...], BeforeValidator(_read_prompts)]
    max_tokens: Annotated[Whole, Field(ge=0, le=1 << 31)] | None = None
    logprobs: Annotated[Whole, Field(ge=0, le=MOST_TOP)] | None = None
    echo: bool = False
    best_of: Any = None
    suffix: Annotated[Any, only("")] = None


class CompletionsDialect:
    """`POST /v1/completions`."""

    path = "/v1/completions"

    def read(self, body: Mapping[str, Any], reading: Reading = PLAIN) -> ChatRequest:
        """The request."""
        text = read_body(CompletionBody, body, ignored=reading.ignored)
        if text.best_of not in (None, text.n):
            raise invalid("best_of", f"{text.best_of} is not supported. Only {text.n} is, the number of answers.")
        if text.max_tokens == 0 and not text.echo:
            raise invalid("max_tokens", "0 tokens are for a prompt that is repeated: set echo.")
        if (count := text.n * len(text.prompt)) > MOST_CHOICES:
            raise invalid(
                "prompt", f"{len(text.prompt)} prompts with n={text.n} are {count} answers, at most {MOST_CHOICES}."
            )
        drawing = text.drawing(
            max_tokens=MAX_TOKENS if text.max_tokens is None else text.max_tokens,
            logprobs=text.logprobs is not None,
            top=text.logprobs or 0,
            form=text.form(),
        )
        return ChatRequest(
            model=text.model,
            prompt=text.prompt[0],
            further=text.prompt[1:],
            drawing=replace(drawing, echo=text.echo),
            stream=text.stream,
            stream_usage=text.wants_usage,
            store=text.store,
            user=text.user or text.safety_identifier,
        )

    def whole(self, ask: ChatRequest, answer: ChatAnswer) -> dict[str, Any]:
        """The answer."""
        choices = [_choice(index, choice, ask) for index, choice in enumerate(answer.choices)]
        head = head_of(answer.heading, "text_completion", prefix="cmpl")
        return head | {"choices": choices, "usage": usage_of(answer.usage)}

    def stream(self, ask: ChatRequest) -> "CompletionStream":
        """The answer's writer."""
        return CompletionStream(ask)

    def refusal(self, refusal: Refusal) -> dict[str, Any]:
        """The error's body."""
        return error_of(refusal)


class CompletionStream(ChunkStream):
    """Pieces of text."""

    def __init__(self, ask: ChatRequest) -> None:
        super().__init__(ask)
        self._offset = [0] * ask.choices

    def begin(self, heading: Heading) -> bytes:
        """Nothing yet: the prompt comes with its tokens."""
        self._head = head_of(heading, "text_completion", prefix="cmpl")
        return b""

    def write(self, event: Event) -> bytes:
        """New text with the tokens that were drawn."""
        if isinstance(event, PromptOpened):
            return self._echo(event) if self._ask.drawing.echo else b""
        if isinstance(event, TokensDrawn):
            tokens = event.tokens if self._ask.drawing.logprobs else ()
            self._sent[event.index] += event.text
            return self._piece(event.index, event.text, tokens=tokens) if event.text or tokens else b""
        if not isinstance(event, ChoiceClosed):
            return b""
        self._finish[event.index] = event.finish
        rest = unsent(self._sent[event.index], event.text)
        return self._piece(event.index, rest) if rest else b""

    @override
    def _end(self, index: int, finish: Finish | None) -> bytes:
        return self._chunk(index, None, _finish(finish), text="")

    def _echo(self, event: PromptOpened) -> bytes:
        text = _echoed(self._ask, event.index, event.tokens)
        self._offset[event.index] = len(text) - _length(event.tokens)
        return self._piece(event.index, text, tokens=event.tokens if self._ask.drawing.logprobs else ())

    def _piece(self, index: int, text: str, *, tokens: Sequence[Token] = ()) -> bytes:
        logprobs = _logprobs(tokens, self._offset[index]) if tokens else None
        self._offset[index] += _length(tokens)
        return self._chunk(index, logprobs, None, text=text)


def _echoed(ask: ChatRequest, index: int, tokens: Sequence[Token]) -> str:
    """The prompt of a choice: as it was sent, or the text of its ids."""
    prompt = (ask.prompt, *ask.further)[index // ask.drawing.n]
    return prompt if isinstance(prompt, str) else b"".join(one.drawn.token for one in tokens).decode(errors="replace")


def _length(tokens: Sequence[Token]) -> int:
    return sum(len(_text(token.drawn)) for token in tokens)


def _choice(index: int, choice: AnswerChoice, ask: ChatRequest) -> dict[str, Any]:
    echo = _echoed(ask, index, choice.prompt) if ask.drawing.echo else ""
    tokens = (*choice.prompt, *choice.tokens)
    logprobs = _logprobs(tokens, len(echo) - _length(choice.prompt)) if ask.drawing.logprobs else None
    text = echo + choice.closed.text
    finish = _finish(choice.closed.finish)
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}


def _finish(finish: Finish | None) -> str:
    return finish_of(finish) if finish in ("length", "filtered") else "stop"


def _logprobs(tokens: Sequence[Token], offset: int) -> dict[str, Any]:
    """`offset` is below 0 where a prompt's tokens are longer than its text, by what the tokenizer put before it."""
    offsets = []
    for token in tokens:
        offsets.append(max(0, offset))
        offset += len(_text(token.drawn))
    return {
        "tokens": [_text(token.drawn) for token in tokens],
        "token_logprobs": [_logprob(token) for token in tokens],
        "top_logprobs": [_top(token) for token in tokens],
        "text_offset": offsets,
    }


def _logprob(token: Token) -> float | None:
    return None if isnan(token.drawn.logprob) else bound_logprob(token.drawn.logprob)


def _top(token: Token) -> dict[str, float] | None:
    if _logprob(token) is None:
        return None
    return {_text(one): bound_logprob(one.logprob) for one in chain(token.top, (token.drawn,))}


def _text(candidate: TokenCandidate) -> str:
    return candidate.token.decode(errors="replace")
