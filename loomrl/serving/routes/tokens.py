"""Tokens without an answer: `/v1/messages/count_tokens`, and `/tokenize` and `/detokenize` in the shapes of vLLM.

The policy reads a prompt and draws nothing. `/v1/embeddings` says that there are none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec
from pydantic import Field

from loomrl.serving.body import Body, Label, Whole, invalid, only, read_body
from loomrl.serving.call import ChatRequest, Drawing, PromptOpened
from loomrl.serving.dialect.anthropic import MessagesDialect
from loomrl.serving.dialect.chat import ChatDialect
from loomrl.serving.dialect.completions import LARGEST_ID
from loomrl.serving.dispatch import apply_preference, begin, candidates, close
from loomrl.serving.gateway import Gateway
from loomrl.serving.policy import About
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.request import Caller, HttpReply, HttpRequest, read_json
from loomrl.serving.routes.chat import read_request
from loomrl.serving.thread import continuation

COUNT = "/v1/messages/count_tokens"


class _TokenizeOptions(Body):
    return_token_strs: bool = False
    add_special_tokens: Annotated[Any, only(False)] = None
    """The chat template has its own."""


class _TokenizedText(_TokenizeOptions):
    model: Label = ""
    prompt: str
    add_special_tokens: Annotated[Any, only(True)] = None


class _DetokenizedIds(Body):
    model: Label = ""
    tokens: Annotated[list[Annotated[Whole, Field(ge=0, le=LARGEST_ID)]], Field(min_length=1)]


@dataclass(frozen=True, slots=True, eq=False)
class _ReadPrompt:
    """A prompt as a policy reads it."""

    opened: PromptOpened
    about: About

    @property
    def texts(self) -> list[str]:
        """The text of each token."""
        return [one.drawn.token.decode(errors="replace") for one in self.opened.tokens]


async def answer_count(gateway: Gateway, request: HttpRequest, reply: HttpReply) -> None:
    """The number of tokens of a request to `/v1/messages`."""
    caller, raw = await _begin(gateway, request)
    if wrong := next((name for name in ("max_tokens", "stream") if name in raw), None):
        raise invalid(wrong, "the field is unknown here: nothing is answered.")
    ask = await read_request(gateway, MessagesDialect(), {**raw, "max_tokens": 1}, caller, reply)
    found = await _read(gateway, ask, caller)
    await reply.whole(200, msgspec.json.encode({"input_tokens": len(found.opened.ids_T)}))


async def answer_tokenize(gateway: Gateway, request: HttpRequest, reply: HttpReply) -> None:
    """The ids of a text, or of a conversation up to its answer."""
    caller, raw = await _begin(gateway, request)
    asked: _TokenizeOptions
    if "messages" in raw:
        name = raw.get("model") or ""
        rest = {field: value for field, value in raw.items() if field not in _TokenizeOptions.model_fields}
        asked = read_body(_TokenizeOptions, {field: raw[field] for field in raw.keys() - rest.keys()})
        ask = await read_request(gateway, ChatDialect(), {**rest, "model": name or "-"}, caller, reply)
        ask = replace(ask, model=name)
    else:
        asked = text = read_body(_TokenizedText, raw)
        ask = ChatRequest(model=text.model, prompt=text.prompt)
    found = await _read(gateway, ask, caller)
    ids = found.opened.ids_T.tolist()
    answer = {"count": len(ids), "max_model_len": found.about.context, "tokens": ids}
    await reply.whole(
        200, msgspec.json.encode(answer | {"token_strs": found.texts if asked.return_token_strs else None})
    )


async def answer_detokenize(gateway: Gateway, request: HttpRequest, reply: HttpReply) -> None:
    """The text of ids."""
    caller, raw = await _begin(gateway, request)
    asked = read_body(_DetokenizedIds, raw)
    found = await _read(gateway, ChatRequest(model=asked.model, prompt=tuple(asked.tokens)), caller)
    text = b"".join(one.drawn.token for one in found.opened.tokens).decode(errors="replace")
    await reply.whole(200, msgspec.json.encode({"prompt": text}))


async def answer_embeddings(gateway: Gateway, request: HttpRequest, reply: HttpReply) -> None:
    """Always a Refusal: no kind of policy has a pooled form."""
    caller, raw = await _begin(gateway, request)
    endpoint = gateway.find_endpoint(str(raw.get("model") or ""), caller)
    message = f"Model {endpoint.name!r} gives no embeddings: a policy answers, and has no pooled form."
    raise Refusal(RefusalCause.UNKNOWN, message, where="model")


async def _begin(gateway: Gateway, request: HttpRequest) -> tuple[Caller, Mapping[str, Any]]:
    caller = await gateway.keys.caller(request.token, scope="act")
    return caller, read_json(await request.body(gateway.settings.max_bytes))


async def _read(gateway: Gateway, ask: ChatRequest, caller: Caller) -> _ReadPrompt:
    """The prompt as the endpoint's policy reads it; nothing is drawn."""
    endpoint = gateway.find_endpoint(ask.model, caller)
    deadline = gateway.deadline()
    async with gateway.room(endpoint).enter(caller.key, deadline=deadline):
        options = list(candidates(gateway.view, endpoint, ""))
        if options:
            ask = apply_preference(ask, options[0].policy.about, endpoint.name)
        asked = continuation(replace(ask, drawing=Drawing(max_tokens=0, echo=True)), None)
        begun = await begin(options, asked, endpoint=endpoint, deadline=deadline)
        await close(begun.rest)
        begun.span.end()
    opened = begun.first[0]
    assert isinstance(opened, PromptOpened), "a policy opens the prompt first"
    return _ReadPrompt(opened, begun.candidate.policy.about)
