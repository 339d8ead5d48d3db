"""Speed of sampling and learning of language policies: the engine, the learner, and the phases of whole updates."""

import gc
import os
import statistics
import tempfile
import time
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from transformers import PreTrainedModel

from loomrl.algorithms.language.flat import blocks_of, use_flat
from loomrl.experiments.bench.model import ModelSize, build_model, engine_rate, learner_rate, machine
from loomrl.experiments.bench.rounds import medians, run_part, say
from loomrl.inference.torch.engine import TorchEngine
from loomrl.telemetry.metric import PHASES, Metric

FULL = ModelSize()
QUICK = ModelSize(requests=64, samples=32, rounds=1, updates=2, warm_steps=10)
SHAPES = {
    "group": ModelSize(prompt=200, requests=256, group=8, concurrent=128, rounds=3),
    "50m": ModelSize(hidden=640, layers=10, heads=10, kv_heads=10, intermediate=1728, requests=64, rounds=3),
    "smollm2": ModelSize(
        hidden=576,
        layers=30,
        heads=9,
        kv_heads=3,
        intermediate=1536,
        vocabulary=49_152,
        prompt=64,
        answer=32,
        requests=32,
        concurrent=16,
        rounds=3,
    ),
}
"""Further measurements of the engine: longer prompts with eight attempts at each, 50 M parameters, SmolLM2's shape."""


def measure(size: ModelSize = FULL) -> dict[str, Any]:
    """Every figure of `loomrl bench language`."""
    model = build_model(size)
    figures: dict[str, Any] = {"parameters_m": round(sum(p.numel() for p in model.parameters()) / 1e6, 2)}
    say("engine")
    figures |= _engine(size)
    for name, shape in SHAPES.items() if size.device == "cpu" else ():
        say(f"engine, {name}")
        shape = replace(shape, rounds=1, requests=16, concurrent=16) if size.rounds == 1 else shape
        figures |= {f"{key}_{name}": value for key, value in _against_vllm(shape).items()}
    say("learner")
    use_flat(model)
    figures |= learner_rate(model, size, read=blocks_of)
    if size.updates:
        say("whole updates")
        figures |= _updates(size)
    figures["machine"] = machine(size.device)
    return figures


def _engine(size: ModelSize) -> dict[str, Any]:
    """Sampled tokens per second through `generate`: medians of rounds, at two degrees of concurrency."""
    engine = TorchEngine(build_model(size), slots=4 * size.concurrent, context=size.prompt + size.answer)
    high = [engine_rate(engine, size, 4 * size.concurrent) for _ in range(size.rounds)]
    return {
        **_against_vllm(size),
        "engine_tokens_per_s_4x": round(statistics.median(high)),
        "engine_concurrent": size.concurrent,
    }


def _against_vllm(size: ModelSize) -> dict[str, Any]:
    """Sampled tokens of both, per second and per CPU second, and the ratios; of the engine alone without vLLM.

    Neighbours on the machine disturb CPU seconds less.
    """
    engine = TorchEngine(build_model(size), slots=size.concurrent, context=size.prompt + size.answer)
    rates = []
    cpu_rates = []
    for _ in range(size.rounds):
        used = time.process_time()
        rates.append(engine_rate(engine, size, size.concurrent))
        cpu_rates.append(size.requests * size.answer / (time.process_time() - used))
    rate = statistics.median(rates)
    cpu_rate = statistics.median(cpu_rates)
    found: dict[str, Any] = {"engine_tokens_per_s": round(rate), "engine_tokens_per_cpu_s": round(cpu_rate)}
    reference = _vllm(build_model(size), size)
    if reference is not None:
        found |= {
            "vllm_tokens_per_s": round(reference["tokens_per_s"]),
            "vllm_tokens_per_cpu_s": round(reference["tokens_per_cpu_s"]),
            "engine_vs_vllm": round(rate / reference["tokens_per_s"], 2),
            "engine_vs_vllm_cpu": round(cpu_rate / reference["tokens_per_cpu_s"], 2),
        }
    return found


def _vllm(model: PreTrainedModel, size: ModelSize) -> dict[str, float] | None:
    """The same requests through vLLM, in a process of its own; None where it is not installed."""
    if size.device != "cpu" or find_spec("vllm") is None:
        return None
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as folder:
        model.save_pretrained(folder)
        amounts = (size.prompt, size.answer, size.requests, size.group, size.concurrent, size.rounds)
        quiet = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
        rates: dict[str, float] = run_part("vllm", folder, *map(str, amounts), env=os.environ | quiet)
        return rates


def _updates(size: ModelSize) -> dict[str, Any]:
    """Seconds per phase of an update of the demo, and the share of time in which neither engine nor learner works."""
    from loomrl.experiments.algorithms import open_algorithm, ray_running
    from loomrl.experiments.shipped import TRAINED, resolve

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
    phases = medians([{phase: line[phase] for phase in PHASES} for line in settled])
    idle = [
        1 - (line[Metric.TIME_ENGINE] + line[Metric.TIME_LEARN]) / sum(line[phase] for phase in PHASES)
        for line in settled
    ]
    return {
        "idle_share": round(statistics.median(idle), 3),
        "phase_s": {phase.removeprefix("time/"): round(seconds, 4) for phase, seconds in phases.items()},
    }
