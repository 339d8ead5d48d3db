"""`language/on_cluster` on a cluster of its kinds of node, CPUs only: it runs to its end, a node killed on the way."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from loomrl.config import Experiment
from loomrl.experiments.shipped import resolve_language
from loomrl.load import dump
from loomrl.store import open_store
from loomrl.store.runs import POLICIES, RUNS
from tests.algorithms.language_support import embedded
from tests.cluster.cluster_support import AUTH, BEARER, ROOT, environment, process, ray_of_its_own, wait_until
from tests.cluster.slow_run import GROUPS, SIZE, assert_each_attempt_counts_once
from tests.experiments.runs import places
from tests.needs import need

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(1800)]
UPDATES = 6
SMALL = (
    *("algorithm.learners.gpus=0", "engine.gpus=0", "rollout.runners=2", "rollout.concurrency=4"),
    *(f"train.updates={UPDATES}", f"rollout.groups_per_update={GROUPS}", f"rollout.group_size={SIZE}"),
    *("train.checkpoint_every=1", "algorithm.warm_start.steps=4", "evaluation.episodes=4", "placement.wait_s=120"),
    *("algorithm.model.build.layers=1", "rollout.turn_timeout_s=300", "engine.start_timeout_s=900"),
)
"""GPUs replaced by CPUs, and little of everything; the placement, the remote learner and vLLM are those of the file."""
SOON = {"RAY_health_check_failure_threshold": "3", "RAY_health_check_period_ms": "500"}
"""Settings by which a head notices soon that a node is gone."""


@dataclass
class Site:
    url: str
    address: str
    folder: Path
    runners: list[subprocess.Popen[bytes]]
    """The nodes of the runners."""

    def experiment(self, engine: str) -> Experiment:
        """With vLLM's engine or one in every runner, and its results in this folder."""
        whole = resolve_language(["language/math_tiny", "language/on_cluster", *SMALL]).override(places(self.folder))
        return embedded(whole) if engine == "torch" else whole


@pytest.fixture
def site(tmp_path: Path, unused_tcp_port_factory: Callable[[], int]) -> Iterator[Site]:
    """A head without work, two nodes for runners, one for the learner, one for the engine; all of them this machine."""
    env = environment(Path(sys.executable), PYTHONPATH=str(ROOT), VLLM_CPU_KVCACHE_SPACE="1", **AUTH, **SOON)
    with ray_of_its_own(tmp_path, unused_tcp_port_factory, cpus=0, env=env) as (cluster, _):
        nodes = []
        for name, kind in (("r0", "rollout"), ("r1", "rollout"), ("l", "learner"), ("e", "engine")):
            nodes.append(cluster.join(name, **{kind: 1}))
            wait_until(lambda: alive(cluster.url) == 1 + len(nodes), f"{name} does not join", cluster.log(name))
        yield Site(cluster.url, cluster.address, tmp_path, nodes[:2])


def alive(url: str) -> int:
    """Nodes that the head believes in; none while it is too young, or too busy, to say."""
    try:
        told = httpx.get(f"{url}/nodes?view=summary", headers=BEARER, timeout=30).json()
    except (httpx.HTTPError, ValueError):
        return 0
    return sum(node["raylet"].get("state") == "ALIVE" for node in told["data"]["summary"])


@pytest.mark.parametrize(("way", "engine"), [("train", "torch"), ("train", "vllm"), ("submit", "torch")])
def test_it_runs_to_its_end_though_a_node_of_a_runner_is_killed(site: Site, way: str, engine: str) -> None:
    if engine == "vllm":
        need("vLLM")
    experiment = site.experiment(engine)
    (site.folder / "experiment.yaml").write_text(dump(experiment))
    where = {"RAY_ADDRESS": site.address if way == "train" else site.url}
    env = environment(Path(sys.executable), PYTHONPATH=str(ROOT), **AUTH, **where)
    log, store = site.folder / "log", f"sqlite:///{site.folder}/loom.db"
    command = [sys.executable, "-m", "loomrl", way, "experiment.yaml", "--run", "r", "--json"]
    with process(command, log=log, env=env, cwd=site.folder) as running:
        wait_until(lambda: newest(store) >= 2 or running.poll() is not None, "no second update", log, seconds=1200)
        assert running.poll() is None, log.read_text()[-5000:]
        os.killpg(site.runners[0].pid, signal.SIGKILL)
        assert running.wait(timeout=600) == 0, log.read_text()[-5000:]
    wait_until(lambda: alive(site.url) == 4, "the killed node is still there", site.folder / "head.log")
    told = json.loads(log.read_text().splitlines()[-1])
    assert (told["result"] if way == "submit" else told)["updates"] == UPDATES
    with open_store(store) as db:
        assert RUNS.require(db, "r").status == "finished"
    assert_each_attempt_counts_once(experiment, "r")


def newest(store: str) -> int:
    with open_store(store) as db:
        return max((version.number for version in POLICIES.latest(db, run="r")), default=-1)
