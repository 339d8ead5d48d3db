"""Engines on other nodes than the learner get new weights by Nexus, whatever becomes of outposts, engines and nodes."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from sample_models import TOLERANCE, answers, drift, model, opening, random_prompt, request
from transformers import PreTrainedModel

from loomrl.config.engine import VllmEngineConfig
from loomrl.errors import PolicyError
from loomrl.inference.vllm.engine import StagedWeights
from loomrl.inference.vllm.fleet import VllmFleet, open_fleet
from loomrl.inference.vllm.latest import open_latest_weights
from loomrl.inference.weights.sealed import seal, stage, unstage
from loomrl.own_ray import authenticated
from tests.needs import need

pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]
ASKED = [request(random_prompt(0, 40), seed=0, max_tokens=8)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """We are on a node that has no room for engines."""
    with authenticated(tmp_path_factory.mktemp("ray")):
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        cluster.wait_for_nodes()
        yield cluster
        ray.shutdown()
        cluster.shutdown()


def test_latest_weights_bring_their_file_to_whoever_asks(cluster: Cluster, tmp_path: Path) -> None:
    here, (far,) = ray.get_runtime_context().get_node_id(), far_nodes()
    sealed = seal(model(1).state_dict(), 3)
    staged = StagedWeights(3, stage(sealed, tmp_path / "3"))
    latest = open_latest_weights("loomrl-test", "nexus", asked_by=2)
    ray.get(latest.give.remote(staged))
    found = ray.get([latest.file.remote(staged, node) for node in (here, far, far)])
    assert len({staged.file, *found}) == 3
    assert all(unstage(file).checksums == sealed.checksums for file in found)
    assert isinstance(ray.get(latest.file.remote(StagedWeights(2, staged.file), far)), PolicyError)
    ray.get(latest.close.remote())
    assert not any(file.exists() for file in found)
    ray.kill(latest)


@pytest.fixture(scope="module")
def fleet(
    cluster: Cluster, one_thread_in_module: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VllmFleet]:
    need("vLLM")
    folder = tmp_path_factory.mktemp("model")
    model(0).save_pretrained(folder)
    nowhere = opening(folder / "only engines know where")
    with open_fleet(VllmEngineConfig(), nowhere, model=partial(Path, folder)) as opened:
        yield opened
    assert not [*Path("/dev/shm").glob(f"{opened._name}-of-*")]


def test_versions_reach_far_engines_as_deltas_or_whole_if_an_outpost_died(fleet: VllmFleet) -> None:
    learnt = model(1)
    whole = publish(fleet, learnt, 1)
    learnt.model.layers[0].self_attn.q_proj.weight.data += 1e-3
    assert publish(fleet, learnt, 2) < whole / 4
    (outpost,) = on_latest(fleet, lambda latest: [*latest._outposts.values()])
    ray.kill(outpost, no_restart=False)
    learnt.model.layers[0].self_attn.q_proj.weight.data += 1e-3
    assert publish(fleet, learnt, 3) > whole * 0.9
    broken = seal(model(2).state_dict(), 4)
    broken.weights["model.norm.weight"][0] += 1
    with pytest.raises(PolicyError, match=r"not what the learner sealed \(model\.norm\.weight\)"):
        fleet.load(broken)
    (got,) = asyncio.run(answers(fleet.client(), ASKED))
    assert drift(learnt, ASKED, [got]) <= TOLERANCE
    publish(fleet, learnt, 5)


def test_an_engine_that_comes_back_on_another_node_has_what_was_admitted(cluster: Cluster, fleet: VllmFleet) -> None:
    publish(fleet, model(6), 6)
    (lost,) = [node for node in cluster.list_all_nodes() if not node.is_head()]
    (gone,) = far_nodes()
    cluster.add_node(num_cpus=1)
    cluster.remove_node(lost, allow_graceful=False)
    cluster.wait_for_nodes()
    (got,) = asyncio.run(answers(fleet.client(), ASKED))
    assert drift(model(6), ASKED, [got]) <= TOLERANCE
    assert on_latest(fleet, lambda latest: [*latest._outposts]) == [gone, *far_nodes()]
    publish(fleet, model(7), 7)


def publish(fleet: VllmFleet, learnt: PreTrainedModel, version: int) -> int:
    """The bytes that were sent for it."""
    before = on_latest(fleet, lambda latest: latest._relay.sent_bytes)
    fleet.load(seal(learnt.state_dict(), version))
    fleet.admit(version)
    assert_has(fleet, learnt, version)
    return int(on_latest(fleet, lambda latest: latest._relay.sent_bytes) - before)


def assert_has(fleet: VllmFleet, learnt: PreTrainedModel, version: int) -> None:
    (got,) = fleet.probe(ASKED)
    assert drift(learnt, ASKED, got) <= TOLERANCE
    assert {*got[0].versions_T.tolist()} == {version}


def on_latest(fleet: VllmFleet, call: Any) -> Any:
    return ray.get(fleet._latest.__ray_call__.remote(call))


def far_nodes() -> list[str]:
    here = ray.get_runtime_context().get_node_id()
    return [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != here]
