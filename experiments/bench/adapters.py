"""Speed of a torch engine whose rows sample with different adapters of one base, against the base alone.

In seconds of CPU time, on one thread.
"""

import asyncio
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from loomrl.config import Sampling
from loomrl.experiments.bench.model import ModelSize, build_model
from loomrl.experiments.bench.rounds import machine, spread
from loomrl.inference.engine import Request
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.weights.adapter import NARROW, WIDEN
from loomrl.inference.weights.sealed import Sealed, identify, seal

SMALL = ModelSize(hidden=320, layers=6, heads=5, kv_heads=5, intermediate=864, vocabulary=4096, answer=24)
SMOL = ModelSize(hidden=576, layers=30, heads=9, kv_heads=3, intermediate=1536, vocabulary=49_152, answer=24)
"""The shape of SmolLM2-135M."""


@dataclass(frozen=True, slots=True)
class AdapterWork:
    """The amount of work: every request of a round is open at once."""

    models: tuple[ModelSize, ...] = (SMALL, SMOL)
    adapters: int = 8
    rank: int = 16
    requests: int = 64
    rounds: int = 3


FULL = AdapterWork()
QUICK = AdapterWork(models=(ModelSize(hidden=32, layers=2, heads=2, kv_heads=2, intermediate=64, answer=4),), rounds=2)


def measure(work: AdapterWork = FULL) -> dict[str, Any]:
    """Every figure of `loomrl bench adapters`."""
    torch.set_num_threads(1)
    return {f"{size.layers}_layers": _measure_model(work, size) for size in work.models} | machine()


def _measure_model(work: AdapterWork, size: ModelSize) -> dict[str, Any]:
    model = build_model(size)
    base = identify(model.state_dict().items())
    engine = TorchEngine(model, slots=work.requests, context=size.prompt + size.answer)
    names = [f"adapter-{seed}" for seed in range(work.adapters)]
    for seed, name in enumerate(names):
        asyncio.run(engine.add_adapter(name, _random_adapter(model, work.rank, seed, base)))
    rounds = [(_rate(engine, work, size, [""]), _rate(engine, work, size, names)) for _ in range(work.rounds)]
    alone, mixed = zip(*rounds, strict=True)
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "base_tokens_per_s": round(statistics.median(alone), 1),
        "adapters_tokens_per_s": round(statistics.median(mixed), 1),
        **spread("adapters_ratio", [there / here for here, there in rounds]),
    }


def _random_adapter(model: nn.Module, rank: int, seed: int, base: str) -> Sealed:
    rng = torch.Generator().manual_seed(seed)
    weights = {}
    for name, layer in model.named_modules():
        if type(layer) is nn.Linear and name != "lm_head":
            weights[name + NARROW] = torch.randn(rank, layer.in_features, generator=rng) * 0.02
            weights[name + WIDEN] = torch.randn(layer.out_features, rank, generator=rng) * 0.02
    return seal(weights, seed, base=base)


def _rate(engine: TorchEngine, work: AdapterWork, size: ModelSize, names: list[str]) -> float:
    """Sampled tokens per second, prompts included."""
    rng = np.random.default_rng(0)
    sampling = Sampling(max_tokens=size.answer)
    requests = [
        Request(prompt, sampling, frozenset(), seed, adapter=names[seed % len(names)])
        for seed, prompt in enumerate(rng.integers(0, size.vocabulary, (work.requests, size.prompt), np.int32))
    ]

    async def answer() -> None:
        await asyncio.gather(*map(engine.generate, requests))

    begun = time.process_time()
    asyncio.run(answer())
    return work.requests * size.answer / (time.process_time() - begun)
