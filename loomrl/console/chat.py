"""A conversation with an endpoint, as its callers have it.

The page carries the whole conversation, so that nothing is kept here but a key of each person for the gateway. The
gateway records it as any caller's, so that answers can be judged, or nothing of it if the person says so.
"""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import httpx
from starlette.responses import Response

from loomrl.console.feedback import STARS, opinion, take
from loomrl.console.page import PageRequest, Pages
from loomrl.console.session import ConsoleRole
from loomrl.gym.preference import percents
from loomrl.http.listen import trusted
from loomrl.http.site import Refused
from loomrl.store import LoomDB
from loomrl.store.keys import create_key
from loomrl.store.replicas import front_of

PATIENCE_S = 120.0
KEY_S = 3600.0
SPARE_S = 600.0
"""A key holds for an hour, and is replaced ten minutes before that."""
CARRIED = ("role", "content", "about", "call", "judged")
"""A message as the page sends it back."""
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

    def show(visit: PageRequest) -> Response:
        return _page(visit, Talk(weights=dict.fromkeys(_objectives(visit, callers), 50)))

    def say(visit: PageRequest) -> Response:
        return _say(visit, callers)

    pages.get("/endpoints/{name}/chat", show, role=ConsoleRole.RATER)
    pages.post("/endpoints/{name}/chat", say, role=ConsoleRole.RATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """A conversation as the page carries it."""

    weights: Mapping[str, int]
    """Where the sliders of the objectives are."""
    said: Sequence[Mapping[str, str]] = ()
    text: str = ""
    """The message being written."""
    is_recorded: bool = True


def _page(visit: PageRequest, talk: Talk, problem: str = "") -> Response:
    status = 400 if problem else 200
    kept = json.dumps([*talk.said])
    return visit.page("chat.html", status, name=visit.segment("name"), talk=talk, kept=kept, problem=problem)


def _say(visit: PageRequest, callers: Callers) -> Response:
    """Go on with the conversation, or take a judgement of an answer in it."""
    text = visit.form.get("text", "").replace("\r\n", "\n").strip()
    weights = _weights(visit.form)
    is_recorded = bool(visit.form.get("record"))
    talk = Talk(weights=weights, said=_said_before(visit.form.get("said", "")), text=text, is_recorded=is_recorded)
    try:
        if judged := visit.form.get("judge"):
            return _page(visit, replace(talk, said=_judge(visit, talk.said, judged)))
        return _page(visit, replace(talk, said=_answer(visit, callers, talk), text=""))
    except Refused as refused:
        return _page(visit, talk, str(refused))


def _answer(visit: PageRequest, callers: Callers, talk: Talk) -> list[Mapping[str, str]]:
    """The conversation with what was written, and the answer to it."""
    if not talk.text:
        raise Refused(400, "Write something first.")
    asked: list[Mapping[str, str]] = [*talk.said, {"role": "user", "content": talk.text}]
    body: dict[str, Any] = {
        "model": visit.segment("name"),
        "messages": [{name: each[name] for name in ("role", "content")} for each in asked],
        "store": talk.is_recorded,
    }
    told = ""
    if talk.weights:
        body["preference"] = _preference(talk.weights)
        told = ", ".join(f"{name} {percent} %" for name, percent in percents(body["preference"]).items())
    answer = _call(visit, callers, "POST", "/v1/chat/completions", body)
    content = answer.json()["choices"][0]["message"].get("content") or ""
    about = " · ".join(part for part in (answer.headers.get("x-loomrl-version", ""), told) if part)
    call = {"call": answer.json()["id"]} if talk.is_recorded else {}
    return [*asked, {"role": "assistant", "content": content, "about": about, **call}]


def _judge(visit: PageRequest, said: Sequence[Mapping[str, str]], judged: str) -> list[Mapping[str, str]]:
    """Take a judgement of an answer, such as `1 thumb up` or `3 stars 4`, and mark the answer with it."""
    number, _, kind = judged.partition(" ")
    call = said[int(number)].get("call") if number.isdecimal() and int(number) < len(said) else None
    if call is None or kind not in ("thumb up", "thumb down", *STARS):
        raise Refused(400, f"judge={judged[:80]!r} is no judgement of an answer on record.")
    take(visit, {"call": call, **opinion(kind)})
    return [{**each, "judged": kind} if at == int(number) else each for at, each in enumerate(said)]


def _objectives(visit: PageRequest, callers: Callers) -> Sequence[str]:
    """Those of which the policy reads a preference."""
    answer = _call(visit, callers, "GET", f"/v1/models/{quote(visit.segment('name'), safe='')}")
    found: Sequence[str] = answer.json().get("objectives", ())
    return found


def _call(visit: PageRequest, callers: Callers, method: str, path: str, body: Any = None) -> httpx.Response:
    """The gateway's answer; Refused with what it says if that is an error."""
    db = visit.source.db
    name = visit.segment("name")
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
        return [{name: str(each[name]) for name in CARRIED if name in each} for each in said]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise Refused(400, "This is no conversation that this page made. Begin anew.") from None
