"""Speed of sampling and learning of a random model. Needs only torch and transformers: no Ray, no pydantic settings.

Settings are plain attributes here (`SimpleNamespace`), because LoomRL's own classes need pydantic.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from loomrl.algorithms.language.batch import TokenBatch, inputs
from loomrl.algorithms.language.packing import Reader, Sample, UpdateStep, plan_update
from loomrl.algorithms.language.precision import hold_in_float32
from loomrl.algorithms.language.score import Scores, score
from loomrl.algorithms.losses import policy_loss
from loomrl.experiments.bench import rounds
from loomrl.inference.engine import Request
from loomrl.inference.torch.engine import TorchEngine


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The amount of work, and the model's size."""

    hidden: int = 192
    layers: int = 6
    heads: int = 6
    kv_heads: int = 6
    intermediate: int = 512
    vocabulary: int = 320
    prompt: int = 24
    answer: int = 64
    requests: int = 512
    group: int = 1
    """Attempts at each prompt."""
    concurrent: int = 64
    samples: int = 512
    rounds: int = 5
    micro_batch_tokens: int = 16_384
    updates: int = 16
    warm_steps: int = 300
    dtype: str = "float32"
    device: str = "cpu"


HALF_BILLION = ModelSize(
    hidden=896,
    layers=24,
    heads=14,
    kv_heads=2,
    intermediate=4864,
    vocabulary=151_936,
    prompt=256,
    answer=256,
    requests=256,
    concurrent=64,
    samples=128,
    rounds=3,
    updates=0,
    dtype="bfloat16",
    device="cuda",
)
"""The shape of a 0.5 B model, for a GPU."""

SMOLLM2 = replace(
    HALF_BILLION, hidden=576, layers=30, heads=9, kv_heads=3, intermediate=1536, vocabulary=49_152, rounds=1
)
"""The shape of SmolLM2-135M."""

PEAK_TFLOPS = {
    "NVIDIA A100": 312.0,
    "NVIDIA H100 PCIe": 756.0,
    "NVIDIA H100 NVL": 835.0,
    "NVIDIA H100": 989.0,
    "NVIDIA H200": 989.0,
    "NVIDIA L4": 121.0,
    "NVIDIA L40S": 362.0,
}
"""Dense bfloat16 peak as stated by the vendor, by the prefix of a device's name."""


def build_model(size: ModelSize) -> PreTrainedModel:
    """A Llama of that size with random but fixed weights, which depend on the kind of device."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        max_position_embeddings=size.prompt + size.answer,
        tie_word_embeddings=True,
    )
    with torch.device(size.device):  # a CPU takes ten seconds to draw half a billion numbers
        model: Any = LlamaForCausalLM(config)
    return cast(PreTrainedModel, model.to(device=size.device, dtype=getattr(torch, size.dtype)))


def engine_rate(engine: TorchEngine, size: ModelSize, concurrent: int) -> float:
    """Sampled tokens per second through `generate`, with this many requests open at once."""
    rng = np.random.default_rng(0)
    sampling: Any = SimpleNamespace(temperature=1.0, top_p=1.0, max_tokens=size.answer, entropies=False)
    different = rng.integers(10, size.vocabulary, (size.requests // size.group, size.prompt), np.int32)
    prompts = np.repeat(different, size.group, axis=0)
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


class BenchLesson:
    """Attempts for one optimizer step, random ones unless they are given, with the ways to learn from them."""

    def __init__(self, size: ModelSize, *, read: Reader | None = None, samples: Sequence[Sample] | None = None) -> None:
        rng = np.random.default_rng(1)
        self._size = size
        self._read = read
        self._samples = samples or [_attempt(rng, size, index // size.group) for index in range(size.samples)]
        settings: Any = SimpleNamespace(epochs=1, minibatches=1, micro_batch_tokens=size.micro_batch_tokens)
        sizes = [sample.size for sample in self._samples]
        ((step,),) = plan_update(sizes, optimizer=settings, learners=1, rng=rng, flat=read is not None)
        self._step: UpdateStep = step
        self.targets = step.targets
        """Tokens that are learnt."""
        self.tokens = sum(len(s.ids_T) for s in self._samples)
        """Without padding."""

    def gradients(self, forward: Callable[[dict[str, Tensor | None]], Scores], device: Any) -> float:
        """Accumulate the gradients of the step; returns the mean log-probability of its targets."""
        total = 0.0
        for batch in self.batches(device):
            logp_K = forward(inputs(batch.packed))["logp_K"]
            clip: Any = SimpleNamespace(low=0.2, high=0.2, dual=None)
            loss_K, _ = policy_loss(logp_K, logp_K.detach(), batch.packed.columns["advantage"], clip=clip)
            (loss_K.sum() / self.targets).backward()
            total += float(logp_K.detach().sum())
        return total / self.targets

    def batches(self, device: Any) -> Iterator[TokenBatch]:
        """The step's micro-batches as tensors."""
        for micro_batch in self._step.micro_batches:
            yield TokenBatch.of(self._samples, micro_batch, device, read=self._read)

    def flops(self, model: nn.Module) -> float:
        """Floating-point operations of the step: matrix products only, without recomputation."""
        size = self._size
        lookup = size.vocabulary * size.hidden
        body = sum(p.numel() for p in model.parameters()) - lookup
        attention = 6 * size.layers * size.hidden * sum(len(s.ids_T) ** 2 for s in self._samples)
        return 6.0 * (body * self.tokens + lookup * self.targets) + attention


def learner_rate(
    model: PreTrainedModel, size: ModelSize, *, read: Reader | None = None, fused: bool = True
) -> dict[str, Any]:
    """Tokens per second of whole optimizer steps, in flat rows with `read`; on a GPU also the share of its peak, and
    the peak memory.

    The model's parameters are float32 from then on; their values stay.
    """
    lesson = BenchLesson(size, read=read)
    hold_in_float32(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0, fused=fused)
    model.train()
    found: dict[str, Any] = {}

    def learn() -> None:
        optimizer.zero_grad(set_to_none=True)
        found["mean_logp"] = lesson.gradients(lambda batch: score(model, batch), model.device)
        found["gradient_norm"] = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    if size.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    first = time_call(learn, size.device)
    seconds = statistics.median(time_call(learn, size.device) for _ in range(size.rounds))
    rate = lesson.flops(model) / seconds / 1e12
    optimizer_s = statistics.median(time_call(optimizer.step, size.device) for _ in range(size.rounds))
    found |= {
        "gradient_norm": float(found["gradient_norm"]),
        "learner_tokens_per_s": round(lesson.tokens / seconds),
        "learner_step_s": round(seconds, 4),
        "learner_first_step_s": round(first, 2),
        "learner_optimizer_s": round(optimizer_s, 4),
        "learner_model_tflops_per_s": round(rate, 4),
    }
    if size.device == "cuda":
        peak = peak_tflops()
        found["peak_tflops"] = peak
        found["model_flops_utilisation"] = None if peak is None else round(rate / peak, 3)
        found["learner_peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    return found


def peak_tflops() -> float | None:
    """The vendor's peak for this GPU; None if it is not in the table."""
    name = torch.cuda.get_device_name()
    known = [prefix for prefix in PEAK_TFLOPS if name.startswith(prefix)]
    return PEAK_TFLOPS[max(known, key=len)] if known else None


def time_call(call: Callable[[], Any], device: str) -> float:
    """Seconds until the device has finished the call."""
    settle(device)
    begun = time.perf_counter()
    call()
    settle(device)
    return time.perf_counter() - begun


def settle(device: str) -> None:
    """Wait for the device's pending work."""
    if device == "cuda":
        torch.cuda.synchronize()


def machine(device: str) -> dict[str, Any]:
    """The machine on which the figures were measured, with its device and torch."""
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return rounds.machine(device=name, torch=torch.__version__)


def _attempt(rng: np.random.Generator, size: ModelSize, group: int) -> Sample:
    """One of its group, whose members have the same prompt."""
    length = size.prompt + int(rng.integers(size.answer // 2, size.answer + 1))
    prompt_T = np.random.default_rng(group).integers(10, size.vocabulary, size.prompt, np.int32)
    ids_T = np.concatenate([prompt_T, rng.integers(10, size.vocabulary, length - size.prompt, np.int32)])
    return Sample(ids_T, np.arange(length) >= size.prompt, {"advantage": rng.normal(size=length).astype(np.float32)})
