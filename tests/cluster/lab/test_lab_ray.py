"""Ray on hosts of a lab, with tokens: started by hand, and by its own launcher through ssh, by the file that ships."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from loomrl.cluster.lab import Lab
from loomrl.errors import ClusterError
from tests.cluster.cluster_support import ROOT
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


def test_launcher_starts_the_cluster_of_the_file_that_ships_through_ssh(lab: Lab) -> None:
    for host in ("one", "two"):
        lab.run(host, ["sh", "-c", """echo '{"rollout": 16}' > /etc/loomrl-node.json"""])
    text = yaml.safe_dump(adapted(lab))
    write = 'mkdir -p ~/.ray; printf %s "$1" > ~/cluster.yaml; printf %s "$2" > ~/.ray/auth_token'
    lab.run("laptop", ["sh", "-c", write, "sh", text, TOKEN["RAY_AUTH_TOKEN"]])
    up = ["ray", "up", "--yes", "--no-config-cache", "cluster.yaml"]
    lab.run("laptop", up, env=RAY | {"RAY_AUTH_MODE": "token", "RAY_enable_autoscaler_v2": "0"}, timeout_s=240)
    until = time.monotonic() + 180
    while len((found := where(lab, "head"))["where"]) < 3:
        assert time.monotonic() < until, (found, lab.run("head", ["sh", "-c", "tail -50 /tmp/ray/s*/logs/monitor*"]))
        time.sleep(1)
    assert [name for _, name in found["where"]] == ["head", "one", "two"]
    assert found["resources"]["rollout"] == 32


def adapted(lab: Lab) -> dict[str, Any]:
    """The file that ships, for these hosts: their addresses and user, no containers, and no `ray stop` before."""
    file: Any = yaml.safe_load(Path(ROOT / "cluster/onpremise.yaml").read_text())
    del file["docker"]
    file["provider"] |= {"head_ip": lab.plan.host("head").address}
    file["provider"]["worker_ips"] = [lab.plan.host(name).address for name in ("one", "two")]
    file["max_workers"] = 2
    file["auth"]["ssh_user"] = "root"
    file["file_mounts"] = {"~/.ray/auth_token": file["file_mounts"].pop("/root/.ray/auth_token")}
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        file[key] = [f"{line} --object-store-memory=100000000" for line in file[key] if line != "ray stop"]
    return file
