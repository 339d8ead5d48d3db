"""The head's host loses its power while an endpoint serves: gateways go on, and the front comes back with it.

Ray's control plane keeps its state in Redis. Nobody does anything but start Ray on the head again.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest

from loomrl.store import open_store
from loomrl.store.replicas import ReplicaRole, live_replicas
from tests.cluster.lab.faults import told
from tests.cluster.lab.hosts import Hosts, hosts
from tests.cluster.lab.test_lab_head import start_head, start_redis
from tests.cluster.lab.test_lab_release import service
from tests.needs import needs
from tests.serving.control_support import control_policy
from tests.serving.releasing import Load, calling

pytestmark = [
    pytest.mark.lab,
    needs("a lab"),
    needs("PostgreSQL"),
    needs("HAProxy"),
    needs("Redis"),
    pytest.mark.timeout(900),
]
WORKERS = ("one", "two", "three")
AWAY_S, BACK_WITHIN_S = 15.0, 240.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("site"), "head", *WORKERS) as found:
        start_redis(found)
        start_head(found, redis=True)
        for host in WORKERS:
            found.start_ray(host, cpus=2, policy=2)
        yield found


def test_gateways_answer_without_the_head_and_the_front_is_there_again_with_it(site: Hosts) -> None:
    control_policy().save(site.lab.shared / "v0")
    url, key = site.serve(service())
    headers = {"authorization": f"Bearer {key}"}
    with open_store(site.store_url) as db:
        gateway = live_replicas(db, role=ReplicaRole.GATEWAY)[0]
    load = Load(f"http://{gateway.address}", headers=headers, pause_s=0.02)

    async def play() -> None:
        async with calling(load, callers=2):
            await asyncio.sleep(2)
            await asyncio.to_thread(site.lab.power_off, "head")
            await asyncio.sleep(AWAY_S)

    asyncio.run(play())
    statuses = Counter(answer.status for answer in load.answers)
    site.lab.power_on("head")
    start_head(site, redis=True)
    began = time.monotonic()

    def answers() -> bool:
        try:
            body = {"model": "policy", "observation": [0.0, 0.1, 0.0, 0.1]}
            return httpx.post(f"{url}/v1/act", json=body, headers=headers, timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    site.until(answers, "the front does not answer")
    back_s = time.monotonic() - began
    print(dict(statuses), dict(load.broken), f"back after {back_s:.1f} s")
    told("serving-head-off", calls=statuses.total(), failed=statuses.total() - statuses[200], back_s=back_s)
    assert set(statuses) == {200}
    assert not load.broken
    assert back_s < BACK_WITHIN_S
