"""Ray on hosts of a lab, with tokens, started by hand."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from loomrl.cluster.lab import Lab
from loomrl.errors import ClusterError
from tests.cluster.lab.lab_support import RAY, SMALL, TOKEN, WHERE, a_lab, python
from tests.needs import needs

pytestmark = [pytest.mark.lab, needs("a lab"), pytest.mark.timeout(600)]


@pytest.fixture
def lab() -> Iterator[Lab]:
    with a_lab("laptop", "head", "one", "two", disk_mb=1024) as lab:
        yield lab


def where(lab: Lab, host: str, **env: str) -> Any:
    done = lab.run(host, python(WHERE), env=TOKEN | RAY | {"RAY_ADDRESS": "head:6379"} | env, timeout_s=120)
    return json.loads(done.stdout.splitlines()[-1])


def test_nodes_that_are_started_by_hand_make_a_cluster_across_hosts_for_those_with_its_token(lab: Lab) -> None:
    env = TOKEN | RAY
    start = ["ray", "start", *SMALL]
    lab.run("head", [*start, "--head", "--port=6379", "--include-dashboard=false"], env=env, timeout_s=120)
    for host in ("one", "two"):
        lab.run(host, [*start, "--address=head:6379"], env=env, timeout_s=120)
    hosts = [[lab.plan.host(name).address, name] for name in ("head", "one", "two")]
    assert where(lab, "one")["where"] == hosts
    with pytest.raises(ClusterError, match="one:"):
        where(lab, "one", RAY_AUTH_TOKEN="another-" + "x" * 32)
