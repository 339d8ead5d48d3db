"""OpenAI's completions: a text or token ids, continued."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from loomrl.serving.call import Answer, Ask, Candidate, Choice, Closed, Drawn, Event, Finish, Heading, Token, Usage
from loomrl.serving.dialect import sse
from loomrl.serving.dialect.fields import Fields, check_bounds, invalid
from loomrl.serving.dialect.openai import (
    MOST_TOKENS,
    bounded,
    error_of,
    finish_of,
    read_drawing,
    read_neutral,
    read_stream_options,
    read_user,
    usage_of,
)
from loomrl.serving.refusal import Refusal

MOST_TOP = 5
MAX_TOKENS = 16
"""This API's own default."""
LARGEST_ID = (1 << 31) - 1


class Completions:
    """`POST /v1/completions`."""

    path = "/v1/completions"

    def read(self, body: Mapping[str, Any]) -> Ask:
        """The request."""
        check_bounds(body)
        fields = Fields(body)
        stream = fields.flag("stream", default=False)
        prompt = _prompt(fields)
        top = fields.count("logprobs", 0, MOST_TOP)
        max_tokens = fields.count("max_tokens", 1, MOST_TOKENS)
        ask = Ask(
            model=fields.name("model"),
            prompt=prompt,
            drawing=read_drawing(
                fields,
                max_tokens=MAX_TOKENS if max_tokens is None else max_tokens,
                logprobs=top is not None,
                top=top or 0,
            ),
            stream=stream,
            stream_usage=read_stream_options(fields, stream=stream),
            echo=_echo(fields, prompt, logprobs=top is not None),
            store=fields.flag("store", default=True),
            user=read_user(fields),
        )
        fields.neutral("best_of", ask.drawing.n)
        fields.neutral("suffix", "")
        read_neutral(fields)
        fields.end()
        return ask

    def whole(self, ask: Ask, answer: Answer) -> dict[str, Any]:
        """The answer."""
        choices = [_choice(index, choice, ask) for index, choice in enumerate(answer.choices)]
        return _head(answer.heading) | {"choices": choices, "usage": usage_of(answer.usage)}

    def stream(self, ask: Ask) -> "CompletionStream":
        """The answer's writer."""
        return CompletionStream(ask)

    def refusal(self, refusal: Refusal) -> dict[str, Any]:
        """The error's body."""
        return error_of(refusal)


class CompletionStream:
    """Pieces of text. The finish reason of a choice is held until everything is on record."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._sent = [""] * ask.drawing.n
        self._offset = [len(_echoed(ask))] * ask.drawing.n
        self._finish: list[Finish | None] = [None] * ask.drawing.n
        self._head: dict[str, Any] = {}

    def begin(self, heading: Heading) -> bytes:
        """The prompt, where it is asked for."""
        self._head = _head(heading)
        echo = _echoed(self._ask)
        return b"".join(self._piece(index, echo) for index in range(len(self._sent))) if echo else b""

    def write(self, event: Event) -> bytes:
        """New text with the tokens that were drawn."""
        if isinstance(event, Drawn):
            tokens = event.tokens if self._ask.drawing.logprobs else ()
            self._sent[event.index] += event.text
            return self._piece(event.index, event.text, tokens=tokens) if event.text or tokens else b""
        if not isinstance(event, Closed):
            return b""
        self._finish[event.index] = event.finish
        rest = sse.rest(self._sent[event.index], event.text)
        return self._piece(event.index, rest) if rest else b""

    def finish(self, usage: Usage) -> bytes:
        """The end of each choice, and the counts if they were asked for."""
        ends = b"".join(self._piece(index, "", finish=_finish(end)) for index, end in enumerate(self._finish))
        last = sse.data(self._head | {"choices": [], "usage": usage_of(usage)}) if self._ask.stream_usage else b""
        return ends + last + sse.DONE

    def fail(self, refusal: Refusal) -> bytes:
        """The error."""
        return sse.data(error_of(refusal))

    def _piece(self, index: int, text: str, *, tokens: Sequence[Token] = (), finish: str | None = None) -> bytes:
        logprobs = _logprobs(tokens, self._offset[index]) if tokens else None
        self._offset[index] += sum(len(_text(token.drawn)) for token in tokens)
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
        usage = {"usage": None} if self._ask.stream_usage else {}
        return sse.data(self._head | {"choices": [choice]} | usage)


def _prompt(fields: Fields) -> str | tuple[int, ...]:
    prompt = fields.need("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and prompt and all(isinstance(one, str | list) for one in prompt):
        raise invalid("prompt", f"{len(prompt)} prompts in a request are not supported: send one.")
    if not isinstance(prompt, list) or not prompt or not all(_is_id(one) for one in prompt):
        raise invalid("prompt", f"it is neither a text nor a list of ids from 0 to {LARGEST_ID}, nor a list of one.")
    return tuple(prompt)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_ID


def _echo(fields: Fields, prompt: str | tuple[int, ...], *, logprobs: bool) -> bool:
    echo = fields.flag("echo", default=False)
    if echo and not isinstance(prompt, str):
        raise invalid("echo", "a prompt of ids is not repeated: its text is not known here.")
    if echo and logprobs:
        raise invalid("echo", "log-probabilities of a prompt are not supported: leave out echo or logprobs.")
    return echo


def _head(heading: Heading) -> dict[str, Any]:
    head = {"id": f"cmpl-{heading.id}", "object": "text_completion", "created": int(heading.created)}
    return head | {"model": heading.model, "system_fingerprint": heading.version}


def _echoed(ask: Ask) -> str:
    return ask.prompt if ask.echo and isinstance(ask.prompt, str) else ""


def _choice(index: int, choice: Choice, ask: Ask) -> dict[str, Any]:
    echo = _echoed(ask)
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
        "token_logprobs": [bounded(token.drawn.logprob) for token in tokens],
        "top_logprobs": [_top(token) for token in tokens],
        "text_offset": offsets,
    }


def _top(token: Token) -> dict[str, float]:
    return {_text(one): bounded(one.logprob) for one in chain(token.top, (token.drawn,))}


def _text(candidate: Candidate) -> str:
    return candidate.token.decode(errors="replace")
