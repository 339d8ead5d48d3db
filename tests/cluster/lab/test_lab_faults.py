"""A language run on hosts of a lab, and what happens to it when one of them, or what connects them, fails.

Its head is in `test_lab_head.py`.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from loomrl.errors import ClusterError
from tests.cluster.lab.faults import (
    KINDS,
    MANY,
    STRUCK_AT,
    assert_finished,
    experiment,
    goes_on,
    holders,
    join,
    nothing,
    rejoined,
    resumes,
    told,
)
from tests.cluster.lab.hosts import Hosts, hosts
from tests.needs import needs

pytestmark = [pytest.mark.lab, needs("a lab"), needs("PostgreSQL"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("site"), "head", "laptop", *KINDS) as found:
        found.start_ray("head", head=True, cpus=0)
        for host in ("laptop", *KINDS):
            join(found, host)
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


def test_the_learners_host_loses_its_power_and_another_takes_over(site: Hosts) -> None:
    holder: list[str] = []

    def strike() -> None:
        holder.extend(holders(site, "learner"))
        assert holder in (["one"], ["two"])
        site.lab.power_off(holder[0])

    resumes(site, "learner-off", strike)
    site.lab.power_on(holder[0])
    join(site, holder[0])


def test_the_database_is_restarted(site: Hosts) -> None:
    def strike() -> None:
        site.stop_database()
        time.sleep(5)
        site.start_database()

    goes_on(site, "postgresql-restarted", strike, nothing)


def test_the_databases_disk_is_full(site: Hosts) -> None:
    def mend() -> None:
        site.lab.free("db")
        with suppress(ClusterError):  # it may have ended by itself
            site.stop_database()
        site.start_database()

    resumes(site, "disk-full", lambda: site.lab.fill("db"), mend)


def test_two_drivers_of_one_run_by_mistake(site: Hosts) -> None:
    wanted = experiment(site, 2 * MANY)  # or the first is done before the second has started, in a slow hour
    first = site.train("laptop", wanted, "two-drivers")
    site.until_version("two-drivers", STRUCK_AT, first)
    first_log = site.log_file("two-drivers")
    begun = time.monotonic()
    second = site.train("head", wanted, "two-drivers")
    assert site.ended(first, "two-drivers") != 0
    took = time.monotonic() - begun
    assert "was resumed on head" in first_log.read_text()
    assert site.ended(second, "two-drivers") == 0, site.log("two-drivers")[-5000:]
    assert_finished(site, wanted, "two-drivers")
    told("two-drivers", first_ended_after_s=took)


def test_a_driver_that_was_given_up_for_dead_comes_back(site: Hosts) -> None:
    wanted = experiment(site, MANY)
    first = site.train("laptop", wanted, "zombie")
    site.until_version("zombie", STRUCK_AT, first)
    first_log = site.log_file("zombie")
    site.lab.run("laptop", ["pkill", "-STOP", "-f", "[-]-run zombie"])
    second = site.train("head", wanted, "zombie")
    site.until_version("zombie", STRUCK_AT + 2, second)
    site.lab.run("laptop", ["pkill", "-CONT", "-f", "[-]-run zombie"])
    first.send_signal(signal.SIGCONT)  # nsenter stops with what it started
    assert site.ended(first, "zombie") != 0
    assert "was resumed on head" in first_log.read_text()
    assert site.ended(second, "zombie") == 0, site.log("zombie")[-5000:]
    assert_finished(site, wanted, "zombie")
