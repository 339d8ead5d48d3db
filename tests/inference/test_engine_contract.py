"""The contract of every engine, against plain forward passes of the same weights."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import torch
from sample_models import (
    TOLERANCE,
    answers,
    drift,
    drift_by_version,
    logits,
    mixed,
    random_prompt,
    request,
    tiny_forms,
    tiny_model,
    tiny_tokenizer,
)
from transformers import PreTrainedModel, XGLMConfig, XGLMForCausalLM

from loomrl.config.engine import VllmEngineConfig
from loomrl.errors import ConfigError, PolicyError
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.engine import Completion, CompletionPiece, FinishReason, Request, Unsupported
from loomrl.inference.model import save_model
from loomrl.inference.open import Opening
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.vllm.engine import StagedWeights, VllmEngine
from loomrl.inference.vllm.start import start
from loomrl.inference.weights.sealed import seal, stage
from loomrl.types import Form
from tests.needs import need, needs

VLLM_WARNS = ("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning", "ignore::ResourceWarning")
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("one_thread_in_module"),
    *(pytest.mark.filterwarnings(name) for name in VLLM_WARNS),
]

CONTEXT = 192
SLOTS = 12
LONG = 150
"""Tokens of a prompt of which vLLM keeps a block."""

Engine = TorchEngine | VllmEngine


def model(seed: int = 0) -> PreTrainedModel:
    """With heads as wide as vLLM's kernels for CPUs want them."""
    return tiny_model(seed=seed, head_dim=32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_model(model(), tiny_tokenizer(), path)
    return path


def vllm_opening(folder: Path) -> Opening:
    return Opening(origin=folder, context=CONTEXT, slots=SLOTS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running_vllm(folder: Path) -> AsyncIterator[VllmEngine]:
    """Started once, for it takes half a minute."""
    need("vLLM")
    opened = await VllmEngine.open(VllmEngineConfig(), vllm_opening(folder), log=folder / "log")
    yield opened
    await opened.close()
    with pytest.raises(PolicyError, match="closed"):
        await opened.generate(request([1]))


@pytest_asyncio.fixture(loop_scope="module")
async def vllm(running_vllm: VllmEngine) -> VllmEngine:
    await running_vllm.load(seal(model().state_dict(), running_vllm.version + 1))
    return running_vllm


@pytest.fixture(params=["torch", pytest.param("vllm", marks=[pytest.mark.system, pytest.mark.slow])])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """With the weights of `model()`."""
    if request.param == "vllm":
        opened: VllmEngine = request.getfixturevalue("vllm")
        yield opened
        return
    forms = tiny_forms()
    yield TorchEngine(model(), slots=SLOTS, context=CONTEXT, forms=forms)
    forms.close()


async def until_sampled(engine: Engine, tokens: int) -> None:
    """Requests that have to sample as many have sampled some."""
    if isinstance(engine, VllmEngine):
        await engine.generate(request([5, 6], max_tokens=tokens))
        return
    goal = engine.statistics.sampled_tokens + 6 * tokens
    while engine.statistics.sampled_tokens < goal:  # noqa: ASYNC110 - a step is a turn of this loop
        await asyncio.sleep(0)


async def test_reported_logprobs_are_those_of_a_plain_forward_pass(engine: Engine) -> None:
    asked = mixed(16)
    got = await answers(engine, asked)
    assert all(len(completion.ids_T) == 16 for completion in got)
    assert drift(model(), asked, got) <= TOLERANCE


async def test_greedy_tokens_are_the_likeliest(engine: Engine) -> None:
    asked = [request(random_prompt(seed, 3 + 5 * seed), temperature=0, max_tokens=12) for seed in range(5)]
    got = await answers(engine, asked)
    for one, completion in zip(asked, got, strict=True):
        assert completion.ids_T.tolist() == logits(model(), one, completion.ids_T).argmax(-1).tolist()
    assert drift(model(), asked, got) <= TOLERANCE


async def test_top_p_draws_from_the_nucleus_and_reports_the_whole_distribution(engine: Engine) -> None:
    asked = [request(random_prompt(seed, 6), seed=seed, top_p=0.4, temperature=0.9) for seed in range(8)]
    asked += [request(random_prompt(9, 6), temperature=0.9), request(random_prompt(9, 6), temperature=0, top_p=0.2)]
    got = await answers(engine, asked)
    assert drift(model(), asked, got) <= TOLERANCE
    for one, completion in zip(asked[:8], got, strict=False):
        p_TV = logits(model(), one, completion.ids_T).div(0.9).softmax(-1)
        for p_V, drawn in zip(p_TV, completion.ids_T, strict=True):
            assert float(p_V[p_V > p_V[drawn]].sum()) < 0.4 + 1e-4


async def test_the_same_request_is_answered_alike_and_another_seed_otherwise(engine: Engine) -> None:
    one, other = request(random_prompt(1, 9), seed=2**62 + 5), request(random_prompt(1, 9), seed=6)
    crowd = [request(random_prompt(seed, seed), seed=seed) for seed in range(2, 20)]
    first, second, *_ = await answers(engine, [one, other, *crowd])
    (alone,) = await answers(engine, [one])
    assert first.ids_T.tolist() == alone.ids_T.tolist() != second.ids_T.tolist()
    assert alone.versions_T.tolist() == [engine.version] * 16


async def test_a_prompt_that_is_known_is_answered_like_one_that_is_not(engine: Engine) -> None:
    prompt = random_prompt(3, LONG)
    asked = [request(prompt, seed=seed, max_tokens=12) for seed in range(4)]
    first = await answers(engine, asked)
    again = await answers(engine, [*asked, request(prompt[: LONG - 3], seed=9)])
    assert [one.ids_T.tolist() for one in first] == [one.ids_T.tolist() for one in again[:4]]
    assert drift(model(), [*asked, request(prompt[: LONG - 3])], again) <= TOLERANCE


async def test_a_completion_ends_with_its_stop_token_or_at_its_length(engine: Engine) -> None:
    (free,) = await answers(engine, [request([7, 8], max_tokens=10)])
    assert (free.finish, len(free.ids_T)) == (FinishReason.LENGTH, 10)
    stop = int(free.ids_T[4])
    expected = free.ids_T[: free.ids_T.tolist().index(stop) + 1]
    asked = [request([7, 8], max_tokens=10, stop={stop, 299, 298}), request([7, 8], max_tokens=10)]
    stopped, other = await answers(engine, asked)
    assert (stopped.finish, stopped.ids_T.tolist()) == (FinishReason.STOP, expected.tolist())
    assert len(stopped.logprobs_T) == len(stopped.versions_T) == len(expected)
    assert other.finish is FinishReason.LENGTH
    told = joined(await streamed(engine, asked[0]))
    assert (told.finish, told.ids_T.tolist()) == (FinishReason.STOP, expected.tolist())


async def test_a_completion_ends_where_the_context_does(engine: Engine) -> None:
    asked = [request(random_prompt(0, CONTEXT - 12), max_tokens=64)]
    got = await answers(engine, asked)
    assert (len(got[0].ids_T), got[0].finish) == (12, FinishReason.LENGTH)
    assert drift(model(), asked, got) <= TOLERANCE


CHAT = ChatTemplate(tiny_tokenizer())
FORMS: dict[Form, str] = {
    Form("choice", '["What is it?", "two", "two or three"]'): r"What is it\?|two|two or three",
    Form("regex", "[ab]{2,5}c"): r"[ab]{2,5}c",
    Form("grammar", 'root ::= "x" [0-9] "y"\n'): r"x[0-9]y",
    Form("schema", '{"type": "array", "items": {"enum": [1, "two"]}, "minItems": 1, "maxItems": 2}'): r"\[.+\]",
}


async def test_answers_have_the_form_that_was_asked_for(engine: Engine) -> None:
    plain = request(random_prompt(1, 5), seed=4, stop=CHAT.stop, max_tokens=90)
    for form, pattern in FORMS.items():
        got = await engine.generate(replace(plain, form=form))
        assert got.finish is FinishReason.STOP
        assert re.fullmatch(pattern, CHAT.decode(got.ids_T), re.DOTALL)
        assert got.shifts_T is not None
        assert len(got.shifts_T) == len(got.ids_T)
        pieces = await streamed(engine, replace(plain, form=form))
        assert np.concatenate([piece.ids_T for piece in pieces]).tolist() == got.ids_T.tolist()
    assert (await engine.generate(plain)).shifts_T is None
    with pytest.raises(Unsupported, match="form=regex"):
        await engine.generate(replace(plain, form=Form("regex", "(")))


@pytest.mark.parametrize(
    ("prompt", "message"),
    [([1] * CONTEXT, "192 tokens in context=192"), ([], "0 tokens"), ([300], "0 to 299"), ([-1], "0 to 299")],
)
async def test_a_prompt_that_cannot_be_continued_is_refused(engine: Engine, prompt: list[int], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        await engine.generate(request(prompt))
    with pytest.raises(PolicyError, match=message):
        await anext(engine.stream(request(prompt)))


async def test_more_requests_than_there_is_room_for_wait_their_turn(engine: Engine) -> None:
    asked = [request(random_prompt(seed, 2 + seed), seed=seed, max_tokens=3 + seed) for seed in range(3 * SLOTS)]
    assert drift(model(), asked, await answers(engine, asked)) <= TOLERANCE


async def test_new_weights_take_over_in_the_middle_of_a_request_streamed_or_not(engine: Engine) -> None:
    base, models = engine.version, [model(seed) for seed in range(3)]
    asked = [request(random_prompt(seed // 2, 3 + seed // 2), seed=seed, max_tokens=150) for seed in range(6)]

    async def told(one: Request) -> Completion:
        return joined(await streamed(engine, one))

    tasks = [asyncio.create_task((told if one.seed % 2 else engine.generate)(one)) for one in asked]
    for later in (1, 2):
        await until_sampled(engine, 30)
        await engine.load(seal(models[later].state_dict(), base + later))
    assert engine.version == base + 2
    got = await asyncio.gather(*tasks)
    assert drift_by_version(models, asked, got, base=base) <= TOLERANCE
    assert {int(v) for one in got for v in one.versions_T} == {base, base + 1, base + 2}


async def test_nothing_that_was_cached_answers_after_an_update(engine: Engine) -> None:
    asked = [request(random_prompt(3, LONG), seed=seed) for seed in range(3)]
    await answers(engine, asked)
    await engine.load(seal(model(1).state_dict(), engine.version + 1))
    assert drift(model(1), asked, await answers(engine, asked)) <= TOLERANCE


def _not_finite(weights: dict[str, torch.Tensor]) -> None:
    weights["model.norm.weight"] = torch.full((32,), torch.nan)


def _missing(weights: dict[str, torch.Tensor]) -> None:
    del weights["model.layers.1.mlp.up_proj.weight"]


def _misshapen(weights: dict[str, torch.Tensor]) -> None:
    weights["lm_head.weight"] = torch.zeros(300, 31)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_not_finite, r"version \d+: model\.norm\.weight has values that are not finite"),
        (_missing, r"'model\.layers\.1\.mlp\.up_proj\.weight' is missing"),
        (_misshapen, r"lm_head\.weight has shape \(300, 31\)"),
    ],
)
async def test_refused_weights_leave_the_engine_as_it_was(engine: Engine, spoil: Any, message: str) -> None:
    before, version = await engine.generate(request([1, 2, 3])), engine.version
    broken = dict(model(1).state_dict())
    spoil(broken)
    with pytest.raises(PolicyError, match=message):
        await engine.load(seal(broken, version + 1))
    after = await engine.generate(request([1, 2, 3]))
    assert engine.version == version
    assert after.logprobs_T.tobytes() == before.logprobs_T.tobytes()


async def test_weights_that_changed_on_their_way_are_refused(engine: Engine) -> None:
    sealed = seal(model(1).state_dict(), engine.version + 1)
    sealed.weights["model.norm.weight"][3] += 1e-3
    with pytest.raises(PolicyError, match=r"1 of 21 tensors are not what the learner sealed \(model\.norm\.weight\)"):
        await engine.load(sealed)
    asked = [request([1, 2, 3])]
    assert drift(model(), asked, await answers(engine, asked)) <= TOLERANCE


async def test_a_cancelled_request_makes_room(engine: Engine) -> None:
    endless = [asyncio.create_task(engine.generate(request([1, 2], max_tokens=180))) for _ in range(2 * SLOTS)]
    await until_sampled(engine, 2)
    before = engine.statistics.sampled_tokens
    for task in endless:
        task.cancel()
    assert len((await engine.generate(request([3], max_tokens=2))).ids_T) == 2
    assert engine.statistics.sampled_tokens - before < 150
    assert all(
        isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*endless, return_exceptions=True)
    )


async def streamed(engine: Engine, asked: Request) -> list[CompletionPiece]:
    return [piece async for piece in engine.stream(asked)]


def joined(pieces: Sequence[CompletionPiece]) -> Completion:
    """The pieces as one completion; only the last says that it is."""
    *earlier, last = pieces
    assert all(piece.finish is None and len(piece.ids_T) for piece in earlier)
    assert last.finish is not None
    return Completion(
        np.concatenate([piece.ids_T for piece in pieces]),
        np.concatenate([piece.logprobs_T for piece in pieces]),
        np.concatenate([piece.versions_T for piece in pieces]),
        last.finish,
    )


async def test_a_stream_has_the_tokens_of_the_completion_in_several_pieces(engine: Engine) -> None:
    asked = [request(random_prompt(seed, 5 + seed), seed=seed, temperature=0.8) for seed in range(2 * SLOTS)]
    pieces = await asyncio.gather(*(streamed(engine, one) for one in asked))
    got = [joined(one) for one in pieces]
    whole = await answers(engine, asked)
    for one, other in zip(got, whole, strict=True):
        assert one.ids_T.tolist() == other.ids_T.tolist()
        assert one.versions_T.tolist() == other.versions_T.tolist()
        assert one.finish is other.finish
    assert drift(model(), asked, got) <= TOLERANCE
    # At least the first token leaves alone. Further ones gather, or wait for a busy reader.
    assert max(map(len, pieces)) > 1


async def test_the_likeliest_tokens_come_with_a_stream_if_asked_for(engine: Engine) -> None:
    asked = [
        replace(request(random_prompt(seed, 9), seed=seed, temperature=temperature), top=top)
        for seed, (top, temperature) in enumerate([(3, 0.6), (0, 1.0), (7, 0.0), (1, 1.0)])
    ]
    for one, pieces in zip(asked, await asyncio.gather(*(streamed(engine, one) for one in asked)), strict=True):
        if not one.top:
            assert all(piece.top is None for piece in pieces)
            continue
        check_top(one, pieces)


def check_top(asked: Request, pieces: Sequence[CompletionPiece]) -> None:
    """The likeliest tokens are those of a plain forward pass."""
    logp_TV = torch.log_softmax(logits(model(), asked, joined(pieces).ids_T) / (asked.sampling.temperature or 1.0), -1)
    expected = logp_TV.topk(asked.top)
    assert np.concatenate([p.top.ids_TK for p in pieces if p.top]).tolist() == expected.indices.tolist()
    got_TK = np.concatenate([p.top.logprobs_TK for p in pieces if p.top])
    assert np.abs(got_TK - expected.values.numpy()).max() <= TOLERANCE


async def test_a_stream_that_is_closed_makes_room(engine: Engine) -> None:
    for _ in range(2 * SLOTS):
        async with aclosing(engine.stream(request([1, 2], max_tokens=180))) as pieces:
            assert len((await anext(pieces)).ids_T) >= 1
    before = engine.statistics.sampled_tokens
    assert len((await engine.generate(request([3], max_tokens=2))).ids_T) == 2
    assert engine.statistics.sampled_tokens - before < 150


async def test_a_slow_reader_gets_larger_pieces_and_all_tokens(engine: Engine) -> None:
    asked, pieces = replace(request([1, 2], max_tokens=60), top=3), []
    async for piece in engine.stream(asked):
        pieces.append(piece)
        await engine.generate(request([5], max_tokens=12))
    assert max(len(piece.ids_T) for piece in pieces) > 5
    assert len(joined(pieces).ids_T) == 60
    assert drift(model(), [asked], [joined(pieces)]) <= TOLERANCE
    check_top(asked, pieces)


async def test_statistics_count_what_was_done(engine: Engine) -> None:
    before = engine.statistics
    await answers(engine, [request([1, 2, seed], seed=seed, max_tokens=5) for seed in range(4)])
    after = engine.statistics
    assert after.sampled_tokens - before.sampled_tokens == 20
    assert after.prompt_tokens - before.prompt_tokens == 12
    assert after.busy_s > before.busy_s


# -- what vLLM has of its own --------------------------------------------------------------------------------------


def staged(folder: Path, seed: int, version: int) -> StagedWeights:
    file = folder / f"{version}-{seed}.safetensors"
    return StagedWeights(version, stage(seal(model(seed).state_dict(), version), file))


@pytest.mark.system
@pytest.mark.slow
async def test_what_new_weights_say_is_held_until_they_are_admitted(vllm: VllmEngine, tmp_path: Path) -> None:
    base = vllm.version
    early = asyncio.create_task(vllm.generate(request([1, 2], max_tokens=4)))
    await vllm.take_staged(staged(tmp_path, 1, base + 1))
    late = asyncio.create_task(vllm.generate(request([1, 2, 3])))
    (probe,) = await vllm.probe([request([1, 2, 3])])
    await asyncio.wait({late}, timeout=0.3)
    assert not late.done()
    assert drift(model(1), [request([1, 2, 3])], [probe]) <= TOLERANCE
    with pytest.raises(PolicyError, match="cannot be admitted"):
        await vllm.admit(base)
    await vllm.admit(base + 1)
    assert (await late).ids_T.tolist() == probe.ids_T.tolist()
    assert len((await early).ids_T) == 4


@pytest.mark.system
@pytest.mark.slow
async def test_rejected_weights_answer_nobody_and_good_ones_do(vllm: VllmEngine, tmp_path: Path) -> None:
    base = vllm.version
    await vllm.take_staged(staged(tmp_path, 1, base + 1))
    finished = asyncio.create_task(vllm.generate(request([1, 2], max_tokens=2)))
    running = asyncio.create_task(vllm.generate(request([1, 2], max_tokens=180)))
    await vllm.probe([request([1, 2], max_tokens=8)])
    await vllm.reject("probes are off")
    for failed in (finished, running, vllm.generate(request([1]))):
        with pytest.raises(PolicyError, match=f"version {base + 1} were rejected: probes are off"):
            await failed
    await vllm.load(seal(model(2).state_dict(), base + 1))
    asked = [request([1, 2], max_tokens=9)]
    assert drift(model(2), asked, await answers(vllm, asked)) <= TOLERANCE


@pytest.mark.system
@pytest.mark.slow
async def test_a_stream_is_held_until_its_weights_are_admitted_and_ends_if_they_are_rejected(
    vllm: VllmEngine, tmp_path: Path
) -> None:
    base = vllm.version
    pieces: list[CompletionPiece] = []

    async def read() -> None:
        async for piece in vllm.stream(request([1, 2], max_tokens=180)):
            pieces.append(piece)

    def versions() -> set[int]:
        return {int(version) for piece in pieces for version in piece.versions_T}

    reading = asyncio.create_task(read())
    while not pieces:  # noqa: ASYNC110 - pieces come in turns of this loop
        await asyncio.sleep(0.001)
    await vllm.take_staged(staged(tmp_path, 1, base + 1))
    await asyncio.wait({reading}, timeout=0.3)
    assert not reading.done()
    assert versions() == {base}
    await vllm.admit(base + 1)
    await reading
    assert versions() == {base, base + 1}
    pieces.clear()
    reading = asyncio.create_task(read())
    while not pieces:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await vllm.take_staged(staged(tmp_path, 2, base + 2))
    await vllm.reject("probes are off")
    with pytest.raises(PolicyError, match=f"version {base + 2} were rejected: probes are off"):
        await reading
    assert versions() == {base + 1}
    await vllm.load(seal(model(2).state_dict(), base + 2))


@pytest.mark.system
@pytest.mark.slow
async def test_an_update_that_fails_half_way_is_mended_by_the_next(
    vllm: VllmEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = vllm.version
    with monkeypatch.context() as patch:
        whole = vllm._llm.collective_rpc

        async def unchecked(method: str, **kwargs: Any) -> Any:
            return [None] if method == "loomrl_check" else await whole(method, **kwargs)

        patch.setattr(vllm._llm, "collective_rpc", unchecked)
        wrong = {name: tensor[..., :-1].contiguous() for name, tensor in model(1).state_dict().items()}
        file = stage(seal(wrong, base + 1), tmp_path / "wrong.safetensors")
        with pytest.raises(PolicyError, match="has shape"):
            await vllm.take_staged(StagedWeights(base + 1, file))
    waiting = asyncio.create_task(vllm.generate(request([4, 5])))
    await asyncio.wait({waiting}, timeout=0.2)
    assert not waiting.done()
    await vllm.load(seal(model(2).state_dict(), base + 2))
    assert drift(model(2), [request([4, 5])], [await waiting]) <= TOLERANCE


@pytest.mark.system
@pytest.mark.slow
async def test_without_the_reset_the_cache_would_answer_with_old_weights(
    vllm: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trap is real, so the contract's test of it can fail."""
    asked = [request(random_prompt(3, LONG), seed=seed) for seed in range(3)]
    await answers(vllm, asked)

    async def forgotten(**_: Any) -> bool:
        return True

    with monkeypatch.context() as patch:
        patch.setattr(vllm._llm, "reset_prefix_cache", forgotten)
        await vllm.load(seal(model(1).state_dict(), vllm.version + 1))
    assert drift(model(1), asked, await answers(vllm, asked)) > 0.1


@pytest.mark.system
@needs("vLLM")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_num_sequences": 3}, "engine.settings='max_num_sequences' is unknown.*Did you mean 'max_num_seqs'"),
        ({"max_model_len": 3}, "engine.settings.max_model_len has no effect: LoomRL sets it itself"),
    ],
)
async def test_settings_that_vllm_lacks_are_named(folder: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        start(VllmEngineConfig(settings=settings), vllm_opening(folder), folder / "log")


@pytest.mark.system
@needs("vLLM")
async def test_a_model_that_vllm_cannot_run_is_named_with_the_remedy(tmp_path: Path) -> None:
    tiny = {"vocab_size": 300, "d_model": 64, "ffn_dim": 64, "num_layers": 1, "attention_heads": 2}
    XGLMForCausalLM(XGLMConfig(**tiny)).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"\['XGLMForCausalLM'\] are not supported.* Choose engine\.kind=torch"):
        start(VllmEngineConfig(), vllm_opening(tmp_path), tmp_path / "log")


@pytest.mark.system
@needs("vLLM")
async def test_a_context_beyond_the_models_own_is_refused(folder: Path) -> None:
    longer = replace(vllm_opening(folder), context=1000)
    with pytest.raises(ConfigError, match=r"\(1000\) is greater than.*256.*Lower the model's context"):
        start(VllmEngineConfig(), longer, folder / "other-log")


@pytest.mark.system
@needs("vLLM")
async def test_gpus_are_refused_where_vllm_has_none(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine.gpus=1: the vLLM that is installed is its CPU build"):
        start(VllmEngineConfig(gpus=1), vllm_opening(folder), folder / "log")
