"""Hosts leave while a run trains, and others join."""

import time
from collections.abc import Iterator

import pytest

from tests.cluster.lab.faults import ENDLESS, STRUCK_AT, experiment, holders, stopped, told
from tests.cluster.lab.hosts import Hosts, hosts
from tests.needs import needs

pytestmark = [pytest.mark.lab, needs("a lab"), needs("PostgreSQL"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """With room for two runners exactly; `five` is no part of the cluster yet."""
    with hosts(tmp_path_factory.mktemp("site"), "head", "one", "three", "four", "five") as found:
        found.start_ray("head", head=True, cpus=0)
        found.start_ray("one", learner=1)
        for host in ("three", "four"):
            found.start_ray(host, rollout=1)
        yield found


def test_a_runner_leaves_with_its_host_and_comes_back_on_one_that_joins(site: Hosts) -> None:
    wanted = experiment(site, ENDLESS)
    process = site.train("head", wanted, "elastic")
    site.until_version("elastic", STRUCK_AT, process)
    assert set(holders(site, "rollout")) == {"three", "four"}
    site.lab.power_off("three")
    begun, before = time.monotonic(), site.newest("elastic")
    site.until_version("elastic", before + 2, process)
    fewer_s = time.monotonic() - begun
    begun = time.monotonic()
    site.start_ray("five", rollout=1)
    site.until(lambda: "five" in holders(site, "rollout"), "no runner on five")
    joined_s = time.monotonic() - begun
    site.until_version("elastic", site.newest("elastic") + 1, process)
    stopped(site, process, wanted, "elastic")
    told("runner-leaves-and-joins", two_versions_s=fewer_s, joined_s=joined_s)
