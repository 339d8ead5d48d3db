"""Weights change under callers: nobody loses an answer, and every token says which weights drew it."""

import asyncio
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch

from loomrl.config import Sampling
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.policy import Voice
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.weights.sealed import seal
from loomrl.serving.durable import open_recorder
from loomrl.serving.local import LocalGateway
from loomrl.serving.speech import LanguageServedPolicy
from tests.inference.sample_models import logits, tiny_model, tiny_tokenizer
from tests.serving.test_token_truth import CONTEXT, Logged

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("one_thread")]
CLIENTS, SWAPS = 16, 20


async def test_twenty_swaps_under_sixteen_callers_lose_nothing(tmp_path: Path) -> None:
    models = [tiny_model(seed=seed) for seed in (0, 1)]
    engine = TorchEngine(tiny_model(seed=0), slots=32, context=CONTEXT, version=0)
    logged = Logged(engine)
    speech = LanguageServedPolicy(Voice(logged, ChatTemplate(tiny_tokenizer()), Sampling(), CONTEXT), version="r")
    recorder = open_recorder(f"sqlite:///{tmp_path}/loom.db")
    statuses: list[int] = []
    done = asyncio.Event()

    async def client(http: httpx.AsyncClient, number: int) -> None:
        body = {"model": "m", "messages": [{"role": "user", "content": str(number)}], "max_tokens": 100}
        while not done.is_set():
            answer = await http.post("/v1/chat/completions", json={**body, "stream": bool(number % 2)})
            assert number % 2 == 0 or answer.text.rstrip().endswith("data: [DONE]")
            statuses.append(answer.status_code)

    gateway = LocalGateway({"m": speech}, recorder)
    async with gateway, httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
        clients = [asyncio.create_task(client(http, number)) for number in range(CLIENTS)]
        for version in range(1, SWAPS + 1):
            steps = engine.statistics.steps + 10
            until = time.monotonic() + 60
            while engine.statistics.steps < steps and time.monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            await speech.load(seal(dict(models[version % 2].state_dict()), version))
        done.set()
        await asyncio.gather(*clients)

    assert set(statuses) == {200}
    mixed = 0
    for request, pieces in logged.log:
        ids, logps, versions = (
            np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("ids_T", "logprobs_T", "versions_T")
        )
        assert (np.diff(versions) >= 0).all()
        mixed += len(set(versions.tolist())) > 1
        both = [torch.log_softmax(logits(model, request, ids), -1).numpy() for model in models]
        right = np.array([both[version % 2][at, ids[at]] for at, version in enumerate(versions.tolist())])
        assert np.allclose(logps, right, atol=1e-3)
    assert mixed >= SWAPS
    assert {v for _, pieces in logged.log for piece in pieces for v in piece.versions_T.tolist()} == {*range(SWAPS + 1)}
