"""Engines on a server: vLLM's real one where it is installed, and SGLang's protocol over a real model."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sample_models import answers, drift, drift_by_version, mixed, random_prompt, request
from sample_server import MODEL, SglangProtocol, model_folder, scripted, served_model, serving, vllm_server
from starlette.responses import JSONResponse, Response

from loomrl.config import Experiment
from loomrl.config.engine import OpenAIEngineConfig
from loomrl.errors import ConfigError, PolicyError
from loomrl.experiments.evaluate import evaluate_policies
from loomrl.experiments.shipped import resolve
from loomrl.experiments.train import train
from loomrl.inference.chat import open_chat
from loomrl.inference.engine import Completion, CompletionPiece, FinishReason, Pieces, Request, Unsupported
from loomrl.inference.open import Opening, open_engine
from loomrl.inference.remote.dialect import CompletionsApi, SglangTokens, VllmTokens
from loomrl.inference.remote.engine import OpenAIEngine
from loomrl.inference.weights.sealed import Sealed, seal
from loomrl.types import Form
from tests.needs import need

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("one_thread")]
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Served:
    """A server, how it is spoken to, and what it was started with."""

    choice: OpenAIEngineConfig
    folder: Path

    def engine(self, *, context: int = 64) -> OpenAIEngine:
        return OpenAIEngine(self.choice, origin=self.folder, context=context)

    def url_only(self) -> "Served":
        return Served(self.choice.model_copy(update={"updates": "none"}), self.folder)


def sglang_at(url: str, **more: Any) -> OpenAIEngineConfig:
    return OpenAIEngineConfig(url=url, model=MODEL, updates="sglang", **more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("served") / "model")


@pytest.fixture(scope="module")
def vllm(folder: Path) -> Iterator[Served]:
    need("vLLM")
    with vllm_server(folder, folder.parent / "vllm.log") as url:
        yield Served(OpenAIEngineConfig(url=url, model=MODEL, updates="vllm"), folder)


@pytest.fixture(scope="module")
def sglang(folder: Path) -> Iterator[Served]:
    with serving(SglangProtocol(served_model()).app()) as url:
        yield Served(sglang_at(url), folder)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("completions", "vllm")]
"""A real vLLM server takes half a minute to start."""


@pytest.fixture(params=[*SLOW, "sglang"])
def served(request: pytest.FixtureRequest) -> Served:
    """Every way to ask; a server that takes updates has the weights of seed 0."""
    if request.param == "completions":
        found: Served = request.getfixturevalue("vllm")
        asyncio.run(give(found, 0))
        return found.url_only()
    found = request.getfixturevalue(request.param)
    asyncio.run(give(found, 0))
    return found


@pytest.fixture(params=[SLOW[1], "sglang"])
def taught(request: pytest.FixtureRequest) -> Served:
    """Those that take new weights."""
    found: Served = request.getfixturevalue(request.param)
    asyncio.run(give(found, 0))
    return found


def version(number: int) -> Sealed:
    return seal(served_model(number).state_dict(), number)


async def give(served: Served, number: int) -> None:
    engine = served.engine()
    await engine.load(version(number))
    await engine.close()


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_reported_logprobs_are_those_of_a_plain_forward_pass(served: Served) -> None:
    asked = mixed(8)
    got = asyncio.run(answers(served.engine(), asked))
    assert all(len(completion.ids_T) == 16 and completion.finish is FinishReason.LENGTH for completion in got)
    assert all(completion.versions_T.tolist() == [0] * 16 for completion in got)
    assert drift(served_model(), asked, got) <= TOLERANCE


def test_the_same_request_is_answered_alike_and_another_seed_otherwise(served: Served) -> None:
    one, other = (request(random_prompt(1, 9), seed=seed) for seed in (2**62 + 5, 6))
    first, second, again = asyncio.run(answers(served.engine(), [one, other, one]))
    assert first.ids_T.tolist() == again.ids_T.tolist() != second.ids_T.tolist()


def test_a_completion_ends_with_its_stop_token_or_at_its_length(served: Served) -> None:
    engine = served.engine()
    (free,) = asyncio.run(answers(engine, [request([7, 8], max_tokens=10)]))
    stop = int(free.ids_T[4])
    expected = free.ids_T[: free.ids_T.tolist().index(stop) + 1]
    asked = [request([7, 8], max_tokens=10, stop={stop, 299}), request([7, 8], max_tokens=10)]
    stopped, other = asyncio.run(answers(engine, asked))
    assert (stopped.finish, stopped.ids_T.tolist()) == (FinishReason.STOP, expected.tolist())
    assert (other.finish, other.ids_T.tolist()) == (FinishReason.LENGTH, free.ids_T.tolist())


def test_a_completion_ends_where_the_context_does(served: Served) -> None:
    asked = [request(random_prompt(0, 20), max_tokens=64)]
    got = asyncio.run(answers(served.engine(context=32), asked))
    assert (len(got[0].ids_T), got[0].finish) == (12, FinishReason.LENGTH)
    assert drift(served_model(), asked, got) <= TOLERANCE


@pytest.mark.parametrize(
    ("prompt", "message"),
    [([1] * 32, "32 tokens in context=32"), ([], "0 tokens"), ([300], "0 to 299"), ([-1], "0 to 299")],
)
async def test_a_prompt_that_cannot_be_continued_is_refused(sglang: Served, prompt: list[int], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        await sglang.engine(context=32).generate(request(prompt))


async def test_cancelled_requests_leave_the_others_as_they_were(served: Served) -> None:
    engine = served.engine(context=1000)
    asked = [request(random_prompt(seed, 5), seed=seed, max_tokens=900 if seed % 2 else 12) for seed in range(8)]
    tasks = [asyncio.create_task(engine.generate(one)) for one in asked]
    await asyncio.sleep(0.3)  # all are connected: anyio leaks a socket that is cancelled while it connects
    for task in tasks[1::2]:
        task.cancel()
    got = await asyncio.gather(*tasks, return_exceptions=True)
    assert drift(served_model(), asked[::2], [one for one in got[::2] if isinstance(one, Completion)]) <= TOLERANCE
    assert sum(isinstance(one, asyncio.CancelledError) for one in got[1::2]) > 0


async def test_close_fails_what_is_open_and_what_comes_later(served: Served) -> None:
    engine = served.engine(context=1000)
    tasks = [asyncio.create_task(engine.generate(request([n], max_tokens=900))) for n in range(3)]
    await asyncio.sleep(0.3)
    await engine.close()
    for one in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(one, PolicyError)
        assert "closed" in str(one)
    with pytest.raises(PolicyError, match="closed"):
        await engine.generate(request([1]))


def test_new_weights_take_over_in_the_middle_of_requests(taught: Served) -> None:
    models = [served_model(seed) for seed in range(3)]
    least = 250 if taught.choice.updates == "vllm" else 50

    async def play() -> list[tuple[Request, Completion]]:
        engine = taught.engine(context=800)
        found: list[tuple[Request, Completion]] = []

        async def ask(seed: int) -> None:
            """One request after the other, until the last weights have answered a whole one; of unequal lengths."""
            while not found or all(completion.versions_T[0] < 2 for _, completion in found):
                one = request(random_prompt(seed, 3 + seed), seed=seed, max_tokens=least * (2 + seed) // 2)
                found.append((one, await engine.generate(one)))

        asking = [asyncio.create_task(ask(seed)) for seed in range(3)]
        for number in (1, 2):
            before = len(found)
            while len(found) == before:  # noqa: ASYNC110 - a completion of the present weights
                await asyncio.sleep(0.01)
            await engine.load(version(number))
        assert engine.version == 2
        await asyncio.gather(*asking)
        return found

    found = asyncio.run(play())
    assert drift_by_version(models, *zip(*found, strict=True)) <= TOLERANCE
    assert {number for _, completion in found for number in completion.versions_T.tolist()} == {0, 1, 2}
    assert any(len(set(completion.versions_T.tolist())) > 1 for _, completion in found)


async def test_refused_weights_leave_the_server_as_it_was(taught: Served) -> None:
    engine = taught.engine()
    before = await engine.generate(request([1, 2, 3]))
    broken = dict(served_model(1).state_dict())
    broken["model.norm.weight"] = torch.full((64,), torch.nan)
    with pytest.raises(PolicyError, match=r"model\.norm\.weight has values that are not finite"):
        await engine.load(seal(broken, 5))
    short = dict(served_model(1).state_dict())
    del short["lm_head.weight"]
    with pytest.raises(PolicyError, match=r"lm_head\.weight"):
        await engine.load(seal(short, 5))
    sealed = version(1)
    changed = {name: tensor.clone() for name, tensor in sealed.weights.items()}
    changed["model.norm.weight"][3] += 1
    with pytest.raises(PolicyError, match="not what the learner sealed"):
        await engine.load(Sealed(1, changed, sealed.checksums))
    after = await engine.generate(request([1, 2, 3]))
    assert engine.version == 0
    assert after.logprobs_T.tolist() == pytest.approx(before.logprobs_T.tolist(), abs=1e-5)


def test_an_engine_outlives_event_loops(served: Served) -> None:
    engine = served.engine()
    asked = [request([n], seed=n) for n in range(4)]
    for _ in range(2):
        assert drift(served_model(), asked, asyncio.run(answers(engine, asked))) <= TOLERANCE


@pytest.mark.slow
def test_a_server_without_updates_is_not_trained_with(vllm: Served) -> None:
    choice = vllm.url_only().choice
    with pytest.raises(ConfigError, match=r"updates='none'.*can be judged.*not trained with.*Known: vllm, sglang"):
        open_engine(choice, Opening(origin=vllm.folder, context=64, slots=1))
    with pytest.raises(ConfigError, match="not trained with"):
        asyncio.run(vllm.url_only().engine().load(version(1)))


@pytest.mark.slow
def test_vllm_refuses_what_a_learner_would_not_recompute(vllm: Served) -> None:
    with pytest.raises(ConfigError, match=r"top_p=0\.5.*of what top-p leaves"):
        asyncio.run(answers(vllm.engine(), [request([1], top_p=0.5)]))


SHAPE = '{"type": "object"}'
SCHEMA = {
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
    }
}


@pytest.mark.parametrize(
    ("form", "fields", "vllm_fields", "sglang_fields"),
    [
        (Form("json"), {"response_format": {"type": "json_object"}}, {"json_object": True}, {"json_schema": SHAPE}),
        (Form("schema", SHAPE), SCHEMA, {"json": SHAPE}, {"json_schema": SHAPE}),
        (Form("regex", "a+"), {"structured_outputs": {"regex": "a+"}}, {"regex": "a+"}, {"regex": "a+"}),
        (
            Form("choice", '["a", "b?"]'),
            {"structured_outputs": {"choice": ["a", "b?"]}},
            {"choice": ["a", "b?"]},
            {"regex": r"a|b\?"},
        ),
        (Form("grammar", "start: A"), {"structured_outputs": {"grammar": "start: A"}}, {"grammar": "start: A"}, None),
    ],
    ids=lambda value: value.kind if isinstance(value, Form) else "",
)  # fmt: skip
def test_form_is_passed_on_in_the_fields_of_each_server(
    form: Form, fields: dict[str, Any], vllm_fields: dict[str, Any], sglang_fields: dict[str, Any] | None
) -> None:
    plain = request([1], stop={2})
    asked = replace(plain, form=form)
    dialect = CompletionsApi()
    assert dialect.body("m", asked, max_tokens=1) == dialect.body("m", plain, max_tokens=1) | fields
    assert VllmTokens().body("m", asked, max_tokens=1)["sampling_params"]["structured_outputs"] == vllm_fields
    if sglang_fields is None:
        with pytest.raises(Unsupported, match="form=grammar"):
            SglangTokens().body("m", asked, max_tokens=1)
        return
    assert sglang_fields.items() <= SglangTokens().body("m", asked, max_tokens=1)["sampling_params"].items()


@pytest.mark.slow
@pytest.mark.parametrize("is_told_versions", [True, False])
def test_server_of_vllm_obeys_a_form(vllm: Served, is_told_versions: bool) -> None:
    chat = open_chat(vllm.folder)
    choices = ("What is it?", "two")
    form = Form("choice", json.dumps(choices))
    asked = [
        replace(request(random_prompt(seed, 5), seed=seed, stop={0}, max_tokens=50), form=form) for seed in range(4)
    ]
    engine = vllm.engine() if is_told_versions else vllm.url_only().engine()
    for got in asyncio.run(answers(engine, asked)):
        assert chat.decode(got.ids_T) in choices
        assert got.shifts_T is not None
        assert np.isposinf(got.shifts_T).all()


@pytest.mark.parametrize(("tempered", "temperature"), [(True, 0.7), (False, 1.0)])
def test_what_logprobs_mean_is_found_out_by_asking(folder: Path, tempered: bool, temperature: float) -> None:
    with serving(SglangProtocol(served_model(), tempered=tempered).app()) as url:
        engine = Served(sglang_at(url), folder).engine()
        asked = [request(random_prompt(seed, 6), seed=seed, temperature=temperature, top_p=0.4) for seed in range(3)]
        assert drift(served_model(), asked, asyncio.run(answers(engine, asked))) <= TOLERANCE
        if not tempered:
            with pytest.raises(ConfigError, match=r"temperature=0\.7: .*before temperature.*Sample at 1"):
                asyncio.run(answers(engine, [request([1], temperature=0.7)]))


async def test_engines_that_share_a_server_give_it_each_version_once(folder: Path) -> None:
    protocol = SglangProtocol(served_model())
    with serving(protocol.app()) as url:
        engines = [Served(sglang_at(url), folder).engine() for _ in range(3)]
        for number in (1, 2):
            await asyncio.gather(*(engine.load(version(number)) for engine in engines))
            assert {engine.version for engine in engines} == {number}
        assert [label.split("-")[0] for label in protocol.updates] == ["1", "2"]
        await engines[0].load(version(2))
        assert [label.split("-")[0] for label in protocol.updates] == ["1", "2", "2"]
        await asyncio.gather(*(engine.close() for engine in engines))


async def test_a_failed_update_stops_the_server_until_the_next_one_arrives(folder: Path, tmp_path: Path) -> None:
    protocol = SglangProtocol(served_model())
    with serving(protocol.app()) as url:
        engine = Served(sglang_at(url, staging=str(tmp_path), timeout_s=60), folder).engine(context=512)
        protocol.pace_s = 0.002
        started = asyncio.create_task(engine.generate(request([4, 2], max_tokens=300)))
        await asyncio.sleep(0.1)
        protocol.fail_updates = 1
        with pytest.raises(PolicyError, match=r"version 1 did not arrive: .*out of memory"):
            await engine.load(version(1))
        with pytest.raises(PolicyError, match="version 1 did not arrive"):
            await engine.generate(request([1]))
        assert engine.version == 0
        await engine.load(version(2))
        completion = await started
        assert set(completion.versions_T.tolist()) == {0, 2}
        assert [name.split("-")[2] for name in names(tmp_path) if not name.endswith(".lock")] == ["2"]
        await engine.close()
        assert [name.endswith(".lock") for name in names(tmp_path)] == [True]


async def test_tokens_of_unknown_weights_are_no_completion(folder: Path) -> None:
    protocol = SglangProtocol(served_model())
    protocol._label = "somebody-elses"
    with serving(protocol.app()) as url:
        engine = Served(sglang_at(url), folder).engine()
        with pytest.raises(PolicyError, match="'somebody-elses', which were not given by this machine"):
            await engine.generate(request([1]))


def test_a_server_that_takes_no_weights_is_refused_with_how_to_start_it(folder: Path) -> None:
    async def missing(request: object) -> Response:
        return JSONResponse({"detail": "Not Found"}, 404)

    with serving(scripted(missing)) as url:
        choice = OpenAIEngineConfig(url=url, model=MODEL, updates="vllm")
        with pytest.raises(ConfigError, match=r"takes no weights: .*404: Not Found.*VLLM_SERVER_DEV_MODE=1 vllm serve"):
            OpenAIEngine(choice, origin=folder, context=64)


@pytest.mark.slow
def test_a_model_on_a_server_is_judged_by_its_text(vllm: Served, tmp_path: Path) -> None:
    files = {"store_url": f"sqlite:///{tmp_path}/loom.db", "artifact_url": f"{tmp_path}/artifacts"}
    experiment = resolve(["math"]).override({**files, "evaluation.episodes": 3})
    assert isinstance(experiment, Experiment)
    (report,) = evaluate_policies(experiment, [f"{vllm.choice.url}#{MODEL}"], temperature=1.0).reports
    assert (report.overall.success.count, report.overall.failures) == (3, 0)
    with pytest.raises(ConfigError, match=r"model='other' is unknown\. Known: tiny"):
        evaluate_policies(experiment, [f"{vllm.choice.url}#other"])
    with pytest.raises(ConfigError, match=r"which model\? Write .*#MODEL"):
        evaluate_policies(experiment, [vllm.choice.url])


@pytest.mark.slow
def test_a_policy_is_trained_on_a_server(vllm: Served, tmp_path: Path) -> None:
    experiment = resolve(["language/math_tiny"]).override(
        {
            "store_url": f"sqlite:///{tmp_path}/loom.db",
            "artifact_url": f"{tmp_path}/artifacts",
            "train.folder": f"{tmp_path}/runs",
            "algorithm.model.build": None,
            "algorithm.model.path": str(vllm.folder),
            "algorithm.model.context": 512,
            "algorithm.warm_start.steps": 0,
            "algorithm.sampling.max_tokens": 16,
            "rollout.group_size": 2,
            "rollout.groups_per_update": 2,
            "train.updates": 3,
            "train.checkpoint_every": 3,
            "evaluation.episodes": 4,
            "engine": vllm.choice.model_dump(mode="json"),
        }
    )
    result = train(experiment)
    assert result.updates == 3
    lines = (tmp_path / "runs" / result.run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["policy/drift"] < TOLERANCE for line in lines] == [True] * 3


def test_another_machine_needs_a_folder_that_both_see(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine\.staging must name a folder"):
        Served(sglang_at("http://server.example/v1"), folder).engine()


async def collect(stream: Pieces) -> list[CompletionPiece]:
    return [piece async for piece in stream]


@pytest.mark.slow
async def test_a_server_of_completions_streams_what_it_would_answer_whole(vllm: Served) -> None:
    engine = vllm.url_only().engine(context=1000)
    asked = request([3, 5], max_tokens=60, seed=4)
    pieces = await collect(engine.stream(asked))
    whole = await engine.generate(asked)
    assert len(pieces) > 20
    assert np.concatenate([piece.ids_T for piece in pieces]).tolist() == whole.ids_T.tolist()
    assert np.allclose(np.concatenate([piece.logprobs_T for piece in pieces]), whole.logprobs_T, atol=TOLERANCE)
    assert [piece.finish for piece in pieces[-2:]] == [None, FinishReason.LENGTH]
    stream = engine.stream(request([1], max_tokens=900))
    await anext(stream)
    rest = asyncio.create_task(collect(stream))
    await asyncio.sleep(0)
    await engine.close()
    with pytest.raises(PolicyError, match="closed"):
        await rest


def event(*ids: int, finish: str | None = None) -> dict[str, Any]:
    logprobs = {"tokens": [f"token_id:{id}" for id in ids], "token_logprobs": [-0.5] * len(ids)}
    return {"choices": [{"text": "x" * len(ids), "logprobs": logprobs, "finish_reason": finish}]}


COUNTED = {"choices": [], "usage": {"prompt_tokens": 2}}
COUNTED_3 = {"choices": [], "usage": {"prompt_tokens": 3}}


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([event(7), event(8), event(finish="length"), COUNTED], None),
        (
            [event(7), event(8, finish="length"), {"choices": [], "usage": {"prompt_tokens": 3}}],
            "read 3 tokens where 2",
        ),
        ([event(7)], "broke its answer off 1 tokens early"),
        ([event(7, 8, 9)], "sampled 1 tokens more"),
        ([event(7, 8), event(9)], "went on after the end"),
        ([event(7), {"error": {"message": "out of memory"}}], "broke its answer off: .*out of memory"),
        ([{"choices": [{"text": "x", "logprobs": None}]}], "gives no log-probabilities"),
    ],
)
async def test_a_stream_is_whole_or_an_error(folder: Path, events: list[dict[str, Any]], fault: str | None) -> None:
    async def answer(asked: Any) -> Response:
        if not (await asked.json()).get("stream"):
            return JSONResponse(event(7, finish="length"))
        return Response("".join(f"data: {json.dumps(each)}\n\n" for each in events) + "data: [DONE]\n\n")

    with serving(scripted(answer)) as url:
        choice = OpenAIEngineConfig(url=url, model=MODEL, updates="none")
        engine = OpenAIEngine(choice, origin=folder, context=64)
        stream = engine.stream(request([1, 2], max_tokens=2))
        if fault is not None:
            with pytest.raises((PolicyError, ConfigError), match=fault):
                await collect(stream)
            return
        pieces = await collect(stream)
        assert [piece.ids_T.tolist() for piece in pieces] == [[7], [8], []]
        assert pieces[-1].finish is FinishReason.LENGTH
