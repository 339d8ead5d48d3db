"""Faults of a server, each reported by its name. The servers are real ones that do exactly that."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sample_models import request
from sample_server import MODEL, free_port, model_folder, scripted, serving
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from loomrl.config.engine import OpenAIEngineConfig
from loomrl.errors import ConfigError, PolicyError
from loomrl.inference.remote.engine import OpenAIEngine
from loomrl.inference.remote.server import ServerClient

pytestmark = pytest.mark.system

GOOD = {
    "choices": [
        {
            "text": "x",
            "token_ids": [7],
            "logprobs": {"tokens": ["token_id:7"], "token_logprobs": [-0.5], "top_logprobs": [{"token_id:7": -0.5}]},
            "finish_reason": "length",
        }
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("served") / "model")


def ask(answers: Callable[[int], Response], *, timeout_s: float = 20, path: str = "/x") -> tuple[Any, int]:
    """The server's answer as read, or the error; and the number of requests."""
    asked: list[str | None] = []

    async def answer(request: Request) -> Response:
        asked.append(request.headers.get("authorization"))
        await asyncio.sleep(0)
        return answers(len(asked))

    with serving(scripted(answer)) as url:
        server = ServerClient(url, key_variable="A_KEY", timeout_s=timeout_s)
        try:
            return asyncio.run(server.post(path, {})), len(asked)
        except PolicyError as error:
            return error, len(asked)


def said(status: int, message: str = "busy", **headers: str) -> Response:
    return JSONResponse({"error": {"message": message}}, status, headers=headers)


def test_what_passes_is_asked_again_after_the_pause_that_the_server_wants() -> None:
    begun = time.monotonic()
    found, times = ask(lambda n: said(429, **{"retry-after": "1.2"}) if n == 1 else JSONResponse({"a": 1}))
    assert (found, times) == ({"a": 1}, 2)
    assert time.monotonic() - begun > 1.2
    found, times = ask(lambda n: said(503) if n < 3 else JSONResponse({"a": 2}))
    assert (found, times) == ({"a": 2}, 3)


def test_tries_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomrl.inference.remote.server.PAUSE_S", 0.01)
    error, times = ask(lambda n: said(503, "no capacity"))
    assert times == 5
    assert "answered 503 to every try: no capacity" in str(error)


def test_a_deadline_ends_them_too() -> None:
    error, _ = ask(lambda n: said(503, **{"retry-after": "60"}), timeout_s=0.5)
    assert "no answer within timeout_s=0.5" in str(error)


def test_what_does_not_pass_is_asked_once() -> None:
    error, times = ask(lambda n: said(400, "max_tokens is too large"))
    assert times == 1
    assert "answered 400: max_tokens is too large" in str(error)
    error, times = ask(lambda n: said(404, "no such route"), path="/weight_info")
    assert times == 1
    assert "/weight_info answered 404: no such route" in str(error)


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    error, times = ask(lambda n: said(401, "who are you"))
    assert times == 1
    assert "refused the request (401), which had no key, as $A_KEY is not set: who are you" in str(error)
    monkeypatch.setenv("A_KEY", "secret")
    error, _ = ask(lambda n: said(403, "not you"))
    assert "refused the request (403), which had the key in $A_KEY: not you" in str(error)
    assert "secret" not in str(error)


@pytest.mark.parametrize("text", ["", "<html>", "[1]", "3"])
def test_an_answer_that_is_no_object_is_an_error(text: str) -> None:
    found, _ = ask(lambda n: Response(text, media_type="application/json"))
    assert found == {} if not text else "no JSON object" in str(found)


def test_nobody_there() -> None:
    server = ServerClient(f"http://127.0.0.1:{free_port()}/v1", key_variable="A_KEY", timeout_s=20)
    begun = time.monotonic()
    with pytest.raises(PolicyError, match=r"does not answer \(.*\)\. Is the server running, and the address right\?"):
        asyncio.run(server.check(MODEL))
    assert time.monotonic() - begun < 5


def test_a_model_that_is_not_there_is_named_with_those_that_are(folder: Path) -> None:
    with (
        serving(scripted(never)) as url,
        pytest.raises(ConfigError, match=r"model='tyni' is unknown\. Known: tiny\. Did you mean 'tiny'\?"),
    ):
        OpenAIEngine(OpenAIEngineConfig(url=url, model="tyni"), origin=folder, context=64)


async def never(request: Request) -> Response:
    raise AssertionError("not asked")


def changed(**choice: Any) -> dict[str, Any]:
    return {**GOOD, "choices": [{**GOOD["choices"][0], **choice}]}


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (changed(logprobs=None), ConfigError, "gives no log-probabilities: it can be judged .* not trained with"),
        (
            changed(token_ids=None, logprobs={"tokens": ["x"], "token_logprobs": [-0.5]}),
            ConfigError,
            "gives no token ids: it can be judged .* not trained with",
        ),
        (changed(prompt_token_ids=[0, 1]), PolicyError, "adds to prompts or cuts them"),
        ({**GOOD, "usage": {"prompt_tokens": 9}}, PolicyError, "read 9 tokens where"),
        (changed(finish_reason="content_filter"), PolicyError, "'content_filter', which is none of"),
        (changed(token_ids=[7, 8]), PolicyError, "2 token ids and 1 log-probabilities"),
        (
            changed(logprobs={"tokens": ["token_id:7"], "token_logprobs": [-9999.0]}),
            PolicyError,
            "logits that are not finite",
        ),
        ({"choices": []}, PolicyError, "answered with no completion"),
        ({"error": "?"}, PolicyError, "answered with no completion"),
    ],
)
def test_what_is_no_completion_to_train_with_is_said_when_the_engine_is_opened(
    folder: Path, answer: dict[str, Any], error: type[Exception], message: str
) -> None:
    async def say(request: Request) -> Response:
        return JSONResponse(answer)

    with serving(scripted(say)) as url, pytest.raises(error, match=message):
        OpenAIEngine(OpenAIEngineConfig(url=url, model=MODEL), origin=folder, context=64)


def test_a_server_with_less_room_is_refused(folder: Path) -> None:
    models = {"data": [{"id": MODEL, "max_model_len": 32}]}
    with (
        serving(scripted(never, models=models)) as url,
        pytest.raises(ConfigError, match="context=64: the server's model has max_model_len=32"),
    ):
        OpenAIEngine(OpenAIEngineConfig(url=url, model=MODEL), origin=folder, context=64)


@pytest.mark.parametrize(
    ("ids", "reason", "message"),
    [
        ([7], "stop", "before any of the stop tokens"),
        ([7, 8], "length", "2 tokens early"),
        ([7] * 5, "length", "1 tokens more"),
        ([7, 8, 9, 400], "length", "sampled ids from 7 to 400"),
    ],
)
def test_completions_that_end_without_a_reason_of_ours_are_errors(
    folder: Path, ids: list[int], reason: str, message: str
) -> None:
    async def say(request: Request) -> Response:
        body = json.loads(await request.body())
        mine = ids if body["max_tokens"] == 4 else [7]
        told = {"tokens": [f"token_id:{id}" for id in mine], "token_logprobs": [-0.5] * len(mine)}
        return JSONResponse(changed(token_ids=mine, logprobs=told, finish_reason=reason if len(mine) > 1 else "length"))

    async def say_one(request: Request) -> Response:
        body = json.loads(await request.body())
        return JSONResponse(changed(finish_reason=reason if body["max_tokens"] == 4 else "length"))

    with serving(scripted(say_one if ids == [7] else say)) as url:
        engine = OpenAIEngine(OpenAIEngineConfig(url=url, model=MODEL), origin=folder, context=64)
        with pytest.raises(PolicyError, match=message):
            asyncio.run(engine.generate(request([1], max_tokens=4)))
