"""Runs that people start and resume."""

import time
from collections.abc import Sequence
from typing import Protocol
from urllib.parse import quote

from starlette.responses import Response

from loomrl.console.page import PageRequest, Pages
from loomrl.console.run import run_of
from loomrl.console.session import ConsoleRole
from loomrl.errors import ConfigError, LoomError
from loomrl.http.site import Refused
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS, Event
from loomrl.store.runs import RUNS


class Launcher(Protocol):
    """Starts trainings somewhere; a LoomError says why one cannot be started."""

    def experiments(self) -> Sequence[str]:
        """Names of experiments to begin with."""

    def start(self, db: LoomDB, words: Sequence[str], run: str | None) -> str:
        """Start a run of an experiment with overrides; its id."""

    def resume(self, db: LoomDB, run: str) -> None:
        """Continue a run from its newest checkpoint."""

    def log(self, run: str) -> str | None:
        """The end of what the run's process wrote; None if it was not started here."""


def add_to(pages: Pages, launcher: Launcher | None) -> None:
    """Starting and resuming need a launcher; stopping needs nothing but the record."""
    if launcher is None:
        return
    pages.templates.globals["can_launch"] = True

    def ask(visit: PageRequest) -> Response:
        return _asking(visit, launcher)

    def start(visit: PageRequest) -> Response:
        lines = [line.strip() for line in visit.form.get("overrides", "").splitlines()]
        try:
            words = [visit.form.get("experiment", "").strip(), *(_setting(line) for line in lines if line)]
            run = launcher.start(visit.source.db, words, visit.form.get("run", "").strip() or None)
        except LoomError as error:
            return _asking(visit, launcher, message=str(error), status=400)
        _note(visit, "run.start_asked", run)
        return visit.back(f"/launched/{quote(run, safe='')}")

    def resume(visit: PageRequest) -> Response:
        run = run_of(visit).id
        launcher.resume(visit.source.db, run)
        _note(visit, "run.resume_asked", run)
        return visit.back(f"/launched/{quote(run, safe='')}")

    def show_launch(visit: PageRequest) -> Response:
        run = visit.segment("run")
        log = launcher.log(run)
        if log is None:
            raise Refused(404, f"No run {run[:120]!r} was started at this console.")
        return visit.page("launched.html", run=run, log=log, is_known=RUNS.find(visit.source.db, run) is not None)

    pages.get("/launch", ask, role=ConsoleRole.OPERATOR)
    pages.post("/launch", start, role=ConsoleRole.OPERATOR)
    pages.post("/runs/{run}/resume", resume, role=ConsoleRole.OPERATOR)
    pages.get("/launched/{run}", show_launch, role=ConsoleRole.OPERATOR)


def _asking(visit: PageRequest, launcher: Launcher, *, message: str = "", status: int = 200) -> Response:
    return visit.page(
        "launch.html", status, experiments=launcher.experiments(), message=message, given=visit.form or {}
    )


def _setting(line: str) -> str:
    if "=" not in line:
        raise ConfigError(f"{line[:80]!r} is no setting. Write path=value, one a line.")
    return line


def _note(visit: PageRequest, kind: str, run: str) -> None:
    EVENTS.append(visit.source.db, [Event(kind=kind, subject=run, data={"by": visit.who}, created_at=time.time())])
