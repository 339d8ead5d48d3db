"""A release on an endpoint of several hosts goes its way while hosts, links and the database fail.

`one`, `two` and `three` have room for two replicas and a gateway each; callers are on this machine.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from loomrl.config import ServingExperiment
from loomrl.release.ledger import Release, latest
from loomrl.release.passage import ReleasePhase
from loomrl.store import open_store
from loomrl.store.endpoints import show_endpoint
from loomrl.store.replicas import ReplicaRole, live_replicas
from tests.cluster.lab.faults import database_restarted, off, on_again, pulled, told
from tests.cluster.lab.hosts import BUCKET, ENV, STORE, Hosts, hosts
from tests.needs import needs
from tests.release.test_release_kills import legal_history
from tests.serving.control_support import control_policy
from tests.serving.releasing import Load, calling

pytestmark = [pytest.mark.lab, needs("a lab"), needs("PostgreSQL"), needs("HAProxy"), pytest.mark.timeout(900)]
WORKERS = ("one", "two", "three")
STEPS = [{"share": share, "minutes": 0.2, "units": 30} for share in (0.1, 0.25, 0.5)]
GUARDS = [
    {"metric": "error", "better": "lower", "margin": 0.05, "limit": 0.05, "waits": "always"},
    {"metric": "latency_s", "better": "lower", "high": 120, "quantile": 0.95, "times": 1.25, "margin": 0.25,
     "waits": "never"},
]  # fmt: skip
"""Milliseconds say here how busy the cores are that all hosts share."""
PLAN = {"strategy": "canary", "steps": [*STEPS, {"share": 1.0, "minutes": 0.05, "units": 0}], "guards": GUARDS}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hosts, Load]]:
    with hosts(tmp_path_factory.mktemp("site"), "head", *WORKERS) as site:
        site.start_ray("head", head=True, cpus=0)
        for host in WORKERS:
            site.start_ray(host, cpus=2, policy=2)
        for seed in range(3):
            control_policy(seed=seed).save(site.lab.shared / f"v{seed}")
        (site.lab.shared / "plan.yaml").write_text(json.dumps(PLAN))
        url, key = site.serve(service())
        yield site, Load(url, headers={"authorization": f"Bearer {key}"}, pause_s=0.02)


def service() -> ServingExperiment:
    return ServingExperiment.parse(
        {
            "name": "policy",
            "store_url": STORE,
            "artifact_url": BUCKET,
            "arms": [{"what": "/tmp/shared/v0"}],
            "replicas": {"least": 2, "most": 2, "cpus": 0.5, "resources": {"policy": 1}},
            "gateways": {"count": 2, "cpus": 1, "deadline_s": 10.0},
            "record": {"mode": "off"},
            "host": "0.0.0.0",
        }
    )


def state(site: Hosts) -> Release:
    with open_store(site.store_url) as db:
        return latest(db, "policy")


def released(site: Hosts, load: Load, version: str, strike: Callable[[], None]) -> tuple[Release, float]:
    """The end of a release to which this happens when it has begun, and the seconds that it took."""

    async def play() -> float:
        async with calling(load, callers=2):
            words = ["loomrl", "release", f"/tmp/shared/{version}", "--to", "policy", "--plan", "/tmp/shared/plan.yaml"]
            words += ["--no-gate", "a test", "--store", STORE]
            await asyncio.to_thread(site.lab.run, "head", words, env=ENV, timeout_s=60)
            began = time.monotonic()
            await asyncio.to_thread(site.until, lambda: state(site).passage.step >= 1, "no second step")
            await asyncio.to_thread(strike)
            await asyncio.to_thread(site.until, lambda: not state(site).passage.is_open, "no end of the release")
            return time.monotonic() - began

    took = asyncio.run(play())
    return state(site), took


def assert_promoted(site: Hosts, load: Load, name: str, version: str, strike: Callable[[], None]) -> None:
    """It is the version of all traffic in the end, and its history is a legal one: infrastructure is no evidence."""
    load.answers.clear()
    load.is_over = False
    end, took = released(site, load, version, strike)
    statuses = Counter(answer.status for answer in load.answers)
    print(name, end.passage.phase, end.passage.reason, dict(statuses), dict(load.broken), f"{took:.1f} s")
    assert end.passage.phase is ReleasePhase.DONE, end.passage.reason
    with open_store(site.store_url) as db:
        assert show_endpoint(db, "policy").stable.policy == f"/tmp/shared/{version}"
        legal_history(db, "policy")
    failed = sum(count for status, count in statuses.items() if status != 200) + load.broken.total()
    told(name, calls=statuses.total(), failed=failed, seconds=took)
    assert failed < statuses.total() / 4


def test_a_host_of_the_new_version_loses_its_power(site: tuple[Hosts, Load]) -> None:
    there, load = site

    def strike() -> None:
        with open_store(there.store_url) as db:
            rows = live_replicas(db, role=ReplicaRole.POLICY)
        lost = next(row.node for row in rows if row.policy == "/tmp/shared/v1")
        off(there, lost)
        time.sleep(15)
        on_again(there, lost)

    assert_promoted(there, load, "release-host-off", "v1", strike)


def test_the_database_is_restarted_and_a_link_is_cut(site: tuple[Hosts, Load]) -> None:
    there, load = site

    def strike() -> None:
        database_restarted(there)
        pulled(there, "two", seconds=10)

    assert_promoted(there, load, "release-database-and-link", "v2", strike)
