"""Reports by what people ask for."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from loomrl.config import HubConfig
from loomrl.config.loop import LoopExperiment
from loomrl.coordinator.ledger import find_job
from loomrl.coordinator.report import MADE, daily, find_report
from loomrl.errors import ConfigError, did_you_mean, there_are
from loomrl.experiments.coordinate.look import Observer
from loomrl.hub.open import open_endpoint_hub
from loomrl.store import LoomDB, open_store
from loomrl.store.endpoints import show_endpoint
from loomrl.store.events import EVENTS


def report_of(plan: LoopExperiment, *, job: str | None, day: str | None) -> Mapping[str, Any]:
    """The report of a job, the newest of a day, or one of the last 24 hours as of now; which is not kept."""
    if job is not None and day is not None:
        raise ConfigError("--job and --day are both given: one report is printed.")
    with open_store(plan.store_url) as db:
        show_endpoint(db, plan.endpoint)
        if job is not None:
            return _found(db, plan, f"job-{find_job(db, job).id}")
        if day is not None:
            return _found(db, plan, day)
        with ExitStack() as stack:
            hubs = [
                stack.enter_context(open_endpoint_hub(plan.store_url, name, HubConfig()))
                for name in plan.data.endpoints
            ]
            observer = Observer(db, plan, hubs)
            return daily(plan, observer.day(observer.look(), at=time.time()))


def _found(db: LoomDB, plan: LoopExperiment, wanted: str) -> Mapping[str, Any]:
    known = [name.removeprefix(f"{plan.endpoint}/") for name in _names(db) if name.startswith(f"{plan.endpoint}/")]
    fitting = [name for name in known if name.startswith(wanted)]
    if not fitting:
        raise ConfigError(f"there is no report {wanted!r:.60}. {there_are(known)}{did_you_mean(wanted, known)}")
    found = find_report(db, f"{plan.endpoint}/{fitting[-1]}")
    assert found is not None, "its name is on record"
    return found


def _names(db: LoomDB) -> list[str]:
    """The names of all reports, oldest first."""
    names: list[str] = []
    after = 0
    while page := EVENTS.read(db, after=after, kind=MADE):
        after = page[-1][0]
        names += [event.subject for _, event in page]
    return names
