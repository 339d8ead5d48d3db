"""The reference answer to an attempt's task: the oracle's first action, asked of the environment itself."""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from starlette.responses import HTMLResponse, Response

from loomrl.config import Experiment
from loomrl.console.page import PageRequest, Pages
from loomrl.console.trajectory import at_place, has_reference
from loomrl.errors import ConfigError, LoomError
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.catalogue import make
from loomrl.gym.preference import add_preference, preference_of
from loomrl.http.site import Refused
from loomrl.store import LoomDB
from loomrl.store.runs import RUNS, load_experiment
from loomrl.types import Trajectory

PATIENCE_S = 10.0
"""For the environment to begin the task."""
_turn = threading.Lock()
"""One environment at a time: some begin with a solver or a process."""


class Unavailable(Exception):
    """Why there is no reference to show."""


def add_to(pages: Pages) -> None:
    """The part of a trajectory's page that is loaded after it."""
    pages.get("/reference", _reference)


def _reference(visit: PageRequest) -> Response:
    attempt = at_place(visit).trajectory
    answer = ""
    reason = ""
    try:
        answer = reference_to(attempt, visit.source.db)
    except Unavailable as error:
        reason = str(error)
    return HTMLResponse(visit.render("reference.html", answer=answer, reason=reason, turns=len(attempt.turns)))


def reference_to(attempt: Trajectory, db: LoomDB) -> str:
    """The oracle's first action in the attempt's task; Unavailable says why there is none to show."""
    if not has_reference(attempt):
        raise Unavailable(f"{attempt.task.environment} is not installed here.")
    if not _turn.acquire(timeout=PATIENCE_S):
        raise Refused(503, "Another environment is being asked. Load the page again in a moment.")
    try:
        return asyncio.run(_ask(attempt, _settings(attempt, db)))
    finally:
        _turn.release()


async def _ask(attempt: Trajectory, settings: Mapping[str, Any]) -> str:
    name = attempt.task.environment
    try:
        return await _first_action(make(name, settings), attempt)
    except Unavailable:
        raise
    except ConfigError:
        raise Unavailable(f"{name} needs settings that only its run has.") from None
    except NotImplementedError:
        raise Unavailable(f"{name} has no oracle for this task.") from None
    except TimeoutError:
        raise Unavailable(f"{name} did not begin the task within {PATIENCE_S:g} s.") from None
    except Exception as error:  # noqa: BLE001 - the boundary to the environment's author
        raise Unavailable(f"{name} cannot begin this task here: {type(error).__name__}: {error}") from None


async def _first_action(environment: BaseEnvironment, attempt: Trajectory) -> str:
    try:
        async with asyncio.timeout(PATIENCE_S):
            began = add_preference(await environment.reset(attempt.task), preference_of(attempt.task))
        if attempt.turns and began != attempt.turns[0].observation:
            raise Unavailable(
                f"{attempt.task.environment} {environment.version} here asks something else in this task than the "
                "attempt was asked: its version or settings differ."
            )
        return environment.oracle()
    finally:
        await environment.close()


def _settings(attempt: Trajectory, db: LoomDB) -> Mapping[str, Any]:
    """The settings that the run gave the environment, as far as they are numbers: files, commands and addresses that
    are on record must not act on this machine.
    """
    run = RUNS.find(db, attempt.run) if attempt.run else None
    try:
        experiment = None if run is None else load_experiment(run)
    except LoomError:  # of evaluations and sweeps
        experiment = None
    given = experiment.environments if isinstance(experiment, Experiment) else ()
    settings = next((each.settings for each in given if each.id.partition("@")[0] == attempt.task.environment), {})
    return {name: value for name, value in settings.items() if isinstance(value, int | float)}
