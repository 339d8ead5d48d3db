"""Two learners, each on a host of its own: gradients cross the wire, and both have learnt the same."""

import json
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
from tests.cluster.lab.hosts import Hosts, hosts
from tests.needs import needs

pytestmark = [pytest.mark.lab, needs("a lab"), needs("PostgreSQL"), pytest.mark.timeout(900)]
LEARNERS = {"one", "two"}
PLACES: dict[str, Any] = {
    "placement.learner.resources": {"learner": 1},
    "placement.runner.resources": {"rollout": 1},
    "rollout.runners": 1,
}
CONTROL = {
    "ppo": ["control/cartpole", "rollout.steps=128", "rollout.environments=4"],
    "sac": ["control/pendulum", "rollout.environments=2", "algorithm.warmup=200"],
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts(tmp_path_factory.mktemp("site"), "head", "one", "two", "three") as found:
        found.start_ray("head", head=True, cpus=2)
        for host in LEARNERS:
            found.start_ray(host, learner=1)
        found.start_ray("three", cpus=2, rollout=2)
        yield found


def learnt(site: Hosts, name: str, wanted: AnyExperiment, updates: int) -> list[list[str]]:
    """Host and hash of every learner after these updates, with the driver on the head."""
    file = site.lab.shared / f"{name}.yaml"
    file.write_text(dump(site.settled(wanted)))
    program = ["python", "-m", "tests.cluster.lab.learning", f"/tmp/shared/{file.name}", str(updates)]
    done = site.start("head", name, program, {"RAY_ADDRESS": "head:6379"})
    assert site.ended(done, name) == 0, site.log(name)[-5000:]
    found: list[list[str]] = json.loads(site.log(name).splitlines()[-1])
    return found


def language(site: Hosts, name: str, count: int, updates: int, **changes: Any) -> tuple[list[list[str]], Any]:
    """The same with PPO over tokens, and the weights that the driver has."""
    wanted = experiment(Path("/tmp/shared"), "ppo", **PLACES | {"algorithm.learners.count": count} | changes)
    found = learnt(site, name, wanted, updates)
    with np.load(site.lab.shared / f"{name}.npz") as weights:
        return found, dict(weights)


def assert_same_on_two_hosts(found: list[list[str]]) -> None:
    assert {host for host, _ in found} == LEARNERS
    assert len({digest for _, digest in found}) == 1


@pytest.mark.parametrize("kind", CONTROL)
def test_control_has_the_same_parameters_on_both_hosts_to_the_last_bit(site: Hosts, kind: str) -> None:
    name, *settings = CONTROL[kind]
    wanted = resolve([name, *settings, "learners.count=2"]).override(PLACES)
    few, more = (learnt(site, f"{kind}-{updates}", wanted, updates) for updates in (1, 3))
    assert_same_on_two_hosts(few)
    assert_same_on_two_hosts(more)
    assert few[0][1] != more[0][1]


def test_language_has_them_too_and_learns_what_one_learner_does(site: Hosts) -> None:
    found, weights = language(site, "ddp", 2, 2)
    assert_same_on_two_hosts(found)
    _, first = language(site, "ddp-first", 2, 1)
    _, alone = language(site, "alone", 1, 1)
    assert all(np.allclose(alone[name], first[name], atol=1e-5) for name in alone)
    assert any(not np.array_equal(weights[name], first[name]) for name in weights)


def test_a_model_that_is_sharded_over_two_hosts_learns_what_a_replicated_one_does(site: Hosts) -> None:
    found, sharded = language(site, "fsdp", 2, 1, **{"algorithm.learners.sharding": "fsdp"})
    assert {host for host, _ in found} == LEARNERS
    assert len({digest for _, digest in found}) == 2
    _, replicated = language(site, "replicated", 2, 1)
    assert all(np.allclose(replicated[name], sharded[name], atol=1e-5) for name in replicated)


def test_a_control_run_is_trained_from_the_command_line(site: Hosts) -> None:
    wanted = resolve(["control/cartpole", "learners.count=2", "train.steps=6000", "evaluation.every=3000"])
    process = site.train("head", site.settled(wanted.override(PLACES)), "pole")
    assert site.ended(process, "pole") == 0, site.log("pole")[-5000:]
    found = site.run("pole")
    assert found is not None
    assert found.status is RunStatus.FINISHED
