"""A server of chat completions as judges ask it: bounded in time, tries and bytes, with typed failures."""

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from loomrl.errors import JudgeError, ScorerError

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
TRIES = 3
PAUSE_S = 0.5
ASKED = 2
"""Times that an answer is asked for, if it cannot be read."""
MOST_BYTES = 1 << 20
"""Bytes of an answer; longer ones are refused."""


class ChatServer:
    """One server. Every request opens its own connection, so that judges work from any event loop."""

    def __init__(self, url: str, *, key_variable: str) -> None:
        import httpx

        self._where = url.rstrip("/") + "/chat/completions"
        self._key_variable = key_variable
        self._verify: Any = httpx.create_ssl_context() if url.startswith("https:") else False

    async def read(self, body: Callable[[], Mapping[str, Any]], read: Callable[[str], T], *, timeout_s: float) -> T:
        """An answer as `read` understands it; one that it refuses with a ScorerError is asked for once more."""
        for left in reversed(range(ASKED)):
            try:
                return read(await self.answer(body(), timeout_s=timeout_s))
            except JudgeError:
                raise
            except ScorerError:
                if not left:
                    raise
        raise AssertionError("it is asked for at least once")

    async def answer(self, body: Mapping[str, Any], *, timeout_s: float) -> str:
        """The text of a finished answer.

        A JudgeError if the server is not there, too late, or refuses; a ScorerError if what it says is no such answer.
        """
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._post(body)
        except TimeoutError:
            raise JudgeError(f"{self._where}: no answer within timeout_s={timeout_s:g}.") from None
        return self._text(answer)

    async def _post(self, body: Mapping[str, Any]) -> Any:
        """The server's answer, retried while it is busy or unreachable."""
        import httpx

        key = os.environ.get(self._key_variable)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        async with httpx.AsyncClient(verify=self._verify, timeout=None) as client:
            for left in reversed(range(TRIES)):
                try:
                    async with client.stream("POST", self._where, json=body, headers=headers) as response:
                        if not left or not (response.status_code == 429 or response.status_code >= 500):
                            return await self._read(response)
                except (httpx.HTTPError, httpx.InvalidURL) as error:
                    if not left:
                        cause = str(error) or type(error).__name__
                        raise JudgeError(f"{self._where} does not answer ({cause}). Is the server running?") from error
                await asyncio.sleep(PAUSE_S)
        raise AssertionError("there is at least one try")

    async def _read(self, response: "httpx.Response") -> Any:
        content = b""
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > MOST_BYTES:
                raise ScorerError(f"{self._where} answered with more than {MOST_BYTES} bytes.")
        said = content[:200].decode(errors="replace")
        if response.status_code != 200:
            raise JudgeError(f"{self._where} answered {response.status_code}: {said}")
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise ScorerError(f"{self._where} answered with something that is no JSON: {said!r}") from None

    def _text(self, answer: Any) -> str:
        """The model's text, if it finished."""
        try:
            (choice,) = answer["choices"]
            text = choice["message"]["content"]
            finish = choice["finish_reason"]
        except (KeyError, TypeError, ValueError):
            raise ScorerError(f"{self._where}: this is no chat completion: {str(answer)[:200]}") from None
        if finish != "stop" or not isinstance(text, str):
            raise ScorerError(f"{self._where}: the judge did not come to its end (finish_reason={finish!r}).")
        return text
