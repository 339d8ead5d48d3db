"""Ray's launcher with the file that we ship, over ssh, with its token: `ray up`, every worker, `ray down`."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.lab.lab_support import RAY, WHERE, a_lab, python
from tests.lab import Lab
from tests.needs import needs

pytestmark = [pytest.mark.lab, needs("a lab"), pytest.mark.timeout(900)]
SHIPPED = Path(__file__).parents[3] / "cluster/onpremise.yaml"
SMALL = "--object-store-memory=100000000 --disable-usage-stats"
ENV = RAY | {"RAY_AUTH_MODE": "token"}
KINDS = {"one": "rollout", "two": "learner"}


@pytest.fixture
def lab() -> Iterator[Lab]:
    with a_lab("laptop", "head", "one", "two", disk_mb=1024) as lab:
        yield lab


def shipped(lab: Lab) -> str:
    """The shipped file with this lab's addresses, less memory, no containers, and no Ray to stop before."""
    raw: dict[str, Any] = yaml.safe_load(SHIPPED.read_text())
    del raw["docker"]
    head, *workers = (lab.plan.host(name).address for name in ("head", *KINDS))
    raw["provider"] |= {"head_ip": head, "worker_ips": workers}
    raw["max_workers"] = len(workers)
    raw["auth"]["ssh_user"] = "root"
    raw["file_mounts"] = {"/tmp/home/.ray/auth_token": "~/.ray/auth_token"}
    for kind, more in (("head", ""), ("worker", "--num-cpus=1")):
        commands = [each for each in raw[f"{kind}_start_ray_commands"] if each != "ray stop"]
        raw[f"{kind}_start_ray_commands"] = [
            each.replace("ray start", f"ray start {SMALL} {more}") for each in commands
        ]
    return yaml.safe_dump(raw)


def alive(lab: Lab) -> Any:
    env = ENV | {"RAY_ADDRESS": f"{lab.plan.host('head').address}:6379"}
    done = lab.run("head", python(WHERE), env=env, check=False, timeout_s=120)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def test_the_launcher_starts_the_head_and_every_worker_of_the_file(lab: Lab) -> None:
    for host, kind in KINDS.items():
        lab.run(host, ["sh", "-c", f"echo '{{\"{kind}\": 1}}' > /etc/loomrl-node.json"])
    lab.run("laptop", ["sh", "-c", f"cat > /tmp/cluster.yaml <<'END'\n{shipped(lab)}\nEND"])
    lab.run("laptop", ["ray", "get-auth-token", "--generate"], env=ENV, timeout_s=60)
    lab.run("laptop", ["ray", "up", "-y", "--no-config-cache", "/tmp/cluster.yaml"], env=ENV, timeout_s=400)
    hosts = [[lab.plan.host(name).address, name] for name in ("head", *KINDS)]
    until = time.monotonic() + 300
    while (found := alive(lab)) is None or found["where"] != hosts:
        assert time.monotonic() < until, found
        time.sleep(1)
    assert {kind: found["resources"][kind] for kind in KINDS.values()} == {"rollout": 1.0, "learner": 1.0}
