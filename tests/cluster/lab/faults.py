"""A language run on hosts of a lab to which something happens: how it goes on, and how long that takes.

The driver is on `laptop`, the learner on `one` (or, when that is gone, on `two`), runners on `three` and `four`. Of
every fault: how long it took until the next two versions, and that nothing was lost, or counted twice.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from loomrl.config import Experiment
from loomrl.errors import ClusterError
from loomrl.store.runs import BY_A_PERSON, RunStatus
from tests.cluster.lab.hosts import ENV, Hosts, hosts
from tests.cluster.lab.lab_support import python
from tests.cluster.slow_run import assert_each_attempt_counts_once, small

UPDATES, STRUCK_AT = 6, 2
ENDLESS = 500
"""Updates of a run that is stopped."""
KINDS: dict[str, dict[str, float]] = {
    "one": {"learner": 1},
    "two": {"learner": 1},
    "three": {"rollout": 2},
    "four": {"rollout": 2},
}
"""Of hosts. There is room for two runs at a time."""
HOLDERS = """
import sys, ray
from ray._private.state import available_resources_per_node
ray.init(log_to_driver=False)
free, kind = available_resources_per_node(), sys.argv[1]
alive = [node for node in ray.nodes() if node["Alive"] and kind in node["Resources"]]
print(*(node["NodeManagerHostname"] for node in alive if not free[node["NodeID"]].get(kind)))
"""


@contextmanager
def cluster(folder: Path) -> Iterator[Hosts]:
    """Every host, with Ray on it."""
    with hosts(folder, "head", "laptop", *KINDS) as found:
        found.start_ray("head", head=True, cpus=0)
        start_nodes(found)
        yield found


def start_nodes(site: Hosts) -> None:
    """Ray on every host, of its kind."""
    site.start_ray("laptop", cpus=0)
    for host, kind in KINDS.items():
        site.start_ray(host, cpus=round(sum(kind.values())), **kind)


def experiment(site: Hosts, updates: int = UPDATES) -> Experiment:
    learner: dict[str, Any] = {"algorithm.learners.count": 1, "placement.learner.resources": {"learner": 1}}
    made: Experiment = site.settled(small(Path("/tmp/shared"), updates, **learner))
    return made


def holders(site: Hosts, kind: str) -> list[str]:
    """The hosts on which no room of this kind is left."""
    env = ENV | {"RAY_ADDRESS": "head:6379"}
    return site.lab.run("head", python(HOLDERS, kind), env=env, timeout_s=120).stdout.split()


def told(name: str, **figures: float) -> None:
    """A row of the table of faults, to the file that `LOOMRL_FAULTS` names."""
    if file := os.environ.get("LOOMRL_FAULTS"):
        with Path(file).open("a") as rows:
            rows.write(json.dumps({"fault": name} | {key: round(value, 1) for key, value in figures.items()}) + "\n")


def assert_finished(site: Hosts, wanted: Experiment, run: str) -> None:
    """It did what was wanted of it, or was stopped."""
    found = site.run(run)
    assert found.status is RunStatus.FINISHED
    done = site.newest(run)
    assert done == wanted.train.updates or found.result["stopped"].startswith(BY_A_PERSON)
    assert_each_attempt_counts_once(wanted.override({"train.updates": done}), run, store_url=site.store_url)


# -- what happens to a host, or to the database ------------------------------------------------------------------------


def nothing(site: Hosts, host: str = "") -> None:
    """Nothing happens, or is left to mend."""


def off(site: Hosts, host: str) -> None:
    site.lab.power_off(host)


def on_again(site: Hosts, host: str) -> None:
    site.lab.power_on(host)
    site.join(host)


def rejoined(site: Hosts, host: str) -> None:
    """A node that the head may have given up, and that ends by itself then, is started again."""
    site.end_ray(host)
    site.join(host)


def linked(site: Hosts, host: str, **link: Any) -> None:
    site.lab.link(host, **link)


def pulled(site: Hosts, host: str, seconds: float) -> None:
    """Its cable is pulled for a while."""
    site.lab.link(host, up=False)
    time.sleep(seconds)
    site.lab.link(host, up=True)


def unheard(site: Hosts, host: str) -> None:
    """The head hears it no more, though it hears the head."""
    site.lab.cut(host, "head")
    time.sleep(20)
    site.lab.heal(host, "head")


def database_restarted(site: Hosts, host: str = "") -> None:
    site.stop_database()
    time.sleep(5)
    site.start_database()


def disk_full(site: Hosts, host: str = "") -> None:
    site.lab.fill("db")


def disk_freed(site: Hosts, host: str = "") -> None:
    site.lab.free("db")
    with suppress(ClusterError):  # it may have ended by itself
        site.stop_database()
    site.start_database()


Fault = Callable[..., None]
LINKS: list[tuple[str, Fault, Fault]] = [
    ("quiet", nothing, nothing),
    ("cut-10s", partial(pulled, seconds=10), rejoined),
    ("cut-60s", partial(pulled, seconds=60), rejoined),
    ("one-way-cut", unheard, rejoined),
    ("slow-and-lossy", partial(linked, rtt_ms=200, loss=0.02), partial(linked, rtt_ms=0, loss=0)),
    ("20mbit", partial(linked, mbit=20), partial(linked, mbit=None)),
    ("host-off", off, on_again),
    ("postgresql-restarted", database_restarted, nothing),
]
"""Name, what happens, and how it is mended; none of them may end what runs."""


def goes_on(site: Hosts, run: str, strike: Callable[[], None], mend: Callable[[], None]) -> None:
    """The run goes on by itself. `mend` is called when it has ended, or is part of `strike`."""
    wanted = experiment(site)
    process = site.train("laptop", wanted, run)
    site.until_version(run, STRUCK_AT, process)
    begun = time.monotonic()
    before = site.newest(run)
    with ThreadPoolExecutor() as pool:
        struck = pool.submit(strike)
        site.until_version(run, before + 2, process)  # the next one may have been under way
        took = time.monotonic() - begun
        struck.result(timeout=300)
    try:
        assert site.ended(process, run) == 0, site.log(run)[-5000:]
        assert_finished(site, wanted, run)
        told(run, two_versions_s=took)
    finally:
        mend()


def resumes(site: Hosts, run: str, strike: Callable[[], None], meanwhile: Callable[[], None]) -> None:
    """The run ends, by itself and with an error; the same command resumes it, after what is done meanwhile."""
    wanted = experiment(site, ENDLESS)
    process = site.train("laptop", wanted, run)
    site.until_version(run, STRUCK_AT, process)
    begun = time.monotonic()
    strike()
    assert site.ended(process, run) != 0
    ended = time.monotonic() - begun
    meanwhile()
    again = site.train("laptop", wanted, run)
    site.until_version(run, site.newest(run) + 1, again)
    took = time.monotonic() - begun
    stopped(site, again, wanted, run)
    told(run, ended_after_s=ended, next_version_s=took)


def stopped(site: Hosts, process: "subprocess.Popen[str]", wanted: Experiment, run: str) -> None:
    """The run is asked to stop, and does, whole."""
    site.stop(run)
    assert site.ended(process, run) == 0, site.log(run)[-5000:]
    assert_finished(site, wanted, run)
