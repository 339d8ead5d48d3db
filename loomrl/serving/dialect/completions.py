"""OpenAI's completions: a text or token ids, continued."""

from collections.abc import Mapping, Sequence
from itertools import chain
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
    Token,
    TokenCandidate,
    TokensDrawn,
)
from loomrl.serving.dialect.dialect import unsent
from loomrl.serving.dialect.openai import (
    ChunkStream,
    SamplingBody,
    bound_logprob,
    error_of,
    finish_of,
    head_of,
    usage_of,
)
from loomrl.serving.refusal import Refusal

MOST_TOP = 5
MAX_TOKENS = 16
"""This API's own default."""
LARGEST_ID = (1 << 31) - 1


def _read_prompt(prompt: Any) -> str | tuple[int, ...]:
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and prompt and all(isinstance(one, str | list) for one in prompt):
        raise ValueError(f"{len(prompt)} prompts in a request are not supported: send one.")
    if not isinstance(prompt, list) or not prompt or not all(map(_is_id, prompt)):
        raise ValueError(f"it must be a text, a list of ids from 0 to {LARGEST_ID}, or a list of one such prompt.")
    return tuple(prompt)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_ID


class CompletionBody(SamplingBody):
    """The request."""

    prompt: Annotated[str | tuple[int, ...], BeforeValidator(_read_prompt)]
    logprobs: Annotated[Whole, Field(ge=0, le=MOST_TOP)] | None = None
    echo: bool = False
    best_of: Any = None
    suffix: Annotated[Any, only("")] = None


class CompletionsDialect:
    """`POST /v1/completions`."""

    path = "/v1/completions"

    def read(self, body: Mapping[str, Any]) -> ChatRequest:
        """The request."""
        text = read_body(CompletionBody, body)
        if text.best_of not in (None, text.n):
            raise invalid("best_of", f"{text.best_of} is not supported. Only {text.n} is, the number of answers.")
        return ChatRequest(
            model=text.model,
            prompt=text.prompt,
            drawing=text.drawing(
                max_tokens=MAX_TOKENS if text.max_tokens is None else text.max_tokens,
                logprobs=text.logprobs is not None,
                top=text.logprobs or 0,
                form=text.form(),
            ),
            stream=text.stream,
            stream_usage=text.wants_usage,
            echo=_echo(text),
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
        self._offset = [len(_echo_text(ask))] * ask.drawing.n

    def begin(self, heading: Heading) -> bytes:
        """The prompt, where it is asked for."""
        self._head = head_of(heading, "text_completion", prefix="cmpl")
        echo = _echo_text(self._ask)
        return b"".join(self._piece(index, echo) for index in range(len(self._sent))) if echo else b""

    def write(self, event: Event) -> bytes:
        """New text with the tokens that were drawn."""
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

    def _piece(self, index: int, text: str, *, tokens: Sequence[Token] = ()) -> bytes:
        logprobs = _logprobs(tokens, self._offset[index]) if tokens else None
        self._offset[index] += sum(len(_text(token.drawn)) for token in tokens)
        return self._chunk(index, logprobs, None, text=text)


def _echo(text: CompletionBody) -> bool:
    if text.echo and not isinstance(text.prompt, str):
        raise invalid("echo", "a prompt of ids is not repeated: its text is not known here.")
    if text.echo and text.logprobs is not None:
        raise invalid("echo", "log-probabilities of a prompt are not supported: leave out echo or logprobs.")
    return text.echo


def _echo_text(ask: ChatRequest) -> str:
    return ask.prompt if ask.echo and isinstance(ask.prompt, str) else ""


def _choice(index: int, choice: AnswerChoice, ask: ChatRequest) -> dict[str, Any]:
    echo = _echo_text(ask)
    logprobs = _logprobs(choice.tokens, len(echo)) if ask.drawing.logprobs else None
    text = echo + choice.closed.text
    finish = _finish(choice.closed.finish)
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}


def _finish(finish: Finish | None) -> str:
    return finish_of(finish) if finish in ("length", "filtered") else "stop"


def _logprobs(tokens: Sequence[Token], offset: int) -> dict[str, Any]:
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(_text(token.drawn))
    return {
        "tokens": [_text(token.drawn) for token in tokens],
        "token_logprobs": [bound_logprob(token.drawn.logprob) for token in tokens],
        "top_logprobs": [_top(token) for token in tokens],
        "text_offset": offsets,
    }


def _top(token: Token) -> dict[str, float]:
    return {_text(one): bound_logprob(one.logprob) for one in chain(token.top, (token.drawn,))}


def _text(candidate: TokenCandidate) -> str:
    return candidate.token.decode(errors="replace")
