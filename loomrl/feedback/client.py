"""Gives feedback to a gateway from any program; needs httpx and nothing heavier.

with FeedbackClient("http://127.0.0.1:8000", key="loom-…") as feedback:
    feedback.give(call=answer.id, thumb="down", comment="the second step is wrong")
"""

import time
import uuid
from typing import Any, ClassVar

import httpx

from loomrl.errors import LoomError
from loomrl.http.listen import trusted
from loomrl.process import Closing

TRIES = 4
LONGEST_PAUSE_S = 10.0


class FeedbackError(LoomError):
    """Feedback that the gateway refused, or that did not reach it. `status` is HTTP's, 0 without an answer."""

    boundary: ClassVar[str] = "feedback"

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class FeedbackClient(Closing):
    """Feedback for the gateway at `url`. A judgement is stored once, however often it has to be sent."""

    def __init__(self, url: str, *, key: str | None = None, timeout_s: float = 10.0) -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s, trust_env=False, verify=trusted())

    def give(self, session: str = "", *, call: str = "", id: str = "", **said: Any) -> dict[str, Any]:
        """Say something of an answer: `thumb`, `stars`, `correction`, `over`, `abandoned`, `outcome`, `comment`.

        `call` is the id of an answer as its caller got it. Returns what was stored.
        """
        place = {name: value for name, value in (("session", session), ("call", call)) if value}
        body = {**place, "id": id or uuid.uuid4().hex, **said}
        for attempt in range(TRIES):
            is_last = attempt == TRIES - 1
            try:
                answer = self._http.post("/v1/feedback", json=body)
            except httpx.TransportError as error:
                if is_last:
                    message = f"{self._http.base_url}: no answer: {error}. Is the gateway up?"
                    raise FeedbackError(message) from error
                time.sleep(0.1 * 4**attempt)
                continue
            if answer.is_success:
                stored: dict[str, Any] = answer.json()
                return stored
            if is_last or answer.status_code not in (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE):
                raise FeedbackError(_message(answer), status=answer.status_code)
            time.sleep(min(float(answer.headers.get("retry-after", 1)), LONGEST_PAUSE_S))
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        """Hang up."""
        self._http.close()


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.url}: HTTP {answer.status_code}: {answer.text:.200}. Is a LoomRL gateway there?"
