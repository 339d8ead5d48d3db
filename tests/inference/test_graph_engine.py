"""The engine whose step a GPU replays, one operation at a time on a CPU, against the engine that every run has."""

import asyncio
import copy
import os
import sys
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sample_models import (
    TOLERANCE,
    additions,
    answers,
    drift,
    drift_by_version,
    mixed,
    random_prompt,
    request,
    tiny_forms,
    tiny_model,
)
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from loomrl.config import TorchEngineConfig
from loomrl.errors import ConfigError
from loomrl.inference.engine import Completion, FinishReason, Request
from loomrl.inference.open import Opening, open_engine
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.torch.graph_engine import GraphEngine
from loomrl.inference.torch.graphs import (
    POSITION,
    GraphNetwork,
    StaticStep,
    device_uniforms,
    open_graph_network,
    read_gathered,
    read_in_place,
)
from loomrl.inference.torch.rows import mix, uniforms
from loomrl.inference.weights.sealed import identify, seal
from loomrl.types import Form, Odds

pytestmark = pytest.mark.usefixtures("one_thread")

NEVER = (
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "_unique2",
    "lift_fresh",
    "pin_memory",
    "_pin_memory",
)
"""Operations for which a device waits for its host, or a size depends on numbers: no graph can hold them."""


async def come_and_go(engine: TorchEngine, asked: Iterable[Request]) -> list[Completion]:
    """Requests that arrive between steps, a few at a time."""
    tasks = []
    for index, one in enumerate(asked):
        tasks.append(asyncio.create_task(engine.generate(one)))
        for _ in range(index % 3):
            await asyncio.sleep(0)
    return list(await asyncio.gather(*tasks))


def all_kinds(seed: int, count: int) -> list[Request]:
    """Random requests: lengths, temperatures, top-p, stops; now and then prompts that others have too."""
    rng = np.random.default_rng(seed)
    asked = []
    for number in range(count):
        prompt = random_prompt(int(rng.integers(count // 2)), int(rng.integers(1, 30)))
        asked.append(
            request(
                prompt,
                seed=int(rng.integers(2**63)),
                stop=rng.integers(0, 300, 8).tolist() if number % 2 else (),
                temperature=float(rng.choice([0.0, 0.7, 1.0, 1.4])),
                top_p=float(rng.choice([1.0, 0.8])),
                max_tokens=int(rng.integers(1, 40)),
            )
        )
    return asked


def same(plain: list[Completion], found: list[Completion]) -> None:
    for one, other in zip(plain, found, strict=True):
        assert one.ids_T.tolist() == other.ids_T.tolist()
        assert one.finish == other.finish
        assert np.abs(one.logprobs_T - other.logprobs_T).max() < 1e-5


@pytest.mark.parametrize(("kind", "slots"), [("llama", 5), ("qwen2", 24), ("qwen3", 1)])
def test_tokens_are_those_of_the_plain_engine(kind: str, slots: int) -> None:
    asked = all_kinds(slots, min(24, 8 * slots))
    plain, found = (
        asyncio.run(come_and_go(kind_of(tiny_model(kind, scale=0.2), slots=slots, context=64), asked))
        for kind_of in (TorchEngine, GraphEngine)
    )
    same(plain, found)
    assert FinishReason.STOP in {one.finish for one in found} or slots == 1
    assert FinishReason.LENGTH in {one.finish for one in found}


def test_what_a_graph_cannot_hold_is_answered_one_operation_at_a_time() -> None:
    model = tiny_model(scale=0.2)
    form = Form("regex", "[a-f]{4,9}")
    asked = all_kinds(3, 18)
    asked[4] = replace(asked[4], form=form, stop=frozenset({0}))
    asked[9] = replace(asked[9], odds=Odds(top_k=3))
    asked[13] = replace(asked[13], sampling=asked[13].sampling.model_copy(update={"entropies": True}))
    forms = [tiny_forms(), tiny_forms()]
    plain, found = (
        asyncio.run(come_and_go(kind_of(model, slots=6, context=64, forms=mine), asked))
        for kind_of, mine in zip((TorchEngine, GraphEngine), forms, strict=True)
    )
    for each in forms:
        each.close()
    same(plain, found)
    for number in (4, 9):
        assert np.allclose(plain[number].shifts_T, found[number].shifts_T, atol=1e-4)
    assert np.allclose(plain[13].entropies_T, found[13].entropies_T, atol=1e-4)


async def test_a_stream_and_its_likeliest_tokens_are_those_of_the_answer() -> None:
    engine = GraphEngine(tiny_model(), slots=3, context=64)
    beside = asyncio.create_task(engine.generate(request([1, 2], max_tokens=30)))
    for top in (0, 2):
        asked = replace(request([5, 6], seed=4), top=top)
        async with aclosing(engine.stream(asked)) as pieces:
            got = [piece async for piece in pieces]
        ids = np.concatenate([piece.ids_T for piece in got]).tolist()
        assert ids == (await engine.generate(request([5, 6], seed=4))).ids_T.tolist()
        assert len(ids) == 16
        assert all(piece.top is not None for piece in got if len(piece.ids_T)) == bool(top)
    await beside


async def test_new_weights_take_over_while_a_step_is_under_way() -> None:
    models = [tiny_model(seed=seed) for seed in range(3)]
    engine = GraphEngine(copy.deepcopy(models[0]), slots=4, context=64)
    asked = [request(random_prompt(seed // 2, 3 + seed // 2), seed=seed, max_tokens=24) for seed in range(6)]
    tasks = [asyncio.create_task(engine.generate(one)) for one in asked]
    for version in (1, 2):
        while engine.statistics.sampled_tokens < 30 * version:  # noqa: ASYNC110 - a step is a turn of this loop
            await asyncio.sleep(0)
        assert engine._flight is not None
        await engine.load(seal(models[version].state_dict(), version))
    got = await asyncio.gather(*tasks)
    assert drift_by_version(models, asked, got) <= TOLERANCE
    assert {int(v) for one in got for v in one.versions_T} == {0, 1, 2}


async def test_cancelled_requests_leave_the_others_as_they_were() -> None:
    model = tiny_model("qwen3")
    engine = GraphEngine(model, slots=6, context=64)
    asked = [request(random_prompt(seed, 2 + seed), seed=seed, max_tokens=5 + 3 * seed) for seed in range(10)]
    tasks = []
    for index, one in enumerate(asked):
        tasks.append(asyncio.create_task(engine.generate(one)))
        await asyncio.sleep(0)
        if index % 4 == 3:
            tasks[index - 2].cancel()
    got = await asyncio.gather(*tasks, return_exceptions=True)
    kept = [(a, c) for a, c in zip(asked, got, strict=True) if isinstance(c, Completion)]
    assert len(kept) == 8
    assert drift(model, *zip(*kept, strict=True)) <= TOLERANCE  # type: ignore[arg-type]


async def test_adapters_are_those_of_their_rows_whether_all_have_one_or_each_its_own() -> None:
    model = tiny_model(scale=0.2)
    base = identify(model.state_dict().items())
    found = []
    for kind_of in (TorchEngine, GraphEngine):
        engine = kind_of(copy.deepcopy(model), slots=6, context=64)
        mine = await answers(engine, mixed(4))
        for version in (1, 2):
            await engine.load(seal(additions(model, version), version, base=base))
            mine += await answers(engine, mixed(4))
        await engine.add_adapter("other", seal(additions(model, 7), 3, base=base))
        asked = [replace(one, adapter="other" if number % 2 else "") for number, one in enumerate(mixed(6))]
        found.append(mine + await come_and_go(engine, asked))
    same(*found)


def test_no_step_is_begun_for_answers_that_are_as_long_as_they_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = GraphEngine(tiny_model(), slots=4, context=64)
    begun: list[int] = []
    plain = StaticStep.run

    def run(self: StaticStep, count: int, **rest: Any) -> Any:
        begun.append(count)
        return plain(self, count, **rest)

    monkeypatch.setattr(StaticStep, "run", run)
    asyncio.run(answers(engine, [request([n], max_tokens=7) for n in range(3)]))
    assert begun == [3] * 7
    assert engine.statistics.steps == 7


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**40)), min_size=1, max_size=9))
def test_uniform_numbers_are_to_the_bit_those_of_the_host(streams: list[tuple[int, int]]) -> None:
    seed_N, index_N = (np.array(column, np.uint64) for column in zip(*streams, strict=True))
    keys_N = torch.from_numpy(mix(seed_N).view(np.int64))
    found_N = device_uniforms(keys_N, torch.from_numpy(index_N.view(np.int64)))
    assert found_N.numpy().tobytes() == uniforms(seed_N, index_N).tobytes()


def inputs(step: StaticStep, network: Any, count: int) -> np.ndarray:
    """Rows whose prompts have been read, and the fields of their first step."""
    prompts = [random_prompt(row, 3 + 2 * row) for row in range(count)]
    network.fill([prompt[:-1] for prompt in prompts], range(count), range(count))
    position_N = np.array([len(prompt) - 1 for prompt in prompts])
    ids_N = np.array([prompt[-1] for prompt in prompts])
    keys_N = mix(np.arange(count, dtype=np.uint64)).view(np.int64)
    heat_N = np.ones(count).view(np.int64)
    return np.stack([ids_N, network.slots(count), keys_N, position_N, 0 * ids_N, heat_N, heat_N])


@torch.inference_mode()
def test_padding_never_changes_a_result() -> None:
    found = []
    for spoil, slots in ((False, 5), (True, 24), (True, 8)):
        network = open_graph_network(tiny_model(), slots=slots, context=64)
        step = StaticStep(network)
        x_FN = inputs(step, network, 5)
        if spoil:
            for layer in network.kept.layers:
                for x_SHCD in layer:
                    x_SHCD[network.padding] = torch.nan
        step.set(x_FN, np.full(5, -1))
        found.append(np.stack([step.run(5, nucleus=False).read() for _ in range(60 - 12)]))
        assert step.bucket(5) == min(slots, 8)
        assert not step._x_FS[POSITION, 5 : step.bucket(5)].any()
    assert np.isfinite(found[0]).all()
    for other in found[1:]:
        assert other[:, 0].tolist() == found[0][:, 0].tolist()
        assert np.abs(other - found[0]).max() < 1e-5


class Watched(TorchDispatchMode):
    """Every operation, with the shapes of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[torch.Size]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append((func.__name__, [x.shape for x in args if isinstance(x, Tensor)]))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("nucleus", [False, True])
@torch.inference_mode()
def test_a_step_asks_its_host_for_nothing_and_is_always_the_same(nucleus: bool) -> None:
    network = open_graph_network(tiny_model(), slots=8, context=64)
    step = StaticStep(network)
    step.set(inputs(step, network, 5), np.full(5, -1))
    steps = []
    for _ in range(2):
        with Watched() as watched:
            step._compute(8, nucleus)
        steps.append(watched.seen)
    assert steps[0] == steps[1]
    names = {name.partition(".")[0] for name, _ in steps[0]}
    assert "cumsum" in names
    assert not names.intersection(NEVER)


@pytest.mark.parametrize("nucleus", [False, True])
def test_a_step_on_a_device_reads_no_number_from_it_and_none_from_its_host(nucleus: bool) -> None:
    """A device without numbers takes the place of a GPU: what it cannot do there fails here."""
    with torch.device("meta"):
        model = tiny_model("qwen3").bfloat16()
    network = GraphNetwork(model, slots=8, context=64)
    network._read_cache = read_in_place
    step = StaticStep(network)
    with torch.inference_mode(), Watched() as watched:
        step._compute(8, nucleus)
    assert [name for name, _ in watched.seen].count("_flash_attention_forward.default") == 2


def test_the_gpus_attention_is_asked_for_what_the_copies_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel by its description: query i reads `used[i]` keys and values from `start[i]` on."""

    def attend(
        q_NAD: Tensor, k_KHD: Tensor, v_KHD: Tensor, query_N1: Tensor, start_N1: Tensor, *rest: Any, **named: Any
    ) -> tuple[Tensor]:
        assert rest == (1, 64, 0.0, False, False)
        assert query_N1.tolist() == list(range(len(q_NAD) + 1))
        found = []
        for q_AD, start, used in zip(q_NAD, start_N1, named["seqused_k"], strict=False):
            span = slice(int(start), int(start + used))
            k_HTD, v_HTD = (x_KHD[span].transpose(0, 1) for x_KHD in (k_KHD, v_KHD))
            found.append(
                torch.nn.functional.scaled_dot_product_attention(
                    q_AD[:, None], k_HTD, v_HTD, scale=named["scale"], enable_gqa=True
                )
            )
        return (torch.stack(found)[:, :, 0],)

    network = open_graph_network(tiny_model("qwen3"), slots=8, context=64)
    step = StaticStep(network)
    network.move(6, 2, 0)
    x_FN = inputs(step, network, 5)
    found = []
    for reading in (read_gathered, read_in_place):
        monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", attend)
        network._read_cache = reading
        with torch.inference_mode():
            step.set(x_FN, np.full(5, -1))
            found.append(np.stack([step.run(5, nucleus=False).read() for _ in range(20)]))
    assert np.abs(found[0] - found[1]).max() < 1e-5


async def test_graphs_are_dropped_when_what_they_read_is_elsewhere() -> None:
    model = tiny_model()
    engine = GraphEngine(model, slots=4, context=64)
    graphs = engine._static._graphs
    held: Any = object()
    graphs[4, False] = held
    engine.release()
    assert not engine._static._graphs
    engine._static._graphs[4, False] = held
    await answers(engine, mixed(2))
    assert engine._static._graphs
    await engine.load(seal(additions(model, 1), 1, base=identify(model.state_dict().items())))
    await answers(engine, mixed(2))
    assert not engine._static._graphs


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells of Linux")
@pytest.mark.parametrize("kind_of", [TorchEngine, GraphEngine])
async def test_an_idle_engine_gives_its_cache_back_and_takes_it_again(kind_of: type[TorchEngine]) -> None:
    engine = kind_of(tiny_model(head_dim=64, positions=2048), slots=2, context=2048)
    long = [request(random_prompt(seed, 1000), seed=seed, max_tokens=3) for seed in range(2)]
    first = await answers(engine, long)
    task = asyncio.create_task(engine.generate(long[0]))
    await asyncio.sleep(0)
    engine.release()
    assert (await task).ids_T.tolist() == first[0].ids_T.tolist()
    held = resident()
    engine.release()
    cache = 2 * 2 * 2 * 4 * 1000 * 64 * 4  # layers, keys and values, rows, heads, tokens, width, bytes
    assert held - resident() > cache / 2
    same(first, await answers(engine, long))


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_buckets_are_few_and_never_larger_than_the_slots() -> None:
    step = StaticStep(open_graph_network(tiny_model(), slots=40, context=8))
    assert [step.bucket(n) for n in (1, 2, 3, 5, 8, 9, 16, 17, 33, 40)] == [1, 2, 4, 8, 8, 16, 16, 32, 40, 40]


def test_a_model_or_a_device_that_has_no_graphs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine.graphs=true: GPT2LMHeadModel .* LlamaForCausalLM"):
        GraphEngine(tiny_model("gpt2"), slots=2, context=64)
    with pytest.raises(ConfigError, match=r"engine.graphs=true: a CPU has no graphs"):
        open_engine(TorchEngineConfig(graphs=True), Opening(origin=tmp_path, context=64, slots=2))
