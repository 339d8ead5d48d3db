"""Placement: honoured by Ray, refused at once where it never can be, waited for where it can."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.rllib.callbacks.callbacks import RLlibCallback

from loomrl.algorithms.control.ppo import PPOConfig
from loomrl.algorithms.language.config import LanguageConfig
from loomrl.algorithms.resources import ensure_room, needed_cpus, needs_ray, parts_of
from loomrl.errors import ClusterError, ConfigError
from loomrl.experiments.shipped import resolve
from loomrl.own_ray import authenticated
from tests.algorithms.language_support import experiment

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]
PLACED = {"rollout.runners": 2, "placement.runner.resources": {"rollout": 1}, "placement.runner.cpus": 0.5}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A head, and a node of two runners that counts two GPUs: who holds which is real, what they can do is not."""
    with authenticated(tmp_path_factory.mktemp("ray")):
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        made.add_node(num_cpus=1, num_gpus=2, resources={"rollout": 2})
        made.wait_for_nodes()
        ray.init(made.address, log_to_driver=False, logging_level="ERROR")
        yield made
        ray.shutdown()
        made.shutdown()


def control(**changes: Any) -> PPOConfig:
    wanted = resolve(["control/cartpole"]).override({**PLACED, **changes})
    return PPOConfig.of(wanted)  # type: ignore[arg-type]


def nodes_of(group: Any) -> set[str]:
    return set(group.foreach_env_runner(lambda runner: ray.get_runtime_context().get_node_id(), local_env_runner=False))


@pytest.mark.parametrize(
    ("setting", "is_needed"),
    [
        ({}, False),
        ({"num_env_runners": 1}, True),
        ({"num_learners": 1}, True),
        ({"num_gpus_per_learner": 1}, True),
        ({"evaluation_interval": 1}, False),
        ({"evaluation_interval": 1, "evaluation_num_env_runners": 1}, True),
        ({"callbacks_class": RLlibCallback, "batch_mode": "complete_episodes"}, True),
    ],
)
def test_only_other_processes_rllibs_own_way_and_a_named_cluster_need_ray(
    setting: dict[str, Any], is_needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    config = PPOConfig().environment("CartPole-v1")
    for name, value in setting.items():
        setattr(config, name, value)
    config.validate()
    assert needs_ray(config) == is_needed
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert needs_ray(config)


@pytest.mark.slow
def test_control_runners_go_where_the_experiment_says(cluster: Cluster) -> None:
    algo = control().build_algo()
    rollout = {node["NodeID"] for node in ray.nodes() if node["Resources"].get("rollout")}
    assert nodes_of(algo.env_runner_group) == rollout


def test_language_runners_and_learner_are_told_their_places(tmp_path: Path) -> None:
    placed = {
        "rollout.runners": 2,
        "algorithm.learners.count": 1,
        "placement": {"runner": {"resources": {"rollout": 1}, "gpus": 0.5}, "learner": {"cpus": 3}},
    }
    config = LanguageConfig.of(experiment(tmp_path, **placed))
    config.validate()
    assert parts_of(config) == [
        ("rollout.runners=2", 2, {"CPU": 1, "GPU": 0.5, "rollout": 1}),
        ("algorithm.learners.count=1", 1, {"CPU": 3, "GPU": 0}),
    ]
    assert needed_cpus(config) == 5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"placement.runner.resources": {"rolout": 1}}, "2 rolout, of which Ray has 0"),
        ({"placement.runner.gpus": 2}, "4 GPU, of which Ray has 2"),
        ({"placement.runner.cpus": 2, "rollout.runners": 1}, "no node has all of that at once"),
        (
            {"placement.runner.cpus": 0.7},
            "with 0.7 CPU, 1 rollout each: nodes have room for 1 of these",
        ),
    ],
)
def test_what_no_node_has_is_refused_at_once_by_name(cluster: Cluster, changes: dict[str, Any], said: str) -> None:
    begun = time.monotonic()
    with pytest.raises(ConfigError, match=said):
        control(**changes).build_algo()
    assert time.monotonic() - begun < 5


def test_gpus_are_there_for_two_learners_and_not_for_three(cluster: Cluster) -> None:
    one, two, three = (
        PPOConfig.of(resolve(["control/cartpole"]).override({"learners": {"count": count, "gpus": 1}}))  # type: ignore[arg-type]
        for count in (1, 2, 3)
    )
    ensure_room(one)
    ensure_room(two)
    with pytest.raises(ConfigError, match=r"learners.count=3 with 1 each: that is 3 GPU, of which Ray has 2"):
        ensure_room(three)


def test_language_refuses_a_gpu_that_is_not_there(cluster: Cluster, tmp_path: Path) -> None:
    placed = {"rollout.runners": 1, "placement.runner.gpus": 3}
    with pytest.raises(ConfigError, match=r"rollout.runners=1 with 3 each: that is 3 GPU, of which Ray has 2"):
        LanguageConfig.of(experiment(tmp_path, **placed), run="r").build_algo()


def test_room_that_others_use_is_waited_for_and_no_longer(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    @ray.remote(resources={"rollout": 1}, num_cpus=0)
    class Other:
        def pid(self) -> int:
            return 1

    other = Other.remote()
    ray.get(other.pid.remote())
    config = control(**{"placement.wait_s": 1})
    with pytest.raises(ClusterError, match=r"placement.wait_s=1 s there is still no room.*Ask for less"):
        ensure_room(config)
    assert "waiting up to 1 s until there is room for rollout.runners=2 with 0.5 CPU, 1 rollout each" in caplog.text
    threading.Timer(1.0, lambda: ray.kill(other)).start()
    ensure_room(control(**{"placement.wait_s": 30}))


@pytest.mark.slow
def test_an_autoscaler_may_still_bring_what_is_missing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that an autoscaler started carry their kind; then what is missing is asked for, and waited for."""
    monkeypatch.setenv("RAY_NODE_TYPE_NAME", "head")  # as the autoscaler sets it
    scaled = cluster.add_node(num_cpus=1)
    soon, later = (control(**{"placement.runner.resources": {"late": 1}, "placement.wait_s": s}) for s in (1, 60))
    late = []
    try:
        with pytest.raises(ClusterError, match=r"rollout.runners=2 with 0.5 CPU, 1 late each.*still no room"):
            ensure_room(soon)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(ensure_room, later)
            assert not wait([waiting], timeout=0.5).done
            late.append(cluster.add_node(num_cpus=2, resources={"late": 2}))
            waiting.result()
    finally:
        for node in [scaled, *late]:
            cluster.remove_node(node)
