"""The head's host loses its power while a run trains: with Redis it is missed, without it ends what it had."""

import time
from collections.abc import Iterator

import pytest

from tests.cluster.lab.faults import KINDS, goes_on, resumes, start_nodes
from tests.cluster.lab.hosts import Hosts, hosts
from tests.needs import needs

pytestmark = [pytest.mark.lab, needs("a lab"), needs("PostgreSQL"), needs("Redis"), pytest.mark.timeout(900)]
PASSWORD = "only-in-this-lab"
AWAY_S = 10.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("site"), "head", "laptop", *KINDS) as found:
        yield found


def start_redis(site: Hosts) -> None:
    words = ["redis-server", "--bind", "0.0.0.0", "--requirepass", PASSWORD, "--dir", "/tmp", "--appendonly", "yes"]
    site.start("db", "redis", words)
    ask = ["redis-cli", "--no-auth-warning", "-a", PASSWORD, "ping"]
    site.until(lambda: "PONG" in site.lab.run("db", ask, check=False).stdout, "no Redis")


def start_head(site: Hosts, *, redis: bool) -> None:
    kept = {"RAY_REDIS_ADDRESS": "db:6379"} if redis else {}
    site.start_ray("head", head=True, cpus=0, options=[f"--redis-password={PASSWORD}"] if redis else [], env=kept)


def restarted(site: Hosts) -> None:
    """The head has its power again, and a cluster begins from nothing."""
    site.lab.power_on("head")
    start_head(site, redis=False)
    for host in ("laptop", *KINDS):
        site.end_ray(host)
    start_nodes(site)


def test_with_redis_the_run_goes_on_when_the_head_is_back(site: Hosts) -> None:
    start_redis(site)
    start_head(site, redis=True)
    start_nodes(site)

    def strike() -> None:
        site.lab.power_off("head")
        time.sleep(AWAY_S)
        site.lab.power_on("head")
        start_head(site, redis=True)

    goes_on(site, "head-off-redis", strike, lambda: None)


def test_without_redis_the_run_ends_and_is_resumed_on_another_cluster(site: Hosts) -> None:
    """It trains on until its nodes give the head up, which takes Ray a minute."""
    site.lab.power_off("head")
    restarted(site)
    resumes(site, "head-off", lambda: site.lab.power_off("head"), lambda: restarted(site))
