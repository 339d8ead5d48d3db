"""Computing parts of `make gpu-check`: learner step, engine, loss in chunks.

Axes: K tokens, H hidden size, V vocabulary.
"""

import asyncio
import platform
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn
from torch._dynamo.utils import counters
from transformers import PreTrainedModel

from loomrl.algorithms.language.flat import use_flat, variable_of
from loomrl.algorithms.language.layers import compile_layers
from loomrl.algorithms.language.packing import Reader
from loomrl.algorithms.language.peak import learner_bytes
from loomrl.algorithms.language.score import LOGITS_AT_ONCE, chosen_logprobs
from loomrl.experiments.bench.model import (
    HALF_BILLION,
    SMOLLM2,
    ModelSize,
    build_model,
    engine_rate,
    learner_rate,
    machine,
    settle,
    time_call,
)
from loomrl.experiments.gpu import stand_in
from loomrl.inference.engine import Completion, Request
from loomrl.inference.footprint import ModelShape
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.torch.graph_engine import GraphEngine

TINY = ModelSize(
    hidden=64,
    layers=2,
    heads=4,
    kv_heads=2,
    intermediate=128,
    vocabulary=4096,
    prompt=16,
    answer=16,
    requests=16,
    concurrent=4,
    samples=16,
    rounds=1,
    micro_batch_tokens=1024,
    dtype="bfloat16",
    device="cuda",
)


def model_size(size: ModelSize = HALF_BILLION, *, cpu: bool, tiny: bool) -> ModelSize:
    """The size of a part's model; float32 on a CPU."""
    size = TINY if tiny else size
    return replace(size, device="cpu", dtype="float32") if cpu else size


def describe(*, cpu: bool, tiny: bool) -> Iterator[dict[str, Any]]:
    """The machine and the versions; `gpu` is None if there is none or it is not used."""
    seen = torch.cuda.is_available()
    yield {
        **machine("cuda" if seen else "cpu"),
        "python": platform.python_version(),
        "transformers": transformers.__version__,
        "numpy": np.__version__,
        "cuda": torch.version.cuda,
        "gpu": torch.cuda.get_device_name() if seen else None,
        "gpu_gib": round(torch.cuda.get_device_properties(0).total_memory / 2**30, 1) if seen else None,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if seen else None,
    }


def learner(*, cpu: bool, tiny: bool) -> Iterator[dict[str, Any]]:
    """Whole optimizer steps in every way to make them, and the machine's rate at one large matrix product."""
    yield from _learner(model_size(cpu=cpu, tiny=tiny), WAYS)


def learner_small(*, cpu: bool, tiny: bool) -> Iterator[dict[str, Any]]:
    """The same with the shape of SmolLM2-135M."""
    names = ("dense",) if tiny else ("dense", "compiled", "compiled_group")  # tiny ones have one shape
    ways = {name: WAYS[name] for name in names}
    yield from _learner(model_size(replace(SMOLLM2, rounds=3), cpu=cpu, tiny=tiny), ways)


def _learner(size: ModelSize, ways: Mapping[str, "Way"]) -> Iterator[dict[str, Any]]:
    """The first way is the proved one. Ways that fail, or learn something else, keep no other from being measured."""
    size = replace(size, vocabulary=min(size.vocabulary, 1024)) if size.hidden == TINY.hidden else size
    model = build_model(size)
    if size.device == "cpu":
        stand_in.install()
    if not use_flat(model):
        raise ArithmeticError("flat and plain attention differ")
    found: dict[str, Any] = {}
    failed = {}
    is_compiled = False
    for name, way in ways.items():
        try:
            if way.compiled and not is_compiled:
                is_compiled = True
                compile_layers(model, backend="eager" if size.device == "cpu" else "inductor")
            found[name] = _measure(model, replace(size, **way.size), way)
            planned = sum(planned_learner(model, replace(size, **way.size)).values()) / 2**30
            found[name]["learner_planned_gib"] = round(planned, 2)
            if not way.size:
                _compare(found[name], found["dense"], 1e-5 if size.dtype == "float32" else 2e-2)
            yield {name: found[name]}
        except Exception as error:  # noqa: BLE001 - the boundary
            failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    measured = _product_tflops(size, 512 if size.device == "cpu" else 8192)
    best = max(way["learner_model_tflops_per_s"] for way in found.values())
    yield {"product_tflops": round(measured, 3), "share_of_product": round(best / measured, 3)}
    if failed:
        raise ArithmeticError("; ".join(f"{name}: {cause}" for name, cause in failed.items()))


def planned_learner(model: PreTrainedModel, size: ModelSize) -> dict[str, float]:
    """The bytes by part that `loomrl show --plan` counts for a learner like these."""
    algorithm = SimpleNamespace(
        model=SimpleNamespace(dtype=size.dtype, lora=None, recompute="none"),
        learners=SimpleNamespace(count=0, gpus=float(size.device == "cuda"), sharding="", sequence_parallel=1),
        optimizer=SimpleNamespace(states="float32"),
    )
    return learner_bytes(algorithm, ModelShape.of(model.config), size.micro_batch_tokens, reference=False)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to make optimizer steps."""

    read: Reader | None = variable_of
    compiled: bool = False
    fused: bool = True
    size: Mapping[str, Any] = field(default_factory=dict)
    """Changes of the work, which make it another."""


WAYS = {
    "dense": Way(read=None, fused=False),
    "fused": Way(read=None),
    "flat": Way(),
    "flat_group": Way(size={"group": 8}),
    "compiled": Way(compiled=True),
    "compiled_group": Way(compiled=True, size={"group": 8}),
    "compiled_long": Way(compiled=True, size={"micro_batch_tokens": 32_768}),
}
"""Ways to learn, each on top of the one before it; layers stay compiled."""


def _measure(model: PreTrainedModel, size: ModelSize, way: Way) -> dict[str, Any]:
    warm = learner_rate(model, replace(size, rounds=1), read=way.read, fused=way.fused) if way.compiled else {}
    graphs = _count_graphs()
    found = learner_rate(model, size, read=way.read, fused=way.fused)
    if _count_graphs() != graphs:
        raise ArithmeticError(f"{_count_graphs() - graphs} graphs were compiled after the second step")
    return {**found, "graphs": graphs, "learner_first_step_s": (warm or found)["learner_first_step_s"]}


def _count_graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


def _compare(found: Mapping[str, Any], proved: Mapping[str, Any], bound: float) -> None:
    for name in ("mean_logp", "gradient_norm"):
        if not abs(found[name] - proved[name]) <= bound * abs(proved[name]):
            raise ArithmeticError(f"{name} is {found[name]}, and {proved[name]} in the proved way")


def _product_tflops(size: ModelSize, width: int) -> float:
    a, b = (torch.randn(width, width, device=size.device, dtype=getattr(torch, size.dtype)) for _ in range(2))
    time_call(lambda: a @ b, size.device)
    return 2 * width**3 / statistics.median(time_call(lambda: a @ b, size.device) for _ in range(10)) / 1e12


def engine(*, cpu: bool, tiny: bool) -> Iterator[dict[str, Any]]:
    """Sampled tokens per second of the torch engine, and its difference in log-probabilities from a plain pass."""
    yield _engine(TorchEngine, model_size(replace(HALF_BILLION, rounds=1), cpu=cpu, tiny=tiny))
    yield {"smollm2": _engine(TorchEngine, model_size(SMOLLM2, cpu=cpu, tiny=tiny))}


def engine_graphs(*, cpu: bool, tiny: bool) -> Iterator[dict[str, Any]]:
    """The same of the engine whose steps are CUDA graphs; on a CPU they are made one operation at a time."""
    yield _engine(GraphEngine, model_size(cpu=cpu, tiny=tiny))
    yield {"smollm2": _engine(GraphEngine, model_size(SMOLLM2, cpu=cpu, tiny=tiny))}


def _engine(kind: type[TorchEngine], size: ModelSize) -> dict[str, Any]:
    if size.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    model = build_model(size).eval()
    context = size.prompt + size.answer
    planned = ModelShape.of(model.config).cache_bytes(4 * size.concurrent * context, size.dtype)
    expected = asyncio.run(_sample(TorchEngine(model, slots=DRIFTING, context=context), size))
    before = _allocated(size.device)
    opened = kind(model, slots=4 * size.concurrent, context=context)
    for n in _degrees(size):
        engine_rate(opened, replace(size, requests=n, answer=max(2, size.answer // 16)), n)
    low, high = ([engine_rate(opened, size, n) for _ in range(size.rounds)] for n in _degrees(size))
    taken = _allocated(size.device)
    opened.release()
    released = _allocated(size.device)
    got = asyncio.run(_sample(opened, size))  # in a cache that was given back and taken again
    found = {
        "engine_tokens_per_s": round(statistics.median(low)),
        "engine_tokens_per_s_4x": round(statistics.median(high)),
        "engine_concurrent": size.concurrent,
        **_drift(model, size, got),
        "same_tokens": float(np.mean([_same_share(one, other) for one, other in zip(expected, got, strict=True)])),
    }
    found["cache_planned_gib"] = round(planned / 2**30, 2)
    if size.device == "cuda":
        found["engine_peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
        found["cache_gib"] = round(taken - released, 2)
        found["left_gib"] = round(released - before, 2)
    return found


def _allocated(device: str) -> float:
    """GiB of the device's memory in use."""
    return torch.cuda.memory_allocated() / 2**30 if device == "cuda" else 0.0


def _degrees(size: ModelSize) -> tuple[int, int]:
    return size.concurrent, 4 * size.concurrent


DRIFTING = 8
"""Requests whose answers are compared."""


def _requests(size: ModelSize) -> list[Request]:
    sampling: Any = SimpleNamespace(temperature=1.0, top_p=1.0, max_tokens=size.answer, entropies=False)
    prompts = np.random.default_rng(2).integers(10, size.vocabulary, (DRIFTING, size.prompt), np.int32)
    return [Request(prompt, sampling, frozenset(), seed) for seed, prompt in enumerate(prompts)]


async def _sample(opened: TorchEngine, size: ModelSize) -> list[Completion]:
    return list(await asyncio.gather(*map(opened.generate, _requests(size))))


def _same_share(one: Completion, other: Completion) -> float:
    """The share of an answer before the first token that differs."""
    return float(np.cumprod(one.ids_T == other.ids_T).mean())


def _drift(model: PreTrainedModel, size: ModelSize, answers: Sequence[Completion]) -> dict[str, float]:
    """Log-probabilities as sampled, against those of one pass over the finished sequence."""
    gaps: list[float] = []
    for request, answer in zip(_requests(size), answers, strict=True):
        ids_T = torch.from_numpy(np.concatenate([request.prompt_T, answer.ids_T])).long().to(size.device)
        with torch.inference_mode():
            logp_TV = model(ids_T[None], use_cache=False).logits[0].float().log_softmax(-1)
        logp_T = logp_TV[size.prompt - 1 : -1].gather(1, ids_T[size.prompt :, None])[:, 0].cpu().numpy()
        gaps.extend(np.abs(logp_T - answer.logprobs_T).tolist())
    return {"drift_mean": float(f"{np.mean(gaps):.3g}"), "drift_max": float(f"{np.max(gaps):.3g}")}


@dataclass(frozen=True, slots=True)
class Trial:
    """One way to compute the same loss: seconds, memory, and results."""

    chunk: int
    seconds: float
    peak_mib: float
    logp_K: torch.Tensor
    gradient_KH: torch.Tensor


def chunked_loss(*, cpu: bool, tiny: bool) -> Iterator[dict[str, Any]]:
    """Peak memory and seconds of forward and backward through the output embedding, in chunks and all at once."""
    size = model_size(cpu=cpu, tiny=tiny)
    tokens = min(8192, size.micro_batch_tokens)
    smallest = min(tokens // 16, max(1, LOGITS_AT_ONCE["cpu"] // size.vocabulary))
    _trial(size, tokens, smallest)
    chunks = [chunk for chunk in (smallest, 4 * smallest, 16 * smallest) if chunk < tokens]
    trials = [_trial(size, tokens, chunk) for chunk in (*chunks, tokens)]
    first = trials[0]
    whole = trials[-1]
    apart = float((first.logp_K - whole.logp_K).abs().max())
    gradient = float((first.gradient_KH - whole.gradient_KH).norm() / whole.gradient_KH.norm())
    bound = 1e-4 if cpu else 0.05
    if not (apart <= bound and gradient <= bound):
        raise ArithmeticError(f"chunks and whole differ: log-probabilities by {apart:.2g}, gradients by {gradient:.2g}")
    yield {
        "tokens": tokens,
        "logits_mib": round(tokens * size.vocabulary * 4 / 2**20),
        "trials": [{"chunk": t.chunk, "s": round(t.seconds, 4), "peak_mib": round(t.peak_mib)} for t in trials],
        "whole_over_chunked_memory": round(whole.peak_mib / max(first.peak_mib, 1), 1),
        "logprobs_apart": apart,
        "gradients_apart": gradient,
    }


def _trial(size: ModelSize, tokens: int, chunk: int) -> Trial:
    torch.manual_seed(0)
    dtype = getattr(torch, size.dtype)
    head = nn.Linear(size.hidden, size.vocabulary, bias=False, dtype=dtype, device=size.device)
    hidden_KH = torch.randn(tokens, size.hidden, dtype=dtype, device=size.device, requires_grad=True)
    target_K = torch.randint(size.vocabulary, (tokens,), device=size.device)
    before = _memory(size.device)
    found: list[torch.Tensor] = []

    def learn() -> None:
        logp_K, entropy_K = chosen_logprobs(hidden_KH, head, target_K, chunk=chunk)
        (logp_K.mean() + 0.01 * entropy_K.mean()).backward()
        found.append(logp_K.detach())

    seconds = time_call(learn, size.device)
    peak = _peak(size.device) - before
    assert hidden_KH.grad is not None
    return Trial(chunk, seconds, peak, found[0].cpu(), hidden_KH.grad.float().cpu())


def _memory(device: str) -> float:
    """MiB in use; resets the peak."""
    if device == "cuda":
        settle(device)
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() / 2**20
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak(device: str) -> float:
    """Peak MiB since the last call of `_memory`."""
    return torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else _status("VmHWM")


def _status(name: str) -> float:
    """MiB of this process, as Linux counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024
