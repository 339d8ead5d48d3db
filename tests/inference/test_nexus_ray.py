"""A version travels between the nodes of a local cluster, into an engine there."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
from ray import cloudpickle
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from sample_models import logprobs, tiny_model, tiny_tokenizer

from loomrl.config import Sampling
from loomrl.errors import PolicyError
from loomrl.inference.engine import Completion, Request
from loomrl.inference.model import open_model
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.weights.nexus_ray import Outpost, Relay, outpost_on
from loomrl.inference.weights.sealed import Sealed, seal, unstage
from loomrl.own_ray import authenticated

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]

ASKED = Request(np.arange(9, dtype=np.int32), Sampling(max_tokens=8), frozenset(), 3)


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The id of a node that is not the one we are on."""
    with authenticated(tmp_path_factory.mktemp("ray")):
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        node = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        cluster.wait_for_nodes()
        cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not know where tests are
        yield node.node_id
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        ray.shutdown()
        cluster.shutdown()


class FarEngine:
    """A torch engine that loads what its node's outpost has staged."""

    def __init__(self, origin: str) -> None:
        self.engine = TorchEngine(open_model(origin), slots=4, context=64)

    def load(self, file: str) -> None:
        asyncio.run(self.engine.load(unstage(Path(file))))

    def answer(self, asked: Request) -> Completion:
        return asyncio.run(self.engine.generate(asked))


class Unsteady(Outpost):
    """Loses the connection at its third chunk, and counts what it is sent."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.taken: list[int] = []

    def take(self, index: int, chunk: Any) -> None:
        self.taken.append(index)
        if len(self.taken) == 3:
            raise ConnectionError("reset by peer")
        super().take(index, chunk)

    def log(self) -> list[int]:
        return self.taken


def stepped(sealed: Sealed, version: int) -> Sealed:
    """A small step away."""
    return seal({name: tensor + 1e-3 * torch.sign(tensor) for name, tensor in sealed.weights.items()}, version)


def test_versions_reach_an_engine_on_another_node_as_deltas(far: str, tmp_path: Path) -> None:
    model = tiny_model()
    model.save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    there = NodeAffinitySchedulingStrategy(far, soft=False)
    engine: Any = ray.remote(FarEngine).options(scheduling_strategy=there).remote(str(tmp_path / "model"))
    outpost, relay = outpost_on(far, "loomrl-test"), Relay(timeout_s=30)
    sealed, sent = seal(tiny_model(seed=5).state_dict(), 1), []
    for version in (1, 2, 3):
        file = relay.deliver(outpost, sealed)
        sent.append(relay.sent_bytes)
        assert [found.name for found in Path(file).parent.iterdir()] == [Path(file).name]
        assert relay.deliver(outpost, sealed) == file
        assert relay.sent_bytes == sent[-1]
        ray.get(engine.load.remote(file))
        model.load_state_dict(sealed.weights)
        got = ray.get(engine.answer.remote(ASKED))
        assert {*got.versions_T} == {version}
        assert np.abs(got.logprobs_T - logprobs(model, ASKED, got.ids_T)).max() < 1e-4
        sealed = stepped(sealed, version + 1)
    assert sent[1] - sent[0] < sent[0] < relay.sent_bytes < 3 * sent[0]
    ray.get(outpost.close.remote())
    assert not Path(file).parent.exists()


@pytest.mark.slow
def test_outpost_that_died_begins_again_with_all_of_it(far: str) -> None:
    outpost = outpost_on(far, "loomrl-test")
    relay = Relay(timeout_s=30)
    sealed = seal(tiny_model().state_dict(), 1)
    first = relay.deliver(outpost, sealed)
    whole = relay.sent_bytes
    ray.kill(outpost, no_restart=False)
    relay.deliver(outpost, stepped(sealed, 2))
    assert relay.sent_bytes - whole > whole * 0.9
    assert not Path(first).parent.exists()
    ray.get(outpost.close.remote())


@pytest.mark.slow
def test_lost_connection_is_gone_on_with_where_it_broke(far: str) -> None:
    there = NodeAffinitySchedulingStrategy(far, soft=False)
    outpost: Any = ray.remote(Unsteady).options(num_cpus=0, scheduling_strategy=there).remote("loomrl-test")
    relay = Relay(timeout_s=30)
    relay._sender._chunk_bytes = 4000
    sealed = seal(tiny_model().state_dict(), 1)
    unstage(Path(relay.deliver(outpost, sealed))).verify()
    taken = ray.get(outpost.log.remote())
    assert sorted(taken) == sorted([*range(max(taken) + 1), 2])
    ray.get(outpost.close.remote())


def test_outpost_that_cannot_be_reached_is_said(far: str) -> None:
    outpost = outpost_on(far, "loomrl-test")
    ray.kill(outpost, no_restart=True)
    with pytest.raises(PolicyError, match=r"did not reach .* in 3 attempts .*Check that its node is alive"):
        Relay(timeout_s=30).deliver(outpost, seal(tiny_model().state_dict(), 1))
