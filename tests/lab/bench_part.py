"""`python -m tests.lab.bench_part WHAT …`: what `python -m tests.lab.bench` runs on the hosts of its lab.

Each prints one line of JSON, and imports what it needs: the hosts share the cores of one machine.
"""

import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from loomrl.experiments.bench.rounds import seconds

REPEATED = 3
RATE = 1e-6
"""The learning rate of the versions that are published."""


def reduce(rank: str, world: str, *megabytes: str) -> dict[str, float]:
    """Seconds of an all-reduce over gloo by its size, in float32."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", rank=int(rank), world_size=int(world))
    found = {}
    for size in megabytes:
        gradient = torch.ones(int(float(size) * 250_000))
        times = []
        for _ in range(REPEATED):
            dist.barrier()
            times.append(seconds(lambda gradient=gradient: dist.all_reduce(gradient)))  # type: ignore[misc]
        found[size] = statistics.median(times)
    dist.destroy_process_group()
    return found


def versions(folder: str, count: str) -> dict[str, float]:
    """Write the weights of a model in bfloat16 as it learns by heart, one file for each step of Adam."""
    import torch
    from safetensors.torch import save_file
    from transformers import LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM.from_pretrained(folder).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    ids = torch.randint(0, model.config.vocab_size, (4, 128))
    for number in range(int(count)):
        weights = {name: tensor.to(torch.bfloat16) for name, tensor in model.state_dict().items()}
        save_file(weights, Path(folder) / f"{number}.safetensors")
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"parameters_m": sum(p.numel() for p in model.parameters()) / 1e6}


def publish(folder: str, host: str) -> dict[str, float]:
    """Seconds from sealed weights here to verified ones on another host: by Nexus, and whole."""
    import ray
    from safetensors.torch import load_file

    from loomrl.inference.weights.nexus_ray import Relay, outpost_on
    from loomrl.inference.weights.sealed import seal

    ray.init("auto", log_to_driver=False)
    node = next(node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeManagerHostname"] == host)
    files = sorted(Path(folder).glob("*.safetensors"), key=lambda file: int(file.stem))
    first, *others = [seal(load_file(file), number) for number, file in enumerate(files)]
    outpost = outpost_on(node, "bench")
    relay = Relay(timeout_s=600)
    relay.deliver(outpost, first)
    whole = _whole_on(node)
    ray.get(whole.take.remote(first))
    sent = relay.sent_bytes
    nexus_s = [seconds(lambda sealed=sealed: relay.deliver(outpost, sealed)) for sealed in others]  # type: ignore[misc]
    full_s = [seconds(lambda sealed=sealed: ray.get(whole.take.remote(ray.put(sealed)))) for sealed in others]  # type: ignore[misc]
    size = sum(tensor.numel() * tensor.element_size() for tensor in first.weights.values())
    return {
        "nexus_s": statistics.median(nexus_s),
        "full_s": statistics.median(full_s),
        "nexus_mb": (relay.sent_bytes - sent) / len(others) / 1e6,
        "full_mb": size / 1e6,
    }


class Whole:
    """An actor that takes all weights, as an engine without Nexus does."""

    def take(self, sealed: Any) -> None:
        """Verify them."""
        sealed.verify()


def _whole_on(node: str) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    actor: Any = ray.remote(Whole)
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return actor.options(num_cpus=0, scheduling_strategy=there).remote()


def hub(file: str, port: str) -> dict[str, float]:
    """Serve a hub until this is killed."""
    from loomrl.config import HubConfig
    from loomrl.http.listen import open_door
    from loomrl.hub import open_hub
    from loomrl.hub.http import serve_hub

    with open_hub(f"sqlite:///{file}", HubConfig()) as served:
        serve_hub(served, open_door("0.0.0.0", int(port), token=os.environ["LOOMRL_HUB_TOKEN"]))
    return {}


def ingest(url: str, groups: str) -> dict[str, float]:
    """Tokens per second that a hub on another host takes in."""
    import numpy as np

    from loomrl.experiments.bench.hub import GROUP_SIZE, TOKENS, attempts_of, tokens_per_s
    from loomrl.hub.client import HubClient

    rng = np.random.default_rng(0)
    made = [attempts_of(rng, GROUP_SIZE, TOKENS) for _ in range(int(groups))]
    with HubClient(url, token=os.environ["LOOMRL_HUB_TOKEN"], patience_s=60) as client:
        return {"tokens_per_s": tokens_per_s(lambda group: client.append(group.trajectories), made)}


PARTS = {each.__name__: each for each in (reduce, versions, publish, hub, ingest)}

if __name__ == "__main__":
    print(json.dumps(PARTS[sys.argv[1]](*sys.argv[2:])), flush=True)
