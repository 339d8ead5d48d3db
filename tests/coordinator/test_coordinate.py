"""The loop end to end: what people said of a tiny policy trains the next version, which is judged and released."""

import time
from pathlib import Path

import pytest

from loomrl.coordinator.job import Phase
from loomrl.coordinator.ledger import jobs_of
from loomrl.experiments.coordinate.loop import Coordinator, coordinating
from loomrl.release.controller import Controller
from loomrl.release.ledger import latest
from loomrl.store import open_store
from loomrl.store.endpoints import show_endpoint
from tests.coordinator.loop_support import loop, production
from tests.feedback.served_support import ENDPOINT

pytestmark = [pytest.mark.system, pytest.mark.slow]


def until(coordinator: Coordinator, phase: Phase, *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (
        jobs_of(coordinator.db, ENDPOINT)[1][-1:] == () or jobs_of(coordinator.db, ENDPOINT)[1][-1].phase is not phase
    ):
        assert time.monotonic() < deadline, jobs_of(coordinator.db, ENDPOINT)
        if not coordinator.tick():
            time.sleep(0.2)


def test_what_people_said_trains_the_next_version_which_is_released(tmp_path: Path) -> None:
    production(tmp_path)
    plan = loop(tmp_path)
    with open_store(plan.store_url) as db, coordinating(db, plan) as coordinator:
        until(coordinator, Phase.RELEASING, seconds=600)
        (job,) = jobs_of(db, ENDPOINT)[1]
        print(job)
        assert latest(db, ENDPOINT).challenger == job.policy
        assert show_endpoint(db, ENDPOINT).stable.policy == "r/0"
        Controller(db, ENDPOINT).tick()
