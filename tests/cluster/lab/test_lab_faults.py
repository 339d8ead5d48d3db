"""A language run on hosts of a lab, and what happens to it when a host, what connects hosts, or the database fails.

The head is in `test_lab_head.py`.
"""

import signal
import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests.cluster.lab.faults import (
    ENDLESS,
    LINKS,
    STRUCK_AT,
    Fault,
    cluster,
    disk_freed,
    disk_full,
    experiment,
    goes_on,
    holders,
    on_again,
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


@pytest.mark.parametrize(("name", "strike", "mend"), LINKS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_run_goes_on(site: Hosts, name: str, strike: Fault, mend: Fault) -> None:
    host = "one" if name in ("slow-and-lossy", "20mbit") else "three"  # the learner's link, or a runner's host
    goes_on(site, name, partial(strike, site, host), partial(mend, site, host))


def test_the_learners_host_loses_its_power_and_another_takes_over(site: Hosts) -> None:
    holder: list[str] = []

    def strike() -> None:
        holder.extend(holders(site, "learner"))
        assert holder in (["one"], ["two"])
        site.lab.power_off(holder[0])

    resumes(site, "learner-off", strike, lambda: None)
    on_again(site, holder[0])


def test_the_databases_disk_is_full(site: Hosts) -> None:
    resumes(site, "disk-full", partial(disk_full, site), partial(disk_freed, site))


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
