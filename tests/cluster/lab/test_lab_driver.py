"""A language run on hosts of a lab whose driver, learner or database fails."""

import signal
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from loomrl.errors import ClusterError
from tests.cluster.lab.faults import (
    ENDLESS,
    STRUCK_AT,
    cluster,
    experiment,
    goes_on,
    holders,
    join,
    nothing,
    resumes,
    stopped,
    told,
)
from tests.cluster.lab.hosts import Hosts
from tests.needs import needs

pytestmark = [pytest.mark.lab, needs("a lab"), needs("PostgreSQL"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with cluster(tmp_path_factory.mktemp("site")) as found:
        yield found


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
    wanted = experiment(site, ENDLESS)
    first = site.train("laptop", wanted, "two-drivers")
    site.until_version("two-drivers", STRUCK_AT, first)
    first_log = site.log_file("two-drivers")
    begun = time.monotonic()
    second = site.train("head", wanted, "two-drivers")
    assert site.ended(first, "two-drivers") != 0
    took = time.monotonic() - begun
    assert "was resumed on head" in first_log.read_text()
    stopped(site, second, wanted, "two-drivers")
    told("two-drivers", first_ended_after_s=took)


def test_a_driver_that_was_given_up_for_dead_comes_back(site: Hosts) -> None:
    wanted = experiment(site, ENDLESS)
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
    stopped(site, second, wanted, "zombie")
