"""A language run on hosts of a lab, and what happens to it when a runner's host, or what connects hosts, fails.

Driver, learner and database are in `test_lab_driver.py`, the head in `test_lab_head.py`.
"""

import time
from collections.abc import Iterator

import pytest

from tests.cluster.lab.faults import cluster, goes_on, join, nothing, rejoined
from tests.cluster.lab.hosts import Hosts
from tests.needs import needs

pytestmark = [pytest.mark.lab, needs("a lab"), needs("PostgreSQL"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with cluster(tmp_path_factory.mktemp("site")) as found:
        yield found


def test_without_a_fault(site: Hosts) -> None:
    goes_on(site, "quiet", nothing, nothing)


def test_a_runners_host_loses_its_power(site: Hosts) -> None:
    def mend() -> None:
        site.lab.power_on("three")
        join(site, "three")

    goes_on(site, "runner-off", lambda: site.lab.power_off("three"), mend)


@pytest.mark.parametrize("seconds", [10, 60])
def test_a_runners_cable_is_pulled_for_a_while(site: Hosts, seconds: int) -> None:
    def strike() -> None:
        site.lab.link("three", up=False)
        time.sleep(seconds)
        site.lab.link("three", up=True)

    goes_on(site, f"runner-cut-{seconds}s", strike, lambda: rejoined(site, "three"))


def test_a_runner_is_heard_by_the_head_no_more_though_it_hears_it(site: Hosts) -> None:
    def strike() -> None:
        site.lab.cut("three", "head")
        time.sleep(20)
        site.lab.heal("three", "head")

    goes_on(site, "one-way-cut", strike, lambda: rejoined(site, "three"))


def test_a_learners_link_is_long_and_loses(site: Hosts) -> None:
    def mend() -> None:
        site.lab.link("one", rtt_ms=0, loss=0)

    goes_on(site, "slow-and-lossy", lambda: site.lab.link("one", rtt_ms=200, loss=0.02) and None, mend)


def test_a_learners_link_is_slow(site: Hosts) -> None:
    def mend() -> None:
        site.lab.link("one", mbit=None)

    goes_on(site, "20mbit", lambda: site.lab.link("one", mbit=20) and None, mend)
