"""A run changes its learners between checkpoints: two hosts, one, and two again, by the command that resumes it."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.lab.faults import assert_finished, told
from tests.cluster.lab.hosts import Hosts, hosts
from tests.cluster.slow_run import small
from tests.needs import needs

pytestmark = [pytest.mark.lab, needs("a lab"), needs("PostgreSQL"), pytest.mark.timeout(900)]
TWO = ["algorithm.learners.count=2"]
ONE = ["algorithm.learners.count=1", "algorithm.learners.sharding=replicate"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("site"), "head", "one", "two", "three") as found:
        found.start_ray("head", head=True, cpus=1)
        for host in ("one", "two"):
            found.start_ray(host, learner=1)
        found.start_ray("three", cpus=2, rollout=2)
        yield found


@pytest.mark.parametrize("sharding", ["replicate", "fsdp"])
def test_learners_are_two_then_one_then_two(site: Hosts, sharding: str) -> None:
    run = f"layout-{sharding}"
    learners: dict[str, Any] = {
        "algorithm.learners.count": 2,
        "algorithm.learners.sharding": sharding,
        "placement.learner.resources": {"learner": 1},
    }
    wanted = site.settled(small(Path("/tmp/shared"), 6, **learners))
    process = site.train("head", wanted, run)
    for number, layout in ((2, ONE), (4, [*TWO, f"algorithm.learners.sharding={sharding}"])):
        site.until_version(run, number, process)
        process.send_signal(signal.SIGTERM)
        site.ended(process, run)
        process = site.resume("head", wanted, run, layout)
    assert site.ended(process, run) == 0, site.log(run)[-5000:]
    assert_finished(site, wanted, run)
    told(run, versions=site.newest(run))
