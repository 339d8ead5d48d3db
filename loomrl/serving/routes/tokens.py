"""Tokens without an answer: `/v1/messages/count_tokens`, and `/tokenize` and `/detokenize` in the shapes of vLLM.

The policy reads a prompt and draws nothing. `/v1/embeddings` says that there are none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec
from pydantic import Field

from loomrl.serving.body import Body, Label, Whole, invalid, only, read_body
from loomrl.serving.call import ChatRequest, Drawing, Prompt, PromptOpened
from loomrl.serving.dialect.anthropic import MessagesDialect
from loomrl.serving.dialect.chat import ChatDialect
from loomrl.serving.dispatch import apply_preference, begin, candidates, close
from loomrl.serving.gateway import Gateway
from loomrl.serving.policy import About
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.request import Caller, HttpReply, HttpRequest, read_json
from loomrl.serving.thread import continuation

COUNT = "/v1/messages/count_tokens"
LARGEST_ID = (1 << 31) - 1


class _Text(Body):
    model: Label = ""
    prompt: str
    add_special_tokens: Annotated[Any, only(True)] = None
    return_token_strs: bool = False


class _Ids(Body):
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
    found = await _read(gateway, MessagesDialect().read({**raw, "max_tokens": 1}), caller)
    await reply.whole(200, msgspec.json.encode({"input_tokens": len(found.opened.ids_T)}))


async def answer_tokenize(gateway: Gateway, request: HttpRequest, reply: HttpReply) -> None:
    """The ids of a text, or of a conversation up to its answer."""
    caller, raw = await _begin(gateway, request)
    ask, shows = _conversation(raw) if "messages" in raw else _text(raw)
    found = await _read(gateway, ask, caller)
    ids = found.opened.ids_T.tolist()
    answer = {"count": len(ids), "max_model_len": found.about.context, "tokens": ids}
    await reply.whole(200, msgspec.json.encode(answer | {"token_strs": found.texts if shows else None}))


async def answer_detokenize(gateway: Gateway, request: HttpRequest, reply: HttpReply) -> None:
    """The text of ids."""
    caller, raw = await _begin(gateway, request)
    asked = read_body(_Ids, raw)
    found = await _read(gateway, _prompt(asked.model, tuple(asked.tokens)), caller)
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


def _conversation(raw: Mapping[str, Any]) -> tuple[ChatRequest, bool]:
    shows = raw.get("return_token_strs") or False
    if not isinstance(shows, bool):
        raise invalid("return_token_strs", "it must be true or false.")
    if raw.get("add_special_tokens"):
        raise invalid("add_special_tokens", "true is not supported. Only false is: the chat template has its own.")
    rest = {name: value for name, value in raw.items() if name not in ("return_token_strs", "add_special_tokens")}
    ask = ChatDialect().read({**rest, "model": raw.get("model") or "-"})
    return replace(ask, model=raw.get("model") or ""), shows


def _text(raw: Mapping[str, Any]) -> tuple[ChatRequest, bool]:
    asked = read_body(_Text, raw)
    return _prompt(asked.model, asked.prompt), asked.return_token_strs


def _prompt(model: str, prompt: Prompt) -> ChatRequest:
    return ChatRequest(model=model, prompt=prompt)


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
