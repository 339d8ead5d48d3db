"""How fast language policies sample and learn: the engine, the learner, and the phases of whole updates.

The engine and the learner are measured without Ray, so that the same file runs on a machine that has none.
"""

import asyncio
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, cast

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from algorithms.language.batch import Batch, inputs
from algorithms.language.packing import Sample, plan_update
from algorithms.language.score import score
from algorithms.losses import policy_loss
from loomrl.config import Clip, Optimizer, Sampling
from loomrl.inference.engine import Request
from loomrl.inference.torch_engine import TorchEngine
from loomrl.telemetry.metric import PHASES, Metric


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured, on which model."""

    hidden: int = 192
    layers: int = 6
    heads: int = 6
    intermediate: int = 512
    vocabulary: int = 320
    prompt: int = 24
    answer: int = 64
    requests: int = 512
    concurrent: int = 64
    samples: int = 512
    rounds: int = 5
    micro_batch_tokens: int = 16_384
    updates: int = 16
    warm_steps: int = 300
    dtype: str = "float32"
    device: str = "cpu"


FULL = Size()
QUICK = Size(requests=64, samples=32, rounds=1, updates=2, warm_steps=10)
HALF_BILLION = Size(
    hidden=896,
    layers=24,
    heads=14,
    intermediate=4864,
    vocabulary=151_936,
    prompt=256,
    answer=768,
    requests=512,
    concurrent=256,
    samples=128,
    micro_batch_tokens=32_768,
    updates=0,
    dtype="bfloat16",
    device="cuda",
)
"""The shape of a 0.5 B model, for a GPU."""


def measure(size: Size = FULL) -> dict[str, Any]:
    """Every figure of `loomrl bench language`."""
    model = _model(size)
    figures: dict[str, Any] = {"parameters_m": round(sum(p.numel() for p in model.parameters()) / 1e6, 2)}
    _say("engine")
    figures |= _engine(model, size)
    _say("learner")
    figures |= _learner(model, size)
    if size.updates:
        _say("whole updates")
        figures |= _updates(size)
    figures["machine"] = {
        "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name() if size.device == "cuda" else "cpu",
        "torch": torch.__version__,
        "system": platform.platform(),
    }
    return figures


def _engine(model: PreTrainedModel, size: Size) -> dict[str, Any]:
    """Sampled tokens per second through `generate`: medians of rounds, at two degrees of concurrency."""
    engine = TorchEngine(model, slots=4 * size.concurrent, context=size.prompt + size.answer)
    low = [_sample(engine, size, size.concurrent) for _ in range(size.rounds)]
    high = [_sample(engine, size, 4 * size.concurrent) for _ in range(size.rounds)]
    found: dict[str, Any] = {
        "engine_tokens_per_s": round(statistics.median(low)),
        "engine_tokens_per_s_4x": round(statistics.median(high)),
        "engine_concurrent": size.concurrent,
    }
    reference = _vllm(model, size)
    if reference is not None:
        found |= {"vllm_tokens_per_s": round(reference), "engine_vs_vllm": round(statistics.median(low) / reference, 2)}
    return found


def _sample(engine: TorchEngine, size: Size, concurrent: int) -> float:
    rng = np.random.default_rng(0)
    sampling = Sampling(max_tokens=size.answer)
    prompts = rng.integers(10, size.vocabulary, (size.requests, size.prompt), np.int32)
    requests = [Request(prompt, sampling, frozenset(), seed) for seed, prompt in enumerate(prompts)]

    async def run() -> None:
        room = asyncio.Semaphore(concurrent)

        async def one(request: Request) -> None:
            async with room:
                await engine.generate(request)

        await asyncio.gather(*map(one, requests))

    begun = time.perf_counter()
    asyncio.run(run())
    return size.requests * size.answer / (time.perf_counter() - begun)


def _vllm(model: PreTrainedModel, size: Size) -> float | None:
    """The same requests through vLLM, in a process of its own; None where it is not installed."""
    if size.device != "cpu" or find_spec("vllm") is None:
        return None
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as folder:
        model.save_pretrained(folder)
        words = [folder, *map(str, (size.prompt, size.answer, size.requests, size.concurrent, size.rounds))]
        command = [sys.executable, "-m", "experiments.bench_vllm", *words]
        quiet = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
        done = subprocess.run(command, env=os.environ | quiet, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"vLLM did not get through the benchmark:\n{done.stderr[-3000:]}")
        return float(json.loads(done.stdout.splitlines()[-1])["tokens_per_s"])


def _learner(model: PreTrainedModel, size: Size) -> dict[str, Any]:
    """Tokens per second of whole optimizer steps, padding not counted; on a GPU also the share of its peak."""
    rng = np.random.default_rng(1)
    samples = [_attempt(rng, size) for _ in range(size.samples)]
    settings = Optimizer(micro_batch_tokens=size.micro_batch_tokens)
    ((step,),) = plan_update([s.size for s in samples], optimizer=settings, learners=1, rng=rng)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    model.train()

    def learn() -> None:
        optimizer.zero_grad(set_to_none=True)
        for micro_batch in step.micro_batches:
            batch = Batch.of(samples, micro_batch, model.device)
            logp_K = score(model, inputs(batch.packed))["logp_K"]
            advantage_K = batch.packed.columns["advantage"]
            loss_K, _ = policy_loss(logp_K, logp_K.detach(), advantage_K, clip=Clip())
            (loss_K.sum() / step.targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    learn()
    seconds = statistics.median(_seconds(learn, size.device) for _ in range(size.rounds))
    tokens = sum(len(s.ids_T) for s in samples)
    found: dict[str, Any] = {"learner_tokens_per_s": round(tokens / seconds), "learner_step_s": round(seconds, 4)}
    flops = 6 * sum(p.numel() for p in model.parameters()) * tokens / seconds
    found["learner_model_tflops_per_s"] = round(flops / 1e12, 3)
    peak = _PEAK_TFLOPS.get(torch.cuda.get_device_name()) if size.device == "cuda" else None
    if peak is not None:
        found["model_flops_utilisation"] = round(flops / 1e12 / peak, 3)
    return found


_PEAK_TFLOPS = {"NVIDIA H200": 989.0, "NVIDIA H100 80GB HBM3": 989.0}
"""Dense bfloat16, as the vendor states it."""


def _seconds(call: Callable[[], None], device: str) -> float:
    begun = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def _attempt(rng: np.random.Generator, size: Size) -> Sample:
    length = size.prompt + int(rng.integers(size.answer // 2, size.answer + 1))
    ids_T = rng.integers(10, size.vocabulary, length, np.int32)
    return Sample(ids_T, np.arange(length) >= size.prompt, {"advantage": rng.normal(size=length).astype(np.float32)})


def _updates(size: Size) -> dict[str, Any]:
    """Seconds per phase of an update of the demo, and the share in which neither engine nor learner works."""
    from experiments.algorithms import open_algorithm, ray_running
    from experiments.shipped import TRAINED, resolve

    history: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as folder:
        experiment = resolve([TRAINED]).override(
            {
                "store_url": f"sqlite:///{folder}/loom.db",
                "artifact_url": f"{folder}/artifacts",
                "algorithm.warm_start.steps": size.warm_steps,
                "train.updates": size.updates,
            }
        )
        with ray_running(1):
            algo = open_algorithm(experiment).build_algo()
            gc.collect()
            gc.freeze()
            algo.listen = lambda done, metrics: history.append(dict(metrics))
            while algo.stopped is None:
                algo.train()
            algo.stop()
    settled = history[1:]
    phases = {phase: statistics.median(line[phase] for line in settled) for phase in PHASES}
    idle = [
        1 - (line[Metric.TIME_ENGINE] + line[Metric.TIME_LEARN]) / sum(line[phase] for phase in PHASES)
        for line in settled
    ]
    return {
        "idle_share": round(statistics.median(idle), 3),
        "phase_s": {phase.value.removeprefix("time/"): round(seconds, 4) for phase, seconds in phases.items()},
    }


def _model(size: Size) -> PreTrainedModel:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        max_position_embeddings=size.prompt + size.answer,
        tie_word_embeddings=True,
    )
    model: Any = LlamaForCausalLM(config)
    return cast(PreTrainedModel, model.to(device=size.device, dtype=getattr(torch, size.dtype)))


def _say(text: str) -> None:
    print(f"bench language: {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Print the figures as one JSON object; `--quick` measures little, `--gpu` the half-billion model."""
    size = QUICK if "--quick" in sys.argv[1:] else HALF_BILLION if "--gpu" in sys.argv[1:] else FULL
    print(json.dumps(measure(size)))


if __name__ == "__main__":
    main()
