"""A run changes its learners between checkpoints: two hosts or one, replicated or sharded."""

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
SHARDED = ["algorithm.learners.count=2", "algorithm.learners.sharding=fsdp"]
ONE = ["algorithm.learners.count=1", "algorithm.learners.sharding=replicate"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("site"), "head", "one", "two", "three") as found:
        found.start_ray("head", head=True, cpus=1)
        for host in ("one", "two"):
            found.start_ray(host, learner=1)
        found.start_ray("three", cpus=2, rollout=2)
        yield found


def test_learners_are_two_then_one_then_two_with_a_shard_each_and_one_again(site: Hosts) -> None:
    learners: dict[str, Any] = {"algorithm.learners.count": 2, "placement.learner.resources": {"learner": 1}}
    wanted = site.settled(small(Path("/tmp/shared"), 8, **learners))
    process = site.train("head", wanted, "layout")
    for number, layout in ((2, ONE), (4, SHARDED), (6, ONE)):
        site.until_version("layout", number, process)
        process.send_signal(signal.SIGTERM)
        site.ended(process, "layout")
        process = site.resume("head", wanted, "layout", layout)
    assert site.ended(process, "layout") == 0, site.log("layout")[-5000:]
    assert_finished(site, wanted, "layout")
    told("layout", versions=site.newest("layout"))
