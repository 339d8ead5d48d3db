"""An endpoint on hosts of a lab, and what its callers notice when one of them, or what connects them, fails.

The front is on `head`; `one` and `two` have a gateway and a replica of the policy each, `three` has room for what they
lose. The callers are on this machine.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from loomrl.config import ServingExperiment
from loomrl.experiments.bench.served import save_language
from loomrl.store import open_store
from loomrl.store.replicas import ReplicaRole, live_replicas
from tests.cluster.lab.faults import LINKS, Fault, disk_freed, disk_full, nothing, told
from tests.cluster.lab.hosts import BUCKET, ENV, STORE, Hosts, hosts
from tests.needs import needs
from tests.serving.callers import Seen, calling, calls_on_record

pytestmark = [pytest.mark.lab, needs("a lab"), needs("PostgreSQL"), needs("HAProxy"), pytest.mark.timeout(900)]
DEADLINE_S, CALLERS, PAUSE_S, CALM_S = 10.0, 4, 0.5, 3.0
"""Callers pause, or they alone would keep both cores busy on which all hosts live."""
WORKERS = ("one", "two", "three")


@dataclass
class Endpoint:
    """What answers, and where."""

    site: Hosts
    url: str
    key: str

    def hosts_of(self, role: ReplicaRole) -> list[str]:
        with open_store(self.site.store_url) as db:
            return sorted(row.node for row in live_replicas(db, role=role))

    def is_whole(self) -> bool:
        return all(len(self.hosts_of(role)) == 2 for role in (ReplicaRole.GATEWAY, ReplicaRole.POLICY))


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with hosts(tmp_path_factory.mktemp("site"), "head", *WORKERS) as site:
        site.start_ray("head", head=True, cpus=0)
        for host in WORKERS:
            site.start_ray(host, cpus=2, policy=1)  # room for one replica and one gateway
        save_language(site.lab.shared / "talk")
        yield Endpoint(site, *site.serve(service()))


def service() -> ServingExperiment:
    return ServingExperiment.parse(
        {
            "name": "talk",
            "store_url": STORE,
            "artifact_url": BUCKET,
            "arms": [{"what": "/tmp/shared/talk"}],
            "replicas": {"least": 2, "most": 2, "cpus": 1, "resources": {"policy": 1}},
            "gateways": {"count": 2, "cpus": 1, "deadline_s": DEADLINE_S},
            "host": "0.0.0.0",
        }
    )


def seen_while(endpoint: Endpoint, strike: Callable[[], None]) -> tuple[Seen, float]:
    """What callers saw, and when the fault came."""

    async def play() -> tuple[Seen, float]:
        headers = {"authorization": f"Bearer {endpoint.key}"}
        async with calling(
            endpoint.url, callers=CALLERS, timeout_s=3 * DEADLINE_S, headers=headers, pause_s=PAUSE_S
        ) as seen:
            await asyncio.sleep(CALM_S)
            assert set(seen.statuses) == {"200"}
            struck = time.monotonic() - seen.began
            await asyncio.to_thread(strike)
            await asyncio.sleep(3 * DEADLINE_S)
        return seen, struck

    return asyncio.run(play())


def assert_callers_are_served(
    endpoint: Endpoint, name: str, strike: Callable[[], None], mend: Callable[[], None]
) -> None:
    """No caller waits for ever, no answered call is missing, and all are served again before the test is over."""
    endpoint.site.until(endpoint.is_whole, "the endpoint is not whole")
    seen, struck = seen_while(endpoint, strike)
    mend()
    trouble_s = max([end - struck for end, answered in seen.ends if not answered], default=0.0)
    failed = sum(seen.statuses.values()) - len(seen.answered)
    told(name, calls=sum(seen.statuses.values()), failed=failed, trouble_s=trouble_s, longest_s=seen.longest_s)
    print(name, dict(seen.statuses), f"trouble {trouble_s:.1f} s, longest {seen.longest_s:.1f} s", dict(seen.refusals))
    with open_store(endpoint.site.store_url) as db:
        kept = Counter(calls_on_record(db))
    assert {call: kept[call] for call in seen.answered if kept[call] != 1} == {}
    assert seen.http <= {"200", "429", "503"}
    assert "ReadTimeout" not in seen.statuses
    assert seen.longest_s < DEADLINE_S + 10
    later = [answered for end, answered in seen.ends if end > struck + 2 * DEADLINE_S]
    assert sum(later) > 0.9 * len(later)  # on a busy machine a call may come to its deadline without a fault


def test_gateways_and_replicas_are_on_several_hosts(endpoint: Endpoint) -> None:
    endpoint.site.until(endpoint.is_whole, "the endpoint is not whole")
    for role in (ReplicaRole.GATEWAY, ReplicaRole.POLICY):
        assert len(set(endpoint.hosts_of(role))) == 2, endpoint.hosts_of(role)
    assert endpoint.hosts_of(ReplicaRole.FRONT) == ["head"]


def test_a_service_that_only_the_head_would_hear_is_refused_elsewhere(endpoint: Endpoint) -> None:
    places = [f"store_url={STORE}", f"artifact_url={BUCKET}"]
    words = ["loomrl", "serve", "/tmp/shared/talk", "--endpoint", "deaf", *places]
    done = endpoint.site.lab.run("one", words, env=ENV | {"RAY_ADDRESS": "head:6379"}, check=False, timeout_s=120)
    assert done.returncode == 2
    assert "only the head node" in done.stderr
    assert "host=0.0.0.0" in done.stderr


def disk_full_for_a_moment(site: Hosts, host: str) -> None:
    disk_full(site)
    time.sleep(5)
    disk_freed(site)


DISK: tuple[str, Fault, Fault] = ("disk-full", disk_full_for_a_moment, nothing)


@pytest.mark.parametrize(
    ("name", "strike", "mend"), [*LINKS, DISK], ids=lambda value: value if isinstance(value, str) else ""
)
def test_callers_are_served_whatever_happens_to_a_host_with_a_gateway_and_a_replica(
    endpoint: Endpoint, name: str, strike: Fault, mend: Fault
) -> None:
    host = endpoint.hosts_of(ReplicaRole.GATEWAY)[0]
    at = (endpoint.site, host)
    assert_callers_are_served(endpoint, f"serving-{name}", partial(strike, *at), partial(mend, *at))
