"""Labs of the tests, and questions to their hosts."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from tests.lab import Lab

NUMBERS = count()
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "only-in-this-lab-" + "x" * 32}
RAY = {"RAY_DISABLE_DOCKER_CPU_WARNING": "1", "OMP_NUM_THREADS": "1"}
SMALL = ("--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats")
WHERE = """
import json, ray, socket
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
ray.init(address="auto", log_to_driver=False)
@ray.remote(num_cpus=0)
def where():
    return ray.util.get_node_ip_address(), socket.gethostname()
nodes = [node for node in ray.nodes() if node["Alive"]]
asked = [where.options(scheduling_strategy=On(node["NodeID"], soft=False)).remote() for node in nodes]
print(json.dumps({"where": sorted(ray.get(asked, timeout=60)), "resources": ray.cluster_resources()}))
"""
"""From every node its address and name."""


def a_name() -> str:
    return f"test-{os.getpid()}-{next(NUMBERS)}"


def a_network() -> str:
    """Of this process of the suite: this machine is in the networks of all of them, and not in that of other labs."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return f"10.77.{number + 1}.0/24"


@contextmanager
def a_lab(*hosts: str, disk_mb: int = 64) -> Iterator[Lab]:
    with Lab.up(a_name(), hosts, disk_mb=disk_mb) as lab:
        yield lab


def ping(lab: Lab, source: str, target: str, *, count: int = 5, every_s: float = 0.01) -> tuple[float, list[float]]:
    """Share of lost round trips, and the times of the others in ms, the shortest first."""
    words = ["ping", "-c", str(count), "-i", str(every_s), "-W", "1", target]
    said = lab.run(source, words, check=False).stdout
    lost = re.search(r"([\d.]+)% packet loss", said)
    assert lost, said
    return float(lost[1]) / 100, sorted(map(float, re.findall(r"time=([\d.]+)", said)))


def hears(lab: Lab, source: str, target: str) -> bool:
    """True if a packet of UDP from one host arrives at another: one way only."""
    listen = "import socket; s = socket.socket(2, 2); s.bind(('', 7001)); s.settimeout(1.5); print('up', flush=True); "
    receiver = lab.start(target, ["python", "-c", f"{listen}print(s.recv(9))"], stdout=-1, stderr=-3)
    with receiver:
        receiver.stdout.readline()
        to = repr((lab.plan.host(target).address, 7001))
        lab.run(source, ["python", "-c", f"import socket; socket.socket(2, 2).sendto(b'x', {to})"], check=False)
        return "b'x'" in receiver.stdout.read()


def python(text: str, *words: str) -> Sequence[str]:
    return ["python", "-c", text, *words]
