"""Two learners, each on a host of its own: gradients cross the wire, both learn the same, and a run changes them."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loomrl.config import AnyExperiment
from loomrl.experiments.shipped import resolve
from loomrl.load import dump
from loomrl.store.runs import RunStatus
from tests.algorithms.language_support import experiment
from tests.cluster.lab.faults import assert_finished, told
from tests.cluster.lab.hosts import Hosts, hosts
from tests.cluster.slow_run import small
from tests.needs import needs

pytestmark = [pytest.mark.lab, needs("a lab"), needs("PostgreSQL"), pytest.mark.timeout(900)]
LEARNERS = {"one", "two"}
SHARDED = ["algorithm.learners.count=2", "algorithm.learners.sharding=fsdp"]
ONE = ["algorithm.learners.count=1", "algorithm.learners.sharding=replicate"]
PLACES: dict[str, Any] = {
    "placement.learner.resources": {"learner": 1},
    "placement.runner.resources": {"rollout": 1},
    "rollout.runners": 1,
}
CONTROL = {
    "ppo": ["control/cartpole", "rollout.steps=128", "rollout.environments=4"],
    "sac": ["control/pendulum", "rollout.environments=2", "rollout.steps=50", "algorithm.updates_per_step=0.1"],
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("site"), "head", "one", "two", "three") as found:
        found.start_ray("head", head=True, cpus=2)
        for host in LEARNERS:
            found.start_ray(host, learner=1)
        found.start_ray("three", cpus=2, rollout=2)
        yield found


def learnt(site: Hosts, name: str, wanted: AnyExperiment, updates: int) -> list[list[list[str]]]:
    """Host and hash of every learner after each update, with the driver on the head."""
    file = site.lab.shared / f"{name}.yaml"
    file.write_text(dump(site.settled(wanted)))
    program = ["python", "-m", "tests.cluster.lab.learning", f"/tmp/shared/{file.name}", str(updates)]
    done = site.start("head", name, program, {"RAY_ADDRESS": "head:6379"})
    assert site.ended(done, name) == 0, site.log(name)[-5000:]
    return [json.loads(line) for line in site.log(name).splitlines() if line.startswith("[[")]


def language(
    site: Hosts, name: str, count: int, updates: int, **changes: Any
) -> tuple[list[list[list[str]]], list[dict[str, Any]]]:
    """The same with PPO over tokens, and the weights that the driver has."""
    wanted = experiment(Path("/tmp/shared"), "ppo", **PLACES | {"algorithm.learners.count": count} | changes)
    found = learnt(site, name, wanted, updates)
    files = [site.lab.shared / f"{name}-{update}.npz" for update in range(1, updates + 1)]
    return found, [dict(np.load(file)) for file in files]


def assert_same_on_two_hosts(found: list[list[str]]) -> None:
    assert {host for host, _ in found} == LEARNERS
    assert len({digest for _, digest in found}) == 1


@pytest.mark.parametrize("kind", CONTROL)
def test_control_has_the_same_parameters_on_both_hosts_to_the_last_bit(site: Hosts, kind: str) -> None:
    name, *settings = CONTROL[kind]
    wanted = resolve([name, *settings, "learners.count=2"]).override(PLACES)
    found = learnt(site, kind, wanted, 3)
    for each in found:
        assert_same_on_two_hosts(each)
    assert len({each[0][1] for each in found}) == 3


def test_language_has_them_too_and_one_learner_or_a_sharded_model_learns_what_two_do(site: Hosts) -> None:
    found, (first, second) = language(site, "ddp", 2, 2)
    for each in found:
        assert_same_on_two_hosts(each)
    assert any(not np.array_equal(second[name], first[name]) for name in first)
    _, (alone,) = language(site, "alone", 1, 1)
    (shards,), (sharded,) = language(site, "fsdp", 2, 1, **{"algorithm.learners.sharding": "fsdp"})
    assert {host for host, _ in shards} == LEARNERS
    assert len({digest for _, digest in shards}) == 2
    for name, learnt_by_two in first.items():
        assert np.allclose(alone[name], learnt_by_two, atol=1e-5)
        assert np.allclose(sharded[name], learnt_by_two, atol=1e-5)


def test_a_control_run_is_trained_from_the_command_line(site: Hosts) -> None:
    wanted = resolve(["control/cartpole", "learners.count=2", "train.steps=2000", "evaluation.every=1000"])
    process = site.train("head", site.settled(wanted.override(PLACES)), "pole")
    assert site.ended(process, "pole") == 0, site.log("pole")[-5000:]
    found = site.run("pole")
    assert found.status is RunStatus.FINISHED


def test_learners_are_two_then_one_then_two_with_a_shard_each_and_one_again(site: Hosts) -> None:
    learners: dict[str, Any] = {"algorithm.learners.count": 2, "placement.learner.resources": {"learner": 1}}
    wanted = site.settled(small(Path("/tmp/shared"), 8, **learners))
    process = site.train("head", wanted, "layout")
    for number, layout in ((2, ONE), (4, SHARDED), (6, ONE)):
        site.until_version("layout", number, process)
        process.send_signal(signal.SIGTERM)
        site.ended(process, "layout")
        process = site.resume("head", wanted, "layout", layout)
    assert site.ended(process, "layout") == 0, site.log("layout")[-5000:]
    assert_finished(site, wanted, "layout")
    told("layout", versions=site.newest("layout"))
