"""Nodes that die: training goes on, or is gone on with, and nothing is lost or counted twice."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

from loomrl.algorithms.language.config import LanguageConfig
from loomrl.config import Experiment
from loomrl.load import dump
from loomrl.own_ray import authenticated
from loomrl.store import open_store
from loomrl.store.runs import POLICIES, RUNS
from tests.algorithms.language_support import QUIET
from tests.cluster.cluster_support import AUTH, ROOT, environment, ray_of_its_own, wait_until
from tests.cluster.slow_run import assert_each_attempt_counts_once, small

pytestmark = [pytest.mark.system, QUIET]
UPDATES = 3


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A head with room for nothing, and two nodes for rollouts."""
    monkeypatch.setenv("RAY_health_check_failure_threshold", "3")
    monkeypatch.setenv("RAY_health_check_period_ms", "500")
    with authenticated(tmp_path):
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        for _ in range(2):
            made.add_node(num_cpus=1, resources={"rollout": 1})
        made.wait_for_nodes()
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.mark.slow
def test_a_node_that_dies_in_the_middle_of_an_update_costs_nothing(cluster: Cluster, tmp_path: Path) -> None:
    wanted = small(tmp_path, UPDATES)
    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
    algo = LanguageConfig.of(wanted, run="r").build_algo()
    algo.train()
    victim = cluster.list_all_nodes()[-1]
    play, struck = algo._runners._deal, []

    def strike(plans: Any) -> Any:
        """End a node while both runners play."""
        if not struck:
            struck.append(victim)
            threading.Timer(0.5, lambda: cluster.remove_node(victim, allow_graceful=False)).start()
        return play(plans)

    algo._runners._deal = strike
    while algo.stopped is None:
        algo.train()
    alive = [node for node in ray.nodes() if node["Alive"]]
    algo.stop()
    assert struck
    assert len(alive) == 2
    assert_each_attempt_counts_once(wanted, "r")


@contextmanager
def head(folder: Path, ports: Callable[[], int]) -> Iterator[str]:
    """A cluster of one process group, which is killed whole; its address."""
    env = environment(Path(sys.executable), **AUTH, PYTHONPATH=str(ROOT))  # its environments are in tests
    with ray_of_its_own(folder, ports, cpus=2, env=env, dashboard=False, rollout=2) as (cluster, _):
        yield cluster.address


def trainer(address: str, folder: Path, *words: str) -> subprocess.Popen[str]:
    more = AUTH | {"RAY_ADDRESS": address, "RAY_gcs_rpc_server_reconnect_timeout_s": "2"}
    env = environment(Path(sys.executable), PYTHONPATH=str(ROOT), **more)
    log = (folder / "train.log").open("a")
    return subprocess.Popen([sys.executable, "-m", "loomrl", *words], env=env, cwd=folder, stdout=log, stderr=log)


def newest(wanted: Experiment) -> int:
    with open_store(wanted.store_url) as db:
        return max((version.number for version in POLICIES.latest(db, run="r")), default=-1)


@pytest.mark.slow
def test_a_run_goes_on_in_a_new_cluster_after_the_head_died(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    wanted = small(tmp_path, UPDATES, **{"rollout.runners": 1})
    (tmp_path / "experiment.yaml").write_text(dump(wanted))
    log = tmp_path / "train.log"
    with head(tmp_path, unused_tcp_port_factory) as address:
        first = trainer(address, tmp_path, "train", str(tmp_path / "experiment.yaml"), "--run", "r", "--json")
        wait_until(lambda: newest(wanted) >= 1, "no first version", log, seconds=90)
    assert first.wait(timeout=60) != 0
    assert newest(wanted) < UPDATES
    with head(tmp_path, unused_tcp_port_factory) as address:
        words = ("train", f"store_url={wanted.store_url}", "--resume", "--run", "r", "--json")
        assert trainer(address, tmp_path, *words).wait(timeout=120) == 0, log.read_text()[-3000:]
    assert newest(wanted) == UPDATES
    with open_store(wanted.store_url) as db:
        assert RUNS.require(db, "r").status == "finished"
    assert_each_attempt_counts_once(wanted, "r")


@pytest.mark.slow
def test_a_cluster_of_another_python_is_refused_with_both_versions(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    """A real cluster, whose record of its own versions says otherwise."""
    lie = (
        "import ray, json, sys; from ray.experimental import internal_kv as kv;"
        "ray.init(sys.argv[1], log_to_driver=False); key, space = b'CLUSTER_METADATA', b'cluster';"
        "was = json.loads(kv._internal_kv_get(key, namespace=space)) | {'python_version': '3.9.1'};"
        "kv._internal_kv_put(key, json.dumps(was), overwrite=True, namespace=space)"
    )
    with head(tmp_path, unused_tcp_port_factory) as address:
        env = environment(Path(sys.executable), **AUTH)
        done = subprocess.run(
            [sys.executable, "-c", lie, address], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        trainer(address, tmp_path, "train", "control/cartpole", "--run", "x").wait(timeout=60)
    said = (tmp_path / "train.log").read_text()
    assert "ClusterError" in said
    assert "3.9.1" in said
    assert "Install LoomRL with the cluster's Python" in said
