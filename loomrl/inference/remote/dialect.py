"""Dialects for sampling from servers: three forms of the same request and its answer."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from loomrl.errors import ConfigError, PolicyError
from loomrl.inference.engine import FinishReason, Request, Unsupported
from loomrl.picture import to_url
from loomrl.types import Form, Message

TOP = 5
"""Number of likeliest tokens in a probe's answer."""
BOTTOM = -9000.0
"""Servers write −9999 for minus infinity and for not-a-number."""
REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, "abort": None}


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Tokens from `start` to `end` of an answer, with the label of the weights that sampled them."""

    label: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class ServerPiece:
    """Tokens that a server sampled in one go: a completion, or its beginning if `finish` is None."""

    ids_T: NDArray[np.int32]
    logprobs_T: NDArray[np.float32]
    spans: tuple[VersionSpan, ...]
    """Empty if the server does not report the weights of each token."""
    finish: FinishReason | None
    best: float = 0.0
    """Log-probability of the first position's likeliest token, if requested."""


class ServerDialect(Protocol):
    """One form of requests and answers."""

    path: str

    def body(self, model: str, request: Request, *, max_tokens: int, top: bool = False) -> dict[str, Any]:
        """The request's body; with `top`, it also asks for the likeliest tokens."""

    def read(self, answer: dict[str, Any], asked: Request) -> ServerPiece:
        """The sampled tokens; a ConfigError names data that this server does not report."""


class CompletionsApi:
    """OpenAI's `/v1/completions`, with the extensions of vLLM and SGLang for token ids."""

    path = "/v1/completions"

    def body(self, model: str, request: Request, *, max_tokens: int, top: bool = False) -> dict[str, Any]:
        """Token ids in; requests ids in both ways that servers support."""
        return {
            "model": model,
            "prompt": request.prompt_T.tolist(),
            "max_tokens": max_tokens,
            "temperature": request.sampling.temperature,
            "top_p": request.sampling.top_p,
            "seed": request.seed,
            "stop_token_ids": sorted(request.stop),
            "ignore_eos": True,
            "logprobs": TOP if top else 1,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            **({} if request.form is None else as_format(request.form)),
            **_odds(request),
        }

    def read(self, answer: dict[str, Any], asked: Request) -> ServerPiece:
        """Ids from `token_ids`, or from tokens written as `token_id:7`."""
        choice = answer["choices"][0]
        told = choice.get("logprobs")
        if not told or not told.get("token_logprobs"):
            raise _lacks("log-probabilities")
        piece = _read_choice(choice, answer, asked, reason=choice["finish_reason"])
        first = (told.get("top_logprobs") or [None])[0] or {}
        return replace(piece, best=max(first.values(), default=0.0))

    def read_event(self, event: dict[str, Any], asked: Request) -> ServerPiece:
        """The tokens of an event in a stream, if it has any."""
        choice = next(iter(event["choices"]), None) or {}
        return _read_choice(choice, event, asked, reason=choice.get("finish_reason") or "abort")


def _read_choice(choice: dict[str, Any], answer: dict[str, Any], asked: Request, *, reason: str) -> ServerPiece:
    told = choice.get("logprobs") or {}
    logprobs = told.get("token_logprobs") or []
    tokens = choice.get("token_ids")
    if not logprobs and (tokens or choice.get("text")):
        raise _lacks("log-probabilities")
    if tokens is None:
        tokens = [_id(token) for token in told.get("tokens") or []]
    _same_prompt(choice.get("prompt_token_ids"), (answer.get("usage") or {}).get("prompt_tokens"), asked)
    return _piece(tokens, logprobs, (), reason, 0.0)


class VllmTokens:
    """vLLM's `/inference/v1/generate` (`--enable-scale-out`): tokens only, each with the version of its weights."""

    path = "/inference/v1/generate"

    def body(self, model: str, request: Request, *, max_tokens: int, top: bool = False) -> dict[str, Any]:
        """vLLM's own sampling parameters."""
        sampling = {
            "max_tokens": max_tokens,
            "temperature": request.sampling.temperature,
            "top_p": request.sampling.top_p,
            "seed": request.seed,
            "stop_token_ids": sorted(request.stop),
            "ignore_eos": True,
            "logprobs": TOP if top else 0,
            "detokenize": False,
        }
        sampling |= _odds(request)
        if request.form is not None:
            sampling["structured_outputs"] = structured_outputs(request.form)
        return {"model": model, "token_ids": request.prompt_T.tolist(), "sampling_params": sampling}

    def read(self, answer: dict[str, Any], asked: Request) -> ServerPiece:
        """Ids, log-probabilities and version spans."""
        choice = answer["choices"][0]
        content = choice["logprobs"]["content"]
        _same_prompt(answer.get("prompt_token_ids"), (answer.get("usage") or {}).get("prompt_tokens"), asked)
        best = max((one["logprob"] for one in content[0]["top_logprobs"]), default=0.0) if content else 0.0
        return _piece(
            choice["token_ids"],
            [one["logprob"] for one in content],
            _spans(choice.get("weight_versions")),
            choice["finish_reason"],
            best,
        )


class SglangTokens:
    """SGLang's `/generate`."""

    path = "/generate"

    def body(self, model: str, request: Request, *, max_tokens: int, top: bool = False) -> dict[str, Any]:
        """SGLang serves one model, so its name is omitted. Seeds count with `--enable-deterministic-inference`."""
        sampling = {
            "max_new_tokens": max_tokens,
            "temperature": request.sampling.temperature,
            "top_p": request.sampling.top_p,
            "sampling_seed": request.seed,
            "stop_token_ids": sorted(request.stop),
            "ignore_eos": True,
            "skip_special_tokens": False,
            "no_stop_trim": True,
            **({} if request.form is None else _as_sglang(request.form)),
            **_odds(request),
        }
        extra = {"top_logprobs_num": TOP} if top else {}
        return {
            "input_ids": request.prompt_T.tolist(),
            "sampling_params": sampling,
            "return_logprob": True,
            "logprob_start_len": -1,
            **extra,
        }

    def read(self, answer: dict[str, Any], asked: Request) -> ServerPiece:
        """Ids come with their log-probabilities; versions are spans, or one label if there is only one."""
        told = answer["meta_info"]
        pairs = told.get("output_token_logprobs") or []
        _same_prompt(None, told.get("prompt_tokens"), asked)
        spans = _spans(told.get("weight_versions"))
        if not spans and told.get("weight_version") is not None:
            spans = (VersionSpan(str(told["weight_version"]), 0, len(pairs)),)
        first = (told.get("output_top_logprobs") or [[]])[0] or []
        reason = told["finish_reason"]["type"]
        best = max((one[0] for one in first), default=0.0)
        return _piece([pair[1] for pair in pairs], [pair[0] for pair in pairs], spans, reason, best)


def _odds(request: Request) -> dict[str, Any]:
    return {} if request.odds is None else request.odds.changes


def structured_outputs(form: Form) -> dict[str, Any]:
    """The form as one of vLLM's parameters."""
    match form.kind:
        case "json":
            return {"json_object": True}
        case "schema":
            return {"json": form.text}
        case "choice":
            return {"choice": json.loads(form.text)}
        case kind:
            return {kind: form.text}


def as_format(form: Form) -> dict[str, Any]:
    """The form as a field of a request: OpenAI's if it is JSON, else vLLM's."""
    match form.kind:
        case "json":
            return {"response_format": {"type": "json_object"}}
        case "schema":
            schema = {"name": "answer", "schema": json.loads(form.text), "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": schema}}
        case _:
            return {"structured_outputs": structured_outputs(form)}


def _as_sglang(form: Form) -> dict[str, Any]:
    match form.kind:
        case "json":
            return {"json_schema": '{"type": "object"}'}
        case "schema":
            return {"json_schema": form.text}
        case "regex":
            return {"regex": form.text}
        case "choice":
            return {"regex": "|".join(map(re.escape, json.loads(form.text)))}
        case _:
            raise Unsupported("form=grammar: SGLang reads other grammars. Send a schema, a regex or choices.")


def as_openai(message: Message) -> dict[str, Any]:
    """A message of OpenAI's chat completions: text, or parts if it has pictures, which become data URLs."""
    if not message.images:
        return {"role": message.role, "content": message.content}
    pictures = [{"type": "image_url", "image_url": {"url": to_url(picture)}} for picture in message.images]
    return {"role": message.role, "content": [*pictures, {"type": "text", "text": message.content}]}


@contextmanager
def translate_faults(url: str, answer: dict[str, Any]) -> Iterator[None]:
    """Errors with the server's URL; a PolicyError shows an answer that is read here and has the wrong form."""
    try:
        yield
    except (ConfigError, PolicyError) as error:
        raise type(error)(f"{url}: {error}") from None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise PolicyError(
            f"{url} answered with no completion ({type(error).__name__}: {error}): {str(answer)[:300]}"
        ) from error


def _piece(
    ids: Sequence[int], logprobs: Sequence[float], spans: tuple[VersionSpan, ...], reason: str, best: float
) -> ServerPiece:
    ids_T = np.array(ids, np.int64)
    logprobs_T = np.array(logprobs, np.float64)
    if reason not in REASONS:
        raise PolicyError(f"the server ended the request with {reason!r}, which is none of {', '.join(REASONS)}.")
    if ids_T.shape != logprobs_T.shape:
        raise PolicyError(f"the server gave {ids_T.size} token ids and {logprobs_T.size} log-probabilities.")
    if not (np.isfinite(logprobs_T) & (logprobs_T > BOTTOM)).all():
        raise PolicyError("the server's weights gave logits that are not finite.")
    return ServerPiece(ids_T.astype(np.int32), logprobs_T.astype(np.float32), spans, REASONS[reason], float(best))


def _spans(told: Any) -> tuple[VersionSpan, ...]:
    return tuple(VersionSpan(str(one["version"]), int(one["start"]), int(one["end"])) for one in told or ())


def _id(token: str) -> int:
    name, _, number = token.rpartition(":")
    if name != "token_id":
        raise _lacks("token ids")
    return int(number)


def _same_prompt(ids: Sequence[int] | None, count: int | None, asked: Request) -> None:
    """Raise an error unless the server read exactly the prompt that was sent."""
    read_ids = None if ids is None else list(ids)
    if (read_ids is not None and read_ids != asked.prompt_T.tolist()) or count not in (None, len(asked.prompt_T)):
        raise PolicyError(
            f"the server read {count if count is not None else len(read_ids or ())} tokens where {len(asked.prompt_T)} "
            "were sent, or others: it adds to prompts or cuts them. Start it without such defaults."
        )


def _lacks(what: str) -> ConfigError:
    return ConfigError(
        f"this server gives no {what}: it can be judged (loomrl evaluate --policy URL#MODEL), not trained with. "
        "Text is never tokenised again. vLLM and SGLang give both."
    )
