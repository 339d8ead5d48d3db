"""An HTTP client for model servers, with exact errors; and text policies behind `/v1/chat/completions`."""

import asyncio
import json
import os
import random
from collections.abc import AsyncGenerator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import httpx

from loomrl.config import OpenAIPolicy
from loomrl.errors import ConfigError, PolicyError, unknown
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.policy import Action, PolicyFactory
from loomrl.inference.remote.dialect import as_format, as_openai
from loomrl.types import Message

T = TypeVar("T")
TRIES = 5
PAUSE_S = 0.25
LONGEST_PAUSE_S = 8.0
"""Pause before the second try; it doubles with each further try, or lasts as long as the server requests."""


class ServerClient:
    """A server with a URL that ends in `/v1`; `root` is the base of its own routes.

    Every request opens its own connection, so that the client works from any event loop.
    """

    def __init__(self, url: str, *, key_variable: str, timeout_s: float) -> None:
        self.url = url.rstrip("/")
        self.root = self.url.removesuffix("/v1")
        self.timeout_s = timeout_s
        self._key_variable = key_variable
        self._key = os.environ.get(key_variable)
        self._verify: Any = httpx.create_ssl_context() if self.url.startswith("https:") else False
        self._client: tuple[asyncio.AbstractEventLoop, httpx.AsyncClient] | None = None

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        """The JSON object at a path; a PolicyError if there is none in time."""
        return await self.ask("GET", path, query=query)

    async def post(self, path: str, body: dict[str, Any] | None = None, **query: str) -> dict[str, Any]:
        """The JSON object that answers this body."""
        return await self.ask("POST", path, body=body, query=query)

    async def ask(
        self, method: str, path: str, *, body: dict[str, Any] | None = None, query: dict[str, str], tries: int = TRIES
    ) -> dict[str, Any]:
        """The JSON object of one request, with so many tries. A path that begins with `/v1` is one of OpenAI's."""
        where = self.root + path
        try:
            async with asyncio.timeout(self.timeout_s):
                response = await self._send_with_retries(
                    httpx.Request(method, where, json=body, params=query or None), tries
                )
        except TimeoutError:
            raise PolicyError(f"{where}: no answer within timeout_s={self.timeout_s:g}. Raise it.") from None
        return self._read(where, response)

    async def stream(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The JSON objects of an answer in server-sent events, as they come; `timeout_s` is for each."""
        where = self.root + path
        patience = httpx.Timeout(None, read=self.timeout_s).as_dict()
        request = httpx.Request("POST", where, json=body, extensions={"timeout": patience})
        response = await self._send_with_retries(request, TRIES, stream=True)
        try:
            if response.status_code >= 400:
                await response.aread()
                self._read(where, response)
            async for line in response.aiter_lines():
                data = line.removeprefix("data:").strip()
                if data != line.strip() and data != "[DONE]":
                    yield _read_event(where, data)
        except httpx.TransportError as error:
            raise PolicyError(f"{where} broke its answer off ({str(error) or type(error).__name__}).") from error
        finally:
            await response.aclose()

    async def check(self, model: str) -> dict[str, Any]:
        """The server's entry for this model; an error if it does not answer or lacks the model."""
        found = (await self.ask("GET", "/v1/models", query={}, tries=2)).get("data")
        if not isinstance(found, list) or not all(isinstance(one, dict) and "id" in one for one in found):
            raise PolicyError(f"{self.url}/models: this is no list of models: {str(found)[:200]}")
        known = {str(one["id"]): one for one in found}
        if model not in known:
            raise ConfigError(f"{self.url}: " + unknown("model", model, known))
        return dict(known[model])

    async def _send_with_retries(self, request: httpx.Request, tries: int, *, stream: bool = False) -> httpx.Response:
        pause_s = PAUSE_S
        for left in reversed(range(tries)):
            try:
                response = await self._send(request, stream=stream)
            except httpx.TransportError as error:
                if not left:
                    cause = str(error) or type(error).__name__
                    raise PolicyError(
                        f"{request.url} does not answer ({cause}). Is the server running, and the address right?"
                    ) from error
                wanted_s = 0.0
            else:
                if not left or not (response.status_code in (408, 429) or response.status_code >= 500):
                    return response
                wanted_s = _seconds(response.headers.get("retry-after"))
                await response.aclose()
            await asyncio.sleep(max(wanted_s, pause_s * random.uniform(0.8, 1.2)))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        raise AssertionError("there is at least one try")

    async def _send(self, request: httpx.Request, *, stream: bool) -> httpx.Response:
        loop = asyncio.get_running_loop()
        if self._client is None or self._client[0] is not loop:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
            self._client = (loop, httpx.AsyncClient(verify=self._verify, limits=limits, timeout=None))
        if self._key:
            request.headers["authorization"] = f"Bearer {self._key}"
        return await self._client[1].send(request, stream=stream)

    def _read(self, where: str, response: httpx.Response) -> dict[str, Any]:
        status = response.status_code
        if status in (401, 403):
            name = self._key_variable
            key = f"the key in ${name}" if self._key else f"no key, as ${name} is not set"
            raise PolicyError(f"{where} refused the request ({status}), which had {key}: {_said(response)}")
        if status == 429 or status >= 500:
            raise PolicyError(f"{where} answered {status} to every try: {_said(response)}")
        if status >= 400:
            raise PolicyError(f"{where} answered {status}: {_said(response)}")
        try:
            found = response.json() if response.content else {}
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise PolicyError(f"{where} answered with something that is no JSON object: {response.text[:200]!r}")
        return found


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, for callers inside or outside an event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _read_event(where: str, data: str) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise PolicyError(f"{where} sent an event that is no JSON object: {data[:200]!r}")
    if event.get("error"):
        raise PolicyError(f"{where} broke its answer off: {str(event['error'])[:300]}")
    return event


def _seconds(header: str | None) -> float:
    """`Retry-After` if it is a number; a date counts as zero."""
    try:
        return max(0.0, float(header or 0))
    except ValueError:
        return 0.0


def _said(response: httpx.Response) -> str:
    """The server's own error message, wherever it is in the answer."""
    try:
        found = response.json()
        error = found.get("error", found)
        said = error.get("message", error.get("detail", error)) if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        said = response.text
    return " ".join(str(said).split())[:500]


class ServedSpeaker:
    """Sends the whole conversation and returns the answer."""

    def __init__(
        self, server: ServerClient, choice: OpenAIPolicy, environment: BaseEnvironment, rng: random.Random
    ) -> None:
        self._environment = environment
        self._server = server
        self._choice = choice
        self._rng = rng

    async def act(self, conversation: tuple[Message, ...]) -> Action:
        """The server's next message; a PolicyError if there is none."""
        sampling = self._choice.sampling
        form = self._environment.form()
        body: dict[str, Any] = {
            "model": self._choice.model,
            "messages": [as_openai(message) for message in conversation],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": self._rng.getrandbits(31),
            **({} if form is None else as_format(form)),
        }
        answer = await self._server.post("/v1/chat/completions", body)
        try:
            text = answer["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            text = None
        if not isinstance(text, str):
            raise PolicyError(f"{self._server.url}: an answer without text: {str(answer)[:300]}")
        return Action(text)


def meet(choice: OpenAIPolicy) -> None:
    """Raise an error if the server does not answer or lacks the model: better once than in every episode."""
    run_apart(_client_for(choice).check(choice.model))


def speakers_on_server(choice: OpenAIPolicy) -> PolicyFactory:
    """The factory of speakers for one model on one server."""
    server = _client_for(choice)

    def speaker(environment: BaseEnvironment, rng: random.Random) -> ServedSpeaker:
        return ServedSpeaker(server, choice, environment, rng)

    return speaker


def _client_for(choice: OpenAIPolicy) -> ServerClient:
    return ServerClient(choice.url, key_variable=choice.key_variable, timeout_s=choice.timeout_s)
