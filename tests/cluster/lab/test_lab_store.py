"""LoomDB on a host of its own, and a host that is gone while it writes and waits to write."""

import time
from pathlib import Path

import pytest
from sqlalchemy import text

from loomrl.store import open_store
from tests.cluster.lab.faults import told
from tests.cluster.lab.hosts import STORE, Hosts, hosts
from tests.needs import needs

pytestmark = [pytest.mark.lab, needs("a lab"), needs("PostgreSQL"), pytest.mark.timeout(300)]
WRITE = """
import sys, time
from loomrl.store import open_store
with open_store(sys.argv[1]) as db:
    print("open", flush=True)
    with db.write():
        print("writes", flush=True)
        while True:
            time.sleep(60)
"""
WAITING = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
WITHIN_S = 16.0


def waiting(site: Hosts) -> int:
    with open_store(site.store_url) as db, db.read() as connection:
        return int(connection.execute(WAITING).scalar_one())


def test_a_host_that_is_gone_holds_the_write_lock_for_seconds_though_others_on_it_wait_for_it_too(
    tmp_path: Path,
) -> None:
    with hosts(tmp_path, "one") as site:
        for number in range(3):
            site.start("one", str(number), ["python", "-c", WRITE, STORE])
            site.until(lambda: "open" in site.log(str(number)), "LoomDB is not open")  # noqa: B023
            site.until(lambda: waiting(site) == number or number == 0, "it does not wait")  # noqa: B023
        site.lab.power_off("one")
        began = time.monotonic()
        with open_store(site.store_url) as db, db.write():
            took = time.monotonic() - began
        told("writers-off", written_after_s=took)
        assert took < WITHIN_S
