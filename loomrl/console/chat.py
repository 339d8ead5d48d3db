"""A conversation with an endpoint, as its callers have it.

The gateway is asked to record nothing, and the page carries the whole conversation, so that nothing is kept here but a
key of each person for the gateway.
"""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
from starlette.responses import Response

from loomrl.console.page import Pages, Visit
from loomrl.console.session import Role
from loomrl.gym.preference import percents
from loomrl.http.refusal import Refused
from loomrl.http.tls import trusted
from loomrl.store import LoomDB
from loomrl.store.service.keys import create_key
from loomrl.store.service.replicas import front_of

PATIENCE_S = 120.0
KEY_S, SPARE_S = 3600.0, 600.0
"""A key holds for an hour, and is replaced ten minutes before that."""
WEIGHT = "weight."
"""Before the name of an objective, in the form."""


@dataclass(slots=True)
class Callers:
    """Keys for the gateway by person: made when they are needed, known to this process alone."""

    _keys: dict[str, tuple[str, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def key(self, db: LoomDB, who: str) -> str:
        """This person's."""
        with self._lock:
            now = time.time()
            plain, until = self._keys.get(who, ("", 0.0))
            if until < now + SPARE_S:
                until = now + KEY_S
                plain, _ = create_key(db, f"{who} at the console", scopes=("act",), expires_at=until, at=now)
                self._keys[who] = plain, until
            return plain


def add_to(pages: Pages) -> None:
    """The page."""
    callers = Callers()

    def show(visit: Visit) -> Response:
        return _page(visit, _objectives(visit, callers))

    def say(visit: Visit) -> Response:
        return _say(visit, callers)

    pages.get("/endpoints/{name}/chat", show, role=Role.RATER)
    pages.post("/endpoints/{name}/chat", say, role=Role.RATER)


def _page(
    visit: Visit,
    objectives: Sequence[str],
    *,
    said: Sequence[Mapping[str, str]] = (),
    weights: Mapping[str, int] | None = None,
    text: str = "",
    problem: str = "",
) -> Response:
    return visit.page(
        "chat.html",
        400 if problem else 200,
        name=visit.named("name"),
        weights=weights or dict.fromkeys(objectives, 50),
        said=said,
        kept=json.dumps([*said]),
        text=text,
        problem=problem,
    )


def _say(visit: Visit, callers: Callers) -> Response:
    said, text = _said_before(visit.form.get("said", "")), visit.form.get("text", "").replace("\r\n", "\n").strip()
    weights = _weights(visit.form)
    objectives = [*weights]
    try:
        if not text:
            raise Refused(400, "Write something first.")
        asked = [*said, {"role": "user", "content": text}]
        body: dict[str, Any] = {
            "model": visit.named("name"),
            "messages": [{"role": each["role"], "content": each["content"]} for each in asked],
            "store": False,
        }
        told = ""
        if weights:
            body["preference"] = _preference(weights)
            told = ", ".join(f"{name} {percent} %" for name, percent in percents(body["preference"]).items())
        answer = _call(visit, callers, "POST", "/v1/chat/completions", body)
        content = answer.json()["choices"][0]["message"].get("content") or ""
    except Refused as refused:
        return _page(visit, objectives, said=said, weights=weights, text=text, problem=str(refused))
    about = " · ".join(part for part in (answer.headers.get("x-loomrl-version", ""), told) if part)
    said = [*asked, {"role": "assistant", "content": content, "about": about}]
    return _page(visit, objectives, said=said, weights=weights)


def _objectives(visit: Visit, callers: Callers) -> Sequence[str]:
    """Those of which the policy reads a preference."""
    answer = _call(visit, callers, "GET", f"/v1/models/{quote(visit.named('name'), safe='')}")
    found: Sequence[str] = answer.json().get("objectives", ())
    return found


def _call(visit: Visit, callers: Callers, method: str, path: str, body: Any = None) -> httpx.Response:
    """The gateway's answer; Refused with what it says if that is an error."""
    db, name = visit.source.db, visit.named("name")
    url = front_of(db, name)
    if url is None:
        raise Refused(404, f"Endpoint {name[:120]!r} is not served now. `loomrl serve` does it.")
    headers = {"authorization": f"Bearer {callers.key(db, visit.who)}"}
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=PATIENCE_S, trust_env=False, verify=trusted()) as http:
            answer = http.request(method, path, json=body)
    except httpx.TransportError as error:
        raise Refused(503, f"{url}: no answer: {error}.") from None
    if not answer.is_success:
        raise Refused(answer.status_code, f"The gateway says {answer.status_code}: {_message(answer)}")
    return answer


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:500]


def _weights(form: Mapping[str, str]) -> dict[str, int]:
    """Where the sliders are."""
    found = {name.removeprefix(WEIGHT): value for name, value in form.items() if name.startswith(WEIGHT)}
    if not all(value.isdecimal() and int(value) <= 100 for value in found.values()):
        raise Refused(400, "A weight is a whole number from 0 to 100.")
    return {name: int(value) for name, value in found.items()}


def _preference(weights: Mapping[str, int]) -> dict[str, float]:
    total = sum(weights.values())
    if not total:
        raise Refused(400, "One objective at least must count.")
    return {name: weight / total for name, weight in weights.items()}


def _said_before(text: str) -> list[dict[str, str]]:
    """The conversation, as the page carried it."""
    try:
        said = json.loads(text or "[]")
        return [{name: str(each[name]) for name in ("role", "content", "about") if name in each} for each in said]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise Refused(400, "This is no conversation that this page made. Begin anew.") from None
