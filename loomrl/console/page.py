"""Pages: templates, the visit that a page is made for, and the answers to what cannot be shown."""

import functools
import hmac
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from jinja2 import DictLoader, Environment, StrictUndefined, select_autoescape
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from loomrl.console.session import ConsoleRole, ConsoleSession, SessionLookup
from loomrl.console.source import RecordSource
from loomrl.errors import LoomError
from loomrl.http.site import Refused
from loomrl.picture import to_url
from loomrl.record import word

log = logging.getLogger(__name__)
MOST_FORM = 256 * 1024
MOST_FIELDS = 200
PAGE = 40
"""Rows of a page."""


MENU: Mapping[str, Mapping[str, str]] = {
    "Train": {
        "/runs": "Runs",
        "/trajectories": "Trajectories",
        "/policies": "Policies",
        "/environments": "Environments",
        "/sweeps": "Sweeps",
    },
    "Serve": {
        "/endpoints": "Endpoints",
        "/releases": "Releases",
        "/verdicts": "Verdicts",
        "/ab": "A/B tests",
        "/monitor": "Monitor",
    },
    "Learn": {"/feedback": "Feedback", "/rewards": "Rewards", "/datasets": "Data sets", "/trainings": "Trainings"},
    "Record": {"/explore": "Explore", "/audit": "Audit", "/keys": "Keys"},
}
"""The pages of the menu, by group."""


def _finalize(value: Any) -> Any:
    """Everything that a template writes goes through here, before it is escaped."""
    if type(value) is str:
        return word.visible(value)
    return "–" if value is None else value


def code(text: str) -> Markup:
    """A sentence whose parts in backticks are shown as code."""
    parts = re.split(r"`([^`\n]+)`", word.visible(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else part for number, part in enumerate(parts)
    )


def environment(saved: object = None) -> Environment:
    """The templates; all text is escaped, and hidden characters are made visible.

    With `saved` they make single files: without menu, forms and links into the console.
    """
    folder = files("loomrl.console").joinpath("templates")
    texts = {each.name: each.read_text(encoding="utf-8") for each in folder.iterdir() if each.name.endswith(".html")}
    made = Environment(
        loader=DictLoader(texts),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("number", "signed", "count", "percent", "lasting", "clock", "iso", "ago", "short"):
        made.filters[name] = getattr(word, name)
    made.filters["code"] = code
    made.globals["saved"] = saved
    made.policies["json.dumps_kwargs"] = {"sort_keys": False}
    made.filters["query"] = lambda fields: urlencode(fields, doseq=True)
    made.filters["picture"] = to_url
    made.filters["seg"] = lambda text: quote(str(text), safe="")
    made.filters["path"] = lambda text: quote(str(text), safe="/@=+:,~")
    made.globals["menu"] = MENU
    made.globals["Role"] = ConsoleRole
    made.globals["can_launch"] = False
    return made


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One request with its session."""

    request: Request
    session: ConsoleSession
    source: RecordSource
    templates: Environment
    is_open: bool
    form: Mapping[str, str] = field(default_factory=dict)
    """Fields of the form; its token has been checked."""

    @property
    def parts(self) -> Any:
        """The macros of `parts.html`, for cells that only a browser can show."""
        return self.templates.get_template("parts.html").module

    @property
    def who(self) -> str:
        """The name under which a decision goes on record."""
        return self.session.who

    def query(self, name: str, default: str = "") -> str:
        """A parameter of the address."""
        return self.request.query_params.get(name, default)

    def queries(self, name: str) -> list[str]:
        """All values of a parameter."""
        return [value for value in self.request.query_params.getlist(name) if value]

    def segment(self, name: str) -> str:
        """A part of the path."""
        text: str = self.request.path_params[name]
        return text

    def whole(self, name: str, default: int, *, low: int = 0, high: int = 2**62) -> int:
        """A parameter that is a whole number; Refused 400 if it is none, or out of range."""
        text = self.query(name)
        if not text:
            return default
        try:
            value = int(text)
        except ValueError:
            raise Refused(400, f"{name}={text[:80]!r} is no whole number.") from None
        if not low <= value <= high:
            raise Refused(400, f"{name}={value} must be between {low} and {high}.")
        return value

    def number(self, name: str) -> float | None:
        """A parameter that is a number, if it is there."""
        text = self.query(name).strip()
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            raise Refused(400, f"{name}={text[:80]!r} is no number.") from None
        if value != value or value in (float("inf"), float("-inf")):
            raise Refused(400, f"{name}={text[:80]!r} is no number that anything could be compared with.")
        return value

    def choice(self, name: str, choices: Sequence[str], default: str = "") -> str:
        """A parameter that is one of these; Refused 400 names them."""
        text = self.query(name, default)
        if text and text not in choices:
            raise Refused(400, f"{name}={text[:80]!r} is unknown. Known: {', '.join(choices)}.")
        return text

    def here(self, **changes: object) -> str:
        """This address with other parameters; None takes one away."""
        kept = [
            (name, value) for name, value in self.request.query_params.multi_items() if name not in changes and value
        ]
        kept += [(name, str(value)) for name, value in changes.items() if value is not None]
        return self.request.url.path + (f"?{urlencode(kept)}" if kept else "")

    def page(self, template: str, status: int = 200, **context: object) -> Response:
        """The page of a template."""
        return HTMLResponse(self.render(template, **context), status)

    def render(self, template: str, **context: object) -> str:
        """The text of a template."""
        about = {"visit": self, "session": self.session, "path": self.request.url.path, "is_open": self.is_open}
        return self.templates.get_template(template).render(about | context)

    def back(self, path: str) -> Response:
        """On to another page, after something was done."""
        return RedirectResponse(path, 303)


Show = Callable[[PageRequest], Response] | Callable[[PageRequest], Awaitable[Response]]


@dataclass(slots=True)
class Pages:
    """The routes of the console, with what all of them need."""

    source: RecordSource
    templates: Environment = field(default_factory=environment)
    routes: list[Route] = field(default_factory=list)

    def get(self, path: str, show: Show, *, role: ConsoleRole = ConsoleRole.VIEWER) -> None:
        """Show something."""
        self.routes.append(Route(path, self._endpoint(show, role), methods=["GET"]))

    def post(self, path: str, do: Show, *, role: ConsoleRole) -> None:
        """Do something that a form asks for; its token is checked before."""
        self.routes.append(Route(path, self._endpoint(do, role), methods=["POST"]))

    def _endpoint(self, show: Show, role: ConsoleRole) -> Callable[[Request], Any]:
        @functools.wraps(show)
        async def endpoint(request: Request) -> Response:
            known: SessionLookup = request.state.known
            visit = PageRequest(request, known.session, self.source, self.templates, request.app.state.sessions.is_open)
            try:
                _refuse_nul(request)
                if request.method == "POST":
                    visit = await _with_form(visit)
                _require(visit, role, known)
                answer = show(visit) if inspect.iscoroutinefunction(show) else await run_in_threadpool(show, visit)
                found = await answer if inspect.isawaitable(answer) else answer
                assert isinstance(found, Response)
                return found
            except Refused as refused:
                return refusal_page(visit, refused, known)
            except LoomError as error:
                status = 400 if request.method == "POST" else 503
                return refusal_page(visit, Refused(status, str(error)), known)

        return endpoint


def _refuse_nul(request: Request) -> None:
    """Refused 400 for what no database could look up."""
    texts = (request.url.path, *request.path_params.values(), *request.query_params.values())
    if any("\0" in str(text) for text in texts):
        raise Refused(400, "An address has no NUL characters.")


async def _with_form(visit: PageRequest) -> PageRequest:
    """The visit with its form; Refused 403 for one that this console did not give to this browser."""
    body = b""
    async for chunk in visit.request.stream():
        body += chunk
        if len(body) > MOST_FORM:
            raise Refused(413, f"A form holds at most {MOST_FORM} bytes.")
    try:
        sent = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except (UnicodeDecodeError, ValueError):
        raise Refused(400, "This is no form that a browser sends.") from None
    if not hmac.compare_digest(sent.get("csrf", "").encode(), visit.session.csrf.encode()):
        raise Refused(
            403, "This form is not of your session, or has expired. Load the page again and send it once more."
        )
    return PageRequest(visit.request, visit.session, visit.source, visit.templates, visit.is_open, sent)


def _require(visit: PageRequest, role: ConsoleRole, known: SessionLookup) -> None:
    mine = visit.session.role
    if mine >= role:
        return
    if mine is ConsoleRole.NONE:
        raise Refused(401, known.reason or "Sign in first.")
    raise Refused(403, f"This is for the role {role.word}; your key gives {mine.word}.")


def refusal_page(visit: PageRequest, refused: Refused, known: SessionLookup) -> Response:
    """The answer to what cannot be shown: a sentence, as a page for people, as JSON for programs."""
    if "text/html" not in visit.request.headers.get("accept", ""):
        return JSONResponse({"error": str(refused)}, refused.status)
    if refused.status == 401 and visit.request.method == "GET":
        return visit.page("sign_in.html", 401, message=known.reason, next=_here(visit.request))
    return visit.page("refused.html", refused.status, code=refused.status, message=str(refused))


def _here(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def local(path: str) -> str:
    """The path if it is one of this site, else the first page."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and "\n" not in path and "\r" not in path
    return path if is_ours else "/"
