"""Versions travel to an outpost, an actor of Ray; test_fleet_nexus.py has engines on other nodes."""

import sys
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from ray import cloudpickle
from sample_models import tiny_model

from loomrl.errors import PolicyError
from loomrl.inference.weights.nexus_ray import Outpost, Relay, outpost_on
from loomrl.inference.weights.sealed import Sealed, seal, unstage

pytestmark = [
    pytest.mark.system,
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]


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


def stepped(sealed: Sealed) -> Sealed:
    """A small step away."""
    weights = {name: tensor + 1e-3 * torch.sign(tensor) for name, tensor in sealed.weights.items()}
    return seal(weights, sealed.version + 1)


def test_versions_reach_an_outpost_as_deltas_and_one_that_is_gone_is_named() -> None:
    outpost = outpost_on(ray.get_runtime_context().get_node_id(), "loomrl-test")
    relay, sealed, sent = Relay(timeout_s=30), seal(tiny_model(seed=5).state_dict(), 1), []
    for _ in range(3):
        file = Path(relay.deliver(outpost, sealed))
        sent.append(relay.sent_bytes)
        assert unstage(file).checksums == sealed.checksums
        assert [*file.parent.iterdir()] == [file]
        assert relay.deliver(outpost, sealed) == str(file)
        assert relay.sent_bytes == sent[-1]
        sealed = stepped(sealed)
    assert sent[1] - sent[0] < sent[0] < relay.sent_bytes < 3 * sent[0]
    ray.get(outpost.close.remote())
    assert not file.parent.exists()
    ray.kill(outpost, no_restart=True)
    with pytest.raises(PolicyError, match=r"did not reach .* in 3 attempts .*Check that its node is alive"):
        relay.deliver(outpost, sealed)


@pytest.mark.slow
def test_lost_connection_is_gone_on_with_where_it_broke() -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not know where tests are
    outpost: Any = ray.remote(Unsteady).options(num_cpus=0).remote("loomrl-test")
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    relay = Relay(timeout_s=30)
    relay._sender._chunk_bytes = 4000
    unstage(Path(relay.deliver(outpost, seal(tiny_model().state_dict(), 1)))).verify()
    taken = ray.get(outpost.log.remote())
    assert sorted(taken) == sorted([*range(max(taken) + 1), 2])
    ray.get(outpost.close.remote())
