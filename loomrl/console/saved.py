"""Pages of the console as single files: style, script and data inside, for readers without a console."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from urllib.parse import quote

from jinja2 import Environment
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from loomrl.console import run as run_page
from loomrl.console.page import PageRequest, Pages, environment
from loomrl.record.detail import VERDICT, verdict_found
from loomrl.store import LoomDB
from loomrl.store.runs import RUNS
from loomrl.store.verdicts import StoredVerdict


@dataclass(frozen=True, slots=True)
class Inlined:
    """Style and script of a saved page, and the policy that lets the browser run only these."""

    style: Markup
    script: Markup

    @property
    def policy(self) -> str:
        """The content-security policy of the page."""
        return (
            f"default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
            f"style-src '{_hash(self.style)}'; script-src '{_hash(self.script)}'"
        )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _templates() -> Environment:
    static = files("loomrl.console").joinpath("static")

    def read(*names: str) -> Markup:
        return Markup("\n".join(static.joinpath(name).read_text(encoding="utf-8") for name in names))

    return environment(saved=Inlined(read("uplot.css", "console.css"), read("uplot.js", "charts.js")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a document: a chart, a table of values with notes below them, and a note."""

    title: str
    chart: Markup = Markup("")  # noqa: RUF009 - it is immutable
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[tuple[str, str]]] = ()
    note: str = ""


def save_document(title: str, intro: str, sections: Sequence[Section]) -> str:
    """A page of these sections as HTML text, in the console's style."""
    return _render("document.html", title=title, intro=intro, sections=sections)


def add_to(pages: Pages) -> None:
    """The page of a run as a download."""
    pages.get("/runs/{run}/report.html", _download)


def _download(visit: PageRequest) -> Response:
    run = run_page.run_of(visit)
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(run.id, safe='')}.html",
        "content-security-policy": "default-src 'none'; sandbox",
    }
    return HTMLResponse(save_run(visit.source.db, run.id), headers=headers)


def save_run(db: LoomDB, run: str) -> str:
    """The page of a run as HTML text: it is the run's report."""
    found = RUNS.require(db, run)
    context = run_page.content(found, db)
    return _render("run.html", **context, ids=[run], others=[], record=run_page.metrics_of(found, db))


def save_verdict(verdict: StoredVerdict) -> str:
    """The page of a gate's verdict as HTML text."""
    found = verdict_found(verdict)
    return _render("verdict.html", id=verdict.id, detail=VERDICT, found=found, pieces={}, live=None)


def _render(template: str, **context: object) -> str:
    return _templates().get_template(template).render(context | {"position": 0})
