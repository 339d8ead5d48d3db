"""The embedded engine against plain forward passes of the same weights."""

import asyncio
import copy
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sample_models import (
    KINDS,
    TOLERANCE,
    answers,
    drift,
    drift_by_version,
    logits,
    mixed,
    random_prompt,
    request,
    tiny_model,
)
from transformers import GPT2LMHeadModel

from loomrl.errors import ConfigError, PolicyError
from loomrl.inference.engine import Completion
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.torch.fused import open_network
from loomrl.inference.torch.graph_engine import GraphEngine
from loomrl.inference.torch.network import KeyValues
from loomrl.inference.torch.rows import draw, uniforms
from loomrl.inference.weights.sealed import seal

pytestmark = pytest.mark.usefixtures("one_thread")


async def until_sampled(engine: TorchEngine, tokens: int) -> None:
    """Return between two steps, as soon as that much has been sampled."""
    while engine.statistics.sampled_tokens < tokens:  # noqa: ASYNC110 - a step is a turn of this loop
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", KINDS)
def test_reported_logprobs_are_those_of_a_plain_forward_pass(kind: str) -> None:
    model = tiny_model(kind)
    engine = TorchEngine(model, slots=8, context=64)
    asked = mixed(12)
    got = asyncio.run(answers(engine, asked))
    assert all(len(completion.ids_T) == 16 for completion in got)
    assert drift(model, asked, got) <= TOLERANCE


def test_entropies_are_those_of_a_plain_forward_pass_for_whoever_asks() -> None:
    model = tiny_model("llama", scale=0.5)
    engine = TorchEngine(model, slots=8, context=64)
    asked = [
        request(random_prompt(seed, 3 + seed), seed=seed, temperature=(0.0, 0.7)[seed % 2], entropies=seed % 3 > 0)
        for seed in range(12)
    ]
    for one, got in zip(asked, asyncio.run(answers(engine, asked)), strict=True):
        if not one.sampling.entropies:
            assert got.entropies_T is None
            continue
        plain = torch.distributions.Categorical(
            logits=logits(model, one, got.ids_T) / (one.sampling.temperature or 1.0)
        ).entropy()
        assert got.entropies_T is not None
        assert np.abs(got.entropies_T - plain.numpy()).max() <= TOLERANCE
        assert np.ptp(got.entropies_T) > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens_are_those_of_generate(kind: str) -> None:
    model = tiny_model(kind)
    prompts = [random_prompt(seed, 3 + 5 * seed) for seed in range(5)]
    got = asyncio.run(answers(TorchEngine(model), [request(p, temperature=0, max_tokens=12) for p in prompts]))
    for prompt, completion in zip(prompts, got, strict=True):
        ids = torch.tensor(prompt, dtype=torch.long)[None]
        mask = torch.ones_like(ids)
        whole = model.generate(
            ids, attention_mask=mask, max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        assert completion.ids_T.tolist() == whole[0, len(prompt) :].tolist()


async def test_requests_that_come_and_go_leave_the_others_as_they_were() -> None:
    model = tiny_model("qwen3")
    engine = TorchEngine(model, slots=6, context=64)
    asked = [request(random_prompt(seed, 2 + seed), seed=seed, max_tokens=5 + 3 * seed) for seed in range(12)]
    tasks = []
    for index, one in enumerate(asked):
        tasks.append(asyncio.create_task(engine.generate(one)))
        for _ in range(1 + index % 3):
            await asyncio.sleep(0)
        if index % 4 == 3:
            tasks[index - 2].cancel()
    got = await asyncio.gather(*tasks, return_exceptions=True)
    kept = [(a, c) for a, c in zip(asked, got, strict=True) if isinstance(c, Completion)]
    assert len(kept) >= 9
    assert drift(model, *zip(*kept, strict=True)) <= TOLERANCE  # type: ignore[arg-type]
    for one, completion in kept:
        alone = await TorchEngine(model, slots=1, context=64).generate(one)
        assert alone.ids_T.tolist() == completion.ids_T.tolist()


@pytest.mark.parametrize("kind", KINDS)
async def test_new_weights_take_over_in_the_middle_of_a_request(kind: str) -> None:
    models = [tiny_model(kind, seed=seed) for seed in range(3)]
    engine = TorchEngine(copy.deepcopy(models[0]), slots=4, context=64)
    asked = [request(random_prompt(seed // 2, 3 + seed // 2), seed=seed, max_tokens=24) for seed in range(6)]
    tasks = [asyncio.create_task(engine.generate(one)) for one in asked]
    for version in (1, 2):
        await until_sampled(engine, 30 * version)
        await engine.load(seal(models[version].state_dict(), version))
    assert engine.version == 2
    got = await asyncio.gather(*tasks)
    assert drift_by_version(models, asked, got) <= TOLERANCE
    assert {int(v) for one in got for v in one.versions_T} == {0, 1, 2}


@pytest.mark.parametrize(
    ("kind", "opened_with_them"), [(TorchEngine, True), (TorchEngine, False), (GraphEngine, False)]
)
async def test_logits_that_are_not_finite_are_an_error_and_spoil_nobody(
    kind: type[TorchEngine], opened_with_them: bool
) -> None:
    model, broken = tiny_model(), tiny_model()
    huge = {name: x * (3e38 if "v_proj" in name else 1) for name, x in model.state_dict().items()}
    if opened_with_them:
        broken.load_state_dict(huge)
    engine = kind(broken, slots=6, context=64, version=1)
    if not opened_with_them:
        await engine.load(seal(huge, 1))
        got = await asyncio.gather(*(engine.generate(request([n] * 9)) for n in range(6)), return_exceptions=True)
        assert all(isinstance(one, PolicyError) and "version 1" in str(one) for one in got)
    await engine.load(seal(model.state_dict(), 2))
    asked = [request(random_prompt(n, 1 + 4 * n), seed=n) for n in range(6)]
    assert drift(model, asked, await answers(engine, asked)) <= TOLERANCE


def test_an_error_in_a_step_fails_what_is_open_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = TorchEngine(tiny_model(), slots=2)

    def exhausted(*args: object) -> None:
        raise torch.OutOfMemoryError("tried to allocate too much")

    async def play() -> None:
        with monkeypatch.context() as patch:
            patch.setattr("loomrl.inference.torch.engine.draw", exhausted)
            got = await asyncio.gather(*(engine.generate(request([n])) for n in range(4)), return_exceptions=True)
        assert all(isinstance(one, PolicyError) and "OutOfMemoryError: tried" in str(one) for one in got)
        assert len((await engine.generate(request([1]))).ids_T) == 16

    asyncio.run(play())


def test_an_engine_outlives_event_loops_and_what_they_left_behind() -> None:
    model = tiny_model()
    engine = TorchEngine(model, slots=2, context=64)
    left: list[asyncio.Future[Completion]] = []

    async def leave_some() -> None:
        for n in range(4):
            left.append(asyncio.ensure_future(engine.generate(request([n], max_tokens=60))))
        await until_sampled(engine, 4)

    asyncio.run(leave_some())
    asked = [request([n], seed=n) for n in range(4)]
    for _ in range(2):
        assert drift(model, asked, asyncio.run(answers(engine, asked))) <= TOLERANCE
    stopped = asyncio.new_event_loop()
    orphan = stopped.create_task(engine.generate(request([1], max_tokens=60)))
    stopped.run_until_complete(asyncio.sleep(0))
    assert drift(model, asked, asyncio.run(answers(engine, asked))) <= TOLERANCE
    with pytest.raises(PolicyError, match="event loop"):
        stopped.run_until_complete(orphan)
    stopped.close()


async def test_close_fails_what_is_open_and_what_comes_later() -> None:
    engine = TorchEngine(tiny_model(), slots=1)
    tasks = [asyncio.create_task(engine.generate(request([n]))) for n in range(3)]
    await asyncio.sleep(0)
    await engine.close()
    for one in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(one, PolicyError)
        assert "closed" in str(one)
    with pytest.raises(PolicyError, match="closed"):
        await engine.generate(request([1]))


async def test_no_request_hangs_when_every_other_task_is_cancelled() -> None:
    engine = TorchEngine(tiny_model(), slots=1)
    mine = asyncio.current_task()

    async def cancel_the_rest() -> None:
        for task in asyncio.all_tasks() - {mine, asyncio.current_task()}:
            task.cancel()

    killer = asyncio.create_task(cancel_the_rest())
    with pytest.raises(PolicyError, match="cancelled"):
        async with asyncio.timeout(5):
            await engine.generate(request([1], max_tokens=60))
    await killer
    assert len((await engine.generate(request([1]))).ids_T) == 16


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt2"])
def test_a_model_in_bfloat16_is_sampled_in_bfloat16(kind: str) -> None:
    model = tiny_model(kind, scale=0.1).bfloat16()
    asked = [request(random_prompt(seed, 3 + seed), seed=seed) for seed in range(6)]
    assert drift(model, asked, asyncio.run(answers(TorchEngine(model), asked))) <= 0.05


def test_siblings_that_arrive_together_are_read_once() -> None:
    model = tiny_model("gpt2")
    engine = TorchEngine(model, slots=16)
    read: list[torch.Size] = []
    model.transformer.wte.register_forward_pre_hook(lambda module, args: read.append(args[0].shape))
    prompts = [random_prompt(index // 4, 9) for index in range(8)]
    asyncio.run(answers(engine, [request(p, seed=seed, max_tokens=3) for seed, p in enumerate(prompts)]))
    assert read == [(2, 8), (8, 1), (8, 1), (8, 1)]


async def test_a_sibling_that_comes_later_is_not_read_again_while_one_is_open() -> None:
    model = tiny_model("gpt2")
    own = copy.deepcopy(model)
    engine = TorchEngine(own, slots=4, context=64)
    asked = [request(random_prompt(0, 9), seed=seed, max_tokens=20) for seed in range(3)]
    tasks = [asyncio.create_task(engine.generate(asked[0]))]
    await until_sampled(engine, 4)
    read: list[int] = []
    own.transformer.wte.register_forward_pre_hook(lambda _, args: read.append(args[0].shape[1]))
    tasks += [asyncio.create_task(engine.generate(one)) for one in asked[1:]]
    assert drift(model, asked, await asyncio.gather(*tasks)) <= TOLERANCE
    assert set(read) == {1}


class Forgetful(GPT2LMHeadModel):
    """Does not listen when it is told where tokens stand."""

    def forward(self, *args: Any, position_ids: torch.Tensor | None = None, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs)


async def test_streams_that_arrive_shortly_one_after_another_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomrl.inference.torch.engine.GAP_S", 0.3)
    monkeypatch.setattr("loomrl.inference.torch.engine.GATHER_S", 30.0)
    engine = TorchEngine(tiny_model("llama"), slots=8, context=64)

    async def late(number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(0.001)
        asked = request(random_prompt(number, 9), seed=number, max_tokens=1)
        assert [len(piece.ids_T) async for piece in engine.stream(asked)] == [1]

    await asyncio.gather(*map(late, range(6)))
    assert engine.statistics.steps == 1


@pytest.mark.parametrize(("pause_s", "lengths"), [(0.0, [1] * 12), (60.0, [1, 11])])
async def test_tokens_gather_for_a_while_before_they_leave(
    monkeypatch: pytest.MonkeyPatch, pause_s: float, lengths: list[int]
) -> None:
    monkeypatch.setattr("loomrl.inference.torch.engine.PAUSE_S", (pause_s, pause_s))
    engine = TorchEngine(tiny_model("llama"), slots=8, context=64)
    asked = request(random_prompt(1, 9), seed=1, max_tokens=12)
    assert [len(piece.ids_T) async for piece in engine.stream(asked)] == lengths


def test_a_model_whose_cached_steps_are_not_its_forward_pass_is_refused() -> None:
    with pytest.raises(ConfigError, match="Forgetful: with cached keys and values its logits are off by"):
        TorchEngine(Forgetful(tiny_model("gpt2").config).eval(), context=64)


def test_follow_up_requests_join_the_next_step() -> None:
    engine = TorchEngine(tiny_model(), slots=8)

    async def talk(turns: int) -> None:
        for turn in range(turns):
            await engine.generate(request([turns, turn], seed=turns, max_tokens=20 // turns))

    async def all_talk() -> None:
        await asyncio.gather(*(talk(turns) for turns in (1, 2, 4, 5, 10, 20)))

    asyncio.run(all_talk())
    assert engine.statistics.steps == 20
    assert engine.statistics.sampled_tokens == 6 * 20
    assert engine.statistics.prompt_tokens == (1 + 2 + 4 + 5 + 10 + 20) * 2
    assert engine.statistics.busy_s > 0


def test_a_context_beyond_the_models_own_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"context=257.*256"):
        TorchEngine(tiny_model("gpt2"), context=257)


def test_a_model_that_keeps_more_than_keys_and_values_is_refused() -> None:
    with pytest.raises(ConfigError, match="full attention"):
        TorchEngine(tiny_model("mistral"), context=64)
    assert TorchEngine(tiny_model("mistral"), context=16).version == 0


LOGITS = torch.tensor([[0.0, 2.0, -torch.inf, 1.0, -3.0]])


def shares(temperature: float, top_p: float | None = None, count: int = 4000) -> np.ndarray:
    """Frequency of each token if the uniform numbers are spread evenly."""
    uniform_N = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    p = None if top_p is None else torch.full((count,), top_p, dtype=torch.float64)
    temperatures = torch.full((count,), temperature, dtype=torch.float64)
    token_N, logp_N, _, _ = draw(LOGITS.expand(count, -1), temperatures, p, uniform_N)
    expected = torch.log_softmax(LOGITS[0] / (temperature or 1.0), -1)[token_N]
    assert torch.allclose(logp_N, expected, atol=1e-6)
    return np.bincount(token_N, minlength=5) / count


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_tokens_are_drawn_as_often_as_they_are_likely(temperature: float) -> None:
    assert np.abs(shares(temperature) - (LOGITS[0] / temperature).softmax(-1).numpy()).max() < 1e-3


def test_temperature_zero_takes_the_likeliest() -> None:
    assert shares(0.0).tolist() == [0, 1, 0, 0, 0]


@pytest.mark.parametrize(("top_p", "kept"), [(1e-9, [1]), (0.6, [1]), (0.7, [1, 3]), (0.95, [1, 3, 0])])
def test_the_nucleus_is_the_fewest_likeliest_tokens_that_hold_top_p(top_p: float, kept: list[int]) -> None:
    expected = torch.zeros(5).index_copy(0, torch.tensor(kept), LOGITS[0].softmax(-1)[kept])
    assert np.abs(shares(1.0, top_p) - (expected / expected.sum()).numpy()).max() < 1e-3


def test_top_p_of_one_restricts_nothing() -> None:
    assert shares(1.0, 1.0).tolist() == shares(1.0).tolist()


def test_the_extremes_of_a_stream_never_draw_what_is_impossible() -> None:
    edges = torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)
    impossible_ends = torch.tensor([[-torch.inf, 1.0, 0.0, -torch.inf]] * 2)
    token_N, _, _, _ = draw(impossible_ends, torch.ones(2, dtype=torch.float64), None, edges)
    assert token_N.tolist() == [1, 2]


def test_logits_that_are_not_finite_have_no_finite_logprob() -> None:
    ones = torch.ones(3, dtype=torch.float64)
    bad = torch.tensor([[0.0, torch.nan], [torch.inf, 0.0], [-torch.inf, -torch.inf]])
    for temperature in (ones, ones * 0):
        _, logp_N, _, _ = draw(bad, temperature, None, ones * 0.5)
        assert not torch.isfinite(logp_N).any()


def test_streams_are_uniform_independent_and_can_be_entered_anywhere() -> None:
    seed_N, index_N = np.repeat(np.arange(200, dtype=np.uint64), 100), np.tile(np.arange(100, dtype=np.uint64), 200)
    drawn = uniforms(seed_N, index_N).reshape(200, 100)
    assert 0 <= drawn.min() < drawn.max() < 1
    assert np.abs(np.histogram(drawn, bins=10, range=(0, 1))[0] / 20_000 - 0.1).max() < 0.01
    assert np.abs(np.corrcoef(drawn) - np.eye(200)).max() < 0.5
    assert abs(np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1]) < 0.03
    assert uniforms(seed_N[150:151], index_N[7:8])[0] == drawn[1, 7]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells of Linux")
def test_the_cache_takes_memory_as_it_is_used_and_not_for_all_that_could_be_asked() -> None:
    kept = KeyValues(tiny_model("llama"), slots=4096, context=64)
    whole = sum(x_SHCD.nbytes for pair in kept.layers for x_SHCD in pair)
    before = resident()
    for key_SHCD, value_SHCD in kept.layers:
        assert not key_SHCD[4000].any()
        key_SHCD[:8] = 1
        value_SHCD[:8] = 1
    assert whole > 2**25
    assert resident() - before < whole / 4


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells of Linux")
def test_an_engine_that_nobody_asked_yet_has_no_cache_in_memory() -> None:
    model = tiny_model("llama")
    model.config.max_position_embeddings = 2**17
    before = resident()
    network = open_network(model, slots=2, context=2**17)
    whole = sum(x_SHCD.nbytes for pair in network.kept.layers for x_SHCD in pair)
    assert whole > 2**26
    assert resident() - before < whole / 4
