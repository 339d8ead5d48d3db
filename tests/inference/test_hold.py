"""Completions from weights in doubt are held, and weights that change in memory are noticed."""

import asyncio
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest
import torch
from sample_models import answers, logprobs, random_prompt, request, tiny_model

from loomrl.errors import PolicyError
from loomrl.inference.engine import CompletionPiece
from loomrl.inference.torch import engine as torch_engine
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.weights.sealed import seal

pytestmark = pytest.mark.usefixtures("one_thread")

ASKED = request(random_prompt(0, 9), seed=1)


def sealed(version: int, seed: int = 7) -> Any:
    return seal(tiny_model(seed=seed).state_dict(), version)


@pytest.fixture
def engine() -> TorchEngine:
    return TorchEngine(tiny_model(), slots=4, context=64)


async def held(engine: TorchEngine) -> asyncio.Task[Any]:
    """A request that was begun before version 1 arrived and has been sampled whole since."""
    task = asyncio.create_task(engine.generate(ASKED))
    await asyncio.sleep(0)
    await engine.take(sealed(1))
    for _ in range(300):
        await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_completions_are_held_until_the_weights_are_admitted(engine: TorchEngine) -> None:
    task = await held(engine)
    (probed,) = await engine.probe([ASKED])
    assert {*probed.versions_T} == {1}
    assert not task.done()
    await engine.admit(1)
    assert {*(await task).versions_T} == {1}
    assert {*(await engine.generate(ASKED)).versions_T} == {1}


async def test_rejected_weights_fail_what_was_open_and_all_that_follows_until_others_are_admitted(
    engine: TorchEngine,
) -> None:
    task = await held(engine)
    unfinished = asyncio.create_task(engine.generate(ASKED))
    await asyncio.sleep(0)
    await engine.reject("they are no good")
    for answer in (task, unfinished, engine.generate(ASKED)):
        with pytest.raises(PolicyError, match=r"no completion: .* rejected: they are no good"):
            await answer
    with pytest.raises(PolicyError, match="version 1 cannot be admitted: the engine has version 1, rejected"):
        await engine.admit(1)
    await engine.take(sealed(2))
    after = asyncio.create_task(engine.generate(ASKED))
    with pytest.raises(PolicyError, match="version 1 cannot be admitted: the engine has version 2"):
        await engine.admit(1)
    await engine.admit(2)
    assert {*(await after).versions_T} == {2}


async def test_decision_may_come_from_outside_of_the_loop_that_waits(engine: TorchEngine) -> None:
    task = await held(engine)
    await asyncio.get_running_loop().run_in_executor(None, asyncio.run, engine.admit(1))
    await asyncio.wait_for(task, 5)


async def test_cancelled_request_leaves_nothing_behind(engine: TorchEngine) -> None:
    task = await held(engine)
    task.cancel()
    await asyncio.wait([task])
    assert not engine._hold._open
    assert not engine._hold._waiting
    await engine.admit(1)


@pytest.mark.parametrize("kind", ["one bit", "swapped"])
def test_weights_that_change_in_memory_are_read_back_and_the_engine_refuses_work(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def damaging(model: torch.nn.Module, *rest: Any) -> None:
        load(model, *rest)
        own = model.state_dict()
        one, other = (own[f"model.layers.{i}.mlp.down_proj.weight"] for i in (0, 1))
        if kind == "one bit":
            one.view(torch.int32)[3, 4] ^= 1
        else:
            kept = one.clone()
            one.copy_(other)
            other.copy_(kept)

    load = torch_engine.load_weights
    engine = TorchEngine(tiny_model(), slots=4, context=64)
    monkeypatch.setattr(torch_engine, "load_weights", damaging)
    with pytest.raises(PolicyError, match=r"[12] of 21 tensors arrived and are not .*layers.0.mlp.down_proj.weight"):
        asyncio.run(engine.load(sealed(1)))
    with pytest.raises(PolicyError, match="Publish the version again"):
        asyncio.run(answers(engine, [ASKED]))
    monkeypatch.undo()
    asyncio.run(engine.load(sealed(1)))
    (got,) = asyncio.run(answers(engine, [ASKED]))
    assert abs(logprobs(tiny_model(seed=7), ASKED, got.ids_T) - got.logprobs_T).max() < 1e-4


def test_weights_of_another_precision_are_read_back_as_the_engine_keeps_them() -> None:
    engine = TorchEngine(tiny_model().to(torch.bfloat16), slots=4, context=64)
    asyncio.run(engine.load(sealed(1)))
    assert engine.version == 1


async def test_a_stream_is_held_like_a_completion_and_fails_with_rejected_weights(engine: TorchEngine) -> None:
    pieces: list[CompletionPiece] = []

    async def read() -> None:
        async with aclosing(engine.stream(ASKED)) as told:
            async for piece in told:
                pieces.append(piece)

    task = asyncio.create_task(read())
    while not pieces:  # noqa: ASYNC110 - pieces come in turns of this loop
        await asyncio.sleep(0)
    await engine.take(sealed(1))
    before = len(pieces)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(pieces) == before
    await engine.admit(1)
    await task
    versions_T = np.concatenate([piece.versions_T for piece in pieces])
    assert len(versions_T) == ASKED.sampling.max_tokens
    assert set(versions_T) == {0, 1}
    late = asyncio.create_task(read())
    await asyncio.sleep(0)
    await engine.reject("they are no good")
    for refused in (late, read()):
        with pytest.raises(PolicyError, match=r"rejected: they are no good"):
            await refused
