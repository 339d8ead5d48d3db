"""Ray on hosts of a lab, with tokens, started by hand."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from loomrl.errors import ClusterError
from tests.cluster.lab.lab_support import RAY, SMALL, TOKEN, WHERE, a_lab, python
from tests.lab import Lab
from tests.needs import needs
from tests.tls_samples import issue

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


PLAINLY = """
import grpc, sys
from ray.core.generated.gcs_service_pb2 import GetAllNodeInfoRequest
from ray.core.generated.gcs_service_pb2_grpc import NodeInfoGcsServiceStub
channel = grpc.insecure_channel("head:6379")
try:
    NodeInfoGcsServiceStub(channel).GetAllNodeInfo(GetAllNodeInfoRequest(), timeout=10)
    print("answered")
except grpc.RpcError as error:
    print(error.code().name)
"""


def test_rays_own_tls_shuts_out_who_has_no_certificate(lab: Lab) -> None:
    """A certificate of one authority for every address; the laptop has none."""
    folder = lab.shared / "tls"
    folder.mkdir()
    issued = issue(folder, *(word for host in lab.plan.hosts.values() for word in (host.name, host.address)))
    files = {"CERT": issued.certificate.chain, "KEY": issued.certificate.key}
    tls = {"RAY_USE_TLS": "1"} | {
        f"RAY_TLS_SERVER_{name}": f"/tmp/shared/tls/{file.name}" for name, file in files.items()
    }
    tls["RAY_TLS_CA_CERT"] = f"/tmp/shared/tls/{issued.authority.name}"
    start, env = ["ray", "start", *SMALL], RAY | {"RAY_AUTH_MODE": "disabled"}
    lab.run("head", [*start, "--head", "--port=6379", "--include-dashboard=false"], env=env | tls, timeout_s=120)
    lab.run("one", [*start, "--address=head:6379"], env=env | tls, timeout_s=120)
    hosts = [[lab.plan.host(name).address, name] for name in ("head", "one")]
    assert where(lab, "one", RAY_AUTH_MODE="disabled", **tls)["where"] == hosts
    assert lab.run("laptop", python(PLAINLY), env=env, timeout_s=60).stdout.strip() == "UNAVAILABLE"
    with pytest.raises(ClusterError, match="two:"):
        lab.run("two", [*start, "--address=head:6379"], env=env, timeout_s=90)
    assert where(lab, "one", RAY_AUTH_MODE="disabled", **tls)["where"] == hosts
