"""The common parts of OpenAI's three dialects: errors, counts of tokens, log-probabilities, fields of requests."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

from pydantic import AfterValidator, Field

from loomrl.serving.body import (
    LARGEST,
    MOST_STOPS,
    SMALLEST,
    Body,
    Label,
    MaxTokens,
    Name,
    Plain,
    Probability,
    Temperature,
    Texts,
    TopK,
    Whole,
    invalid,
    only,
)
from loomrl.serving.call import ChatRequest, Drawing, Finish, Heading, Token, TokenCandidate, ToolSpec, Usage
from loomrl.serving.dialect.dialect import DONE, sse
from loomrl.serving.dialect.form import FormFields
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.types import NO_ODDS, Form, Odds

MOST_CHOICES = 128
MOST_TOP = 20
MOST_BIASED = 1024
"""Ids whose logits a request changes."""
LEAST_LOGPROB = -9999.0
"""OpenAI's number for minus infinity, which JSON does not have."""

_KINDS = {
    RefusalCause.INVALID: ("invalid_request_error", "invalid_value"),
    RefusalCause.TOO_LONG: ("invalid_request_error", "context_length_exceeded"),
    RefusalCause.TOO_LARGE: ("invalid_request_error", "request_too_large"),
    RefusalCause.KEY: ("invalid_request_error", "invalid_api_key"),
    RefusalCause.FORBIDDEN: ("invalid_request_error", "insufficient_permissions"),
    RefusalCause.UNKNOWN: ("invalid_request_error", "not_found"),
    RefusalCause.METHOD: ("invalid_request_error", "method_not_allowed"),
    RefusalCause.CONFLICT: ("invalid_request_error", "conflict"),
    RefusalCause.FULL: ("requests", "rate_limit_exceeded"),
    RefusalCause.BUDGET: ("insufficient_quota", "insufficient_quota"),
    RefusalCause.UNAVAILABLE: ("server_error", "service_unavailable"),
    RefusalCause.TIMEOUT: ("server_error", "timeout"),
    RefusalCause.INTERNAL: ("server_error", "internal_error"),
}


def message_of(refusal: Refusal) -> str:
    """The message, with the place it is about."""
    return f"{refusal.where}: {refusal}" if refusal.where else str(refusal)


def error_of(refusal: Refusal) -> dict[str, Any]:
    """The error's body."""
    kind, code = _KINDS[refusal.cause]
    where = refusal.where or ("model" if refusal.cause is RefusalCause.UNKNOWN else None)
    return {"error": {"message": message_of(refusal), "type": kind, "param": where, "code": code}}


def finish_of(finish: Finish) -> str:
    """The reason why a choice ended, in OpenAI's words."""
    return "content_filter" if finish == "filtered" else finish


class OpenAIBody(Body):
    """The fields that OpenAI's three dialects share."""

    model: Name
    stream: bool = False
    temperature: Temperature | None = None
    top_p: Probability | None = None
    store: bool = True
    user: Label = ""
    safety_identifier: Label = ""
    prompt_cache_key: Label = ""


class StreamOptions(Body):
    """Options of a stream of chat or completions."""

    include_usage: bool = False
    include_obfuscation: Annotated[Any, only(False)] = None


Penalty = Annotated[float, Field(ge=-2, le=2)]
Bias = Annotated[float, Field(ge=-100, le=100)]


def _check_ids(bias: dict[str, float]) -> dict[str, float]:
    wrong = next((name for name in bias if not (name.isascii() and name.isdigit() and len(name) < 10)), None)
    if wrong is not None:
        raise ValueError(f"{wrong[:40]!r} is not the id of a token.")
    return bias


class SamplingBody(OpenAIBody, FormFields):
    """The fields that chat and completions share."""

    stream_options: StreamOptions | None = None
    stop: Annotated[Texts, Field(max_length=MOST_STOPS)] = Field(default_factory=list)
    seed: Annotated[Whole, Field(ge=SMALLEST, le=LARGEST)] | None = None
    n: Annotated[Whole, Field(ge=1, le=MOST_CHOICES)] = 1
    max_tokens: MaxTokens | None = None
    frequency_penalty: Penalty = 0.0
    presence_penalty: Penalty = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] = 1.0
    logit_bias: Annotated[dict[str, Bias], Field(max_length=MOST_BIASED), AfterValidator(_check_ids)] = Field(
        default_factory=dict
    )
    min_p: Probability = 0.0
    top_k: TopK = 0

    @property
    def wants_usage(self) -> bool:
        """True if the stream has to end with the counts of tokens."""
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options", "it is for streams: set stream.")
        return self.stream_options is not None and self.stream_options.include_usage

    def drawing(self, *, max_tokens: int | None, logprobs: bool, top: int, form: Form | None) -> Drawing:
        """How the answer is sampled."""
        return Drawing(
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=max_tokens,
            seed=self.seed,
            stop=tuple(self.stop),
            odds=self._odds(),
            n=self.n,
            logprobs=logprobs,
            top_logprobs=top,
            form=form,
        )

    def _odds(self) -> Odds | None:
        odds = Odds(
            logit_bias=tuple((int(id), bias) for id, bias in self.logit_bias.items()),
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            min_p=self.min_p,
            top_k=max(0, self.top_k),
        )
        return None if odds == NO_ODDS else odds


class Function(Body):
    """A function that the caller offers."""

    name: Name
    description: str = ""
    parameters: Plain = Field(default_factory=dict)
    strict: bool = False

    def tool(self) -> ToolSpec:
        """The same for a policy."""
        return ToolSpec(name=self.name, description=self.description, parameters=self.parameters, strict=self.strict)


Metadata = Annotated[dict[str, str], Field(max_length=16)]
"""Pairs that are repeated in the answer."""


def _check_json(arguments: str) -> str:
    try:
        value = json.loads(arguments or "{}", parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise ValueError(f"{arguments[:40]!r} is not JSON text.") from None
    if not isinstance(value, dict):
        raise ValueError(f"{arguments[:40]!r} is not a JSON object.")
    return arguments or "{}"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


Arguments = Annotated[str, AfterValidator(_check_json)]
"""The arguments of a call: the JSON text of an object, or nothing."""


def usage_of(usage: Usage) -> dict[str, Any]:
    """Counts of tokens, as chat and completions have them."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def head_of(heading: Heading, kind: str, *, prefix: str) -> dict[str, Any]:
    """The fields that every answer and every chunk of chat or completions begins with."""
    head = {"id": f"{prefix}-{heading.id}", "object": kind, "created": int(heading.created)}
    return head | {"model": heading.model, "system_fingerprint": heading.version}


class ChunkStream(ABC):
    """A stream of chat or completions. The finish reason of a choice is held until everything is on record."""

    def __init__(self, ask: ChatRequest) -> None:
        self._ask = ask
        self._sent = [""] * ask.choices
        self._finish: list[Finish | None] = [None] * ask.choices
        self._head: dict[str, Any] = {}

    def finish(self, usage: Usage) -> bytes:
        """The end of each choice, and the counts if they were asked for."""
        ends = b"".join(self._end(index, finish) for index, finish in enumerate(self._finish))
        last = sse(self._head | {"choices": [], "usage": usage_of(usage)}) if self._ask.stream_usage else b""
        return ends + last + DONE

    def fail(self, refusal: Refusal) -> bytes:
        """The error."""
        return sse(error_of(refusal))

    def _chunk(self, index: int, logprobs: dict[str, Any] | None, finish: str | None, **content: Any) -> bytes:
        choice = {"index": index, **content, "logprobs": logprobs, "finish_reason": finish}
        usage = {"usage": None} if self._ask.stream_usage else {}
        return sse(self._head | {"choices": [choice]} | usage)

    @abstractmethod
    def _end(self, index: int, finish: Finish | None) -> bytes:
        """The last chunk of a choice."""


def logprobs_of(tokens: Sequence[Token]) -> list[dict[str, Any]]:
    """Log-probabilities, as chat and responses have them."""
    return [_candidate(token.drawn) | {"top_logprobs": [_candidate(one) for one in token.top]} for token in tokens]


def _candidate(candidate: TokenCandidate) -> dict[str, Any]:
    text = candidate.token.decode(errors="replace")
    logprob = bound_logprob(candidate.logprob)
    return {"token": text, "logprob": logprob, "bytes": list(candidate.token)}


def bound_logprob(logprob: float) -> float:
    """The log-probability as a number that JSON has."""
    return max(float(logprob), LEAST_LOGPROB)
