"""The common parts of OpenAI's three dialects: errors, counts of tokens, log-probabilities, fields of requests."""

import json
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from loomrl.serving.call import Candidate, Drawing, Finish, Token, Usage
from loomrl.serving.dialect.fields import Fields, invalid
from loomrl.serving.refusal import Cause, Refusal

MOST_TOKENS = 1 << 31
MOST_CHOICES = 128
MOST_STOPS = 4
MOST_TOP = 20
LEAST_LOGPROB = -9999.0
"""OpenAI's number for minus infinity, which JSON does not have."""

_KINDS = {
    Cause.INVALID: ("invalid_request_error", "invalid_value"),
    Cause.TOO_LONG: ("invalid_request_error", "context_length_exceeded"),
    Cause.TOO_LARGE: ("invalid_request_error", "request_too_large"),
    Cause.KEY: ("invalid_request_error", "invalid_api_key"),
    Cause.FORBIDDEN: ("invalid_request_error", "insufficient_permissions"),
    Cause.UNKNOWN: ("invalid_request_error", "not_found"),
    Cause.CONFLICT: ("invalid_request_error", "conflict"),
    Cause.FULL: ("requests", "rate_limit_exceeded"),
    Cause.BUDGET: ("insufficient_quota", "insufficient_quota"),
    Cause.UNAVAILABLE: ("server_error", "service_unavailable"),
    Cause.TIMEOUT: ("server_error", "timeout"),
    Cause.INTERNAL: ("server_error", "internal_error"),
}


def message_of(refusal: Refusal) -> str:
    """The message, with the place it is about."""
    return f"{refusal.where}: {refusal}" if refusal.where else str(refusal)


def error_of(refusal: Refusal) -> dict[str, Any]:
    """The error's body."""
    kind, code = _KINDS[refusal.cause]
    where = refusal.where or ("model" if refusal.cause is Cause.UNKNOWN else None)
    return {"error": {"message": message_of(refusal), "type": kind, "param": where, "code": code}}


def finish_of(finish: Finish) -> str:
    """The reason why a choice ended, in OpenAI's words."""
    return "content_filter" if finish == "filtered" else finish


def read_user(fields: Fields) -> str:
    """The caller's name for its user, in the field of today or in the older one."""
    user = fields.name("user", "")
    identifier = fields.name("safety_identifier", "")
    fields.name("prompt_cache_key", "")
    return user or identifier


def read_drawing(fields: Fields, *, max_tokens: int | None, logprobs: bool, top: int) -> Drawing:
    """The fields of sampling that chat and completions share."""
    return Drawing(
        temperature=fields.number("temperature", 0, 2),
        top_p=fields.number("top_p", 0, 1),
        max_tokens=max_tokens,
        seed=fields.count("seed", -(1 << 63), (1 << 63) - 1),
        stop=fields.texts("stop", MOST_STOPS),
        n=fields.count("n", 1, MOST_CHOICES) or 1,
        logprobs=logprobs,
        top_logprobs=top,
    )


def read_tool_choice(fields: Fields, named: Callable[[Fields], str]) -> str:
    """The choice of tools; `named` reads the tool's name from the object that chooses one."""
    choice = fields.take("tool_choice")
    if choice is None or isinstance(choice, str):
        return fields.choice("tool_choice", ("auto", "none", "required"), "auto")
    entry = Fields(choice, "tool_choice")
    entry.choice("type", ("function",))
    name = named(entry)
    entry.end()
    return f"tool:{name}"


def read_neutral(fields: Fields) -> None:
    """Fields of all three, or of two, that are supported with their neutral value only."""
    for penalty in ("frequency_penalty", "presence_penalty"):
        fields.neutral(penalty, 0)
    fields.neutral("logit_bias", {})


def read_stream_options(fields: Fields, *, stream: bool) -> bool:
    """True if the stream has to end with the counts of tokens."""
    options = fields.part("stream_options")
    if options is None:
        return False
    if not stream:
        raise invalid(options.where, "it is for streams: set stream.")
    usage = options.flag("include_usage", default=False)
    options.neutral("include_obfuscation", False)
    options.end()
    return usage


def check_json(arguments: str, where: str) -> str:
    """The arguments of a call, which are the JSON text of an object; none at all are an empty object."""
    try:
        value = json.loads(arguments or "{}", parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise invalid(where, f"{arguments[:40]!r} is no JSON text.") from None
    if not isinstance(value, dict):
        raise invalid(where, f"{arguments[:40]!r} is no JSON object.")
    return arguments or "{}"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def read_metadata(fields: Fields) -> dict[str, str]:
    """Up to 16 pairs of strings that are repeated in the answer."""
    metadata = fields.part("metadata")
    if metadata is None:
        return {}
    names = metadata.names()
    if len(names) > 16:
        raise invalid(metadata.where, f"{len(names)} pairs are more than 16.")
    return {name: metadata.text(name) for name in names}


def usage_of(usage: Usage) -> dict[str, Any]:
    """Counts of tokens, as chat and completions have them."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def logprobs_of(tokens: Sequence[Token]) -> list[dict[str, Any]]:
    """Log-probabilities, as chat and responses have them."""
    return [_candidate(token.drawn) | {"top_logprobs": [_candidate(one) for one in token.top]} for token in tokens]


def _candidate(candidate: Candidate) -> dict[str, Any]:
    text = candidate.token.decode(errors="replace")
    logprob = bounded(candidate.logprob)
    return {"token": text, "logprob": logprob, "bytes": list(candidate.token)}


def bounded(logprob: float) -> float:
    """The log-probability as a number that JSON has."""
    return max(float(logprob), LEAST_LOGPROB)
