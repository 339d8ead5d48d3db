"""What clients send without being told to, before a gateway with a small model: fields, references, scores, HTTP."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import httpx
import numpy as np
import pytest

from loomrl.config import Sampling, ServingExperiment
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.engine import Request
from loomrl.inference.policy import Voice
from loomrl.inference.torch import network
from loomrl.inference.torch.engine import TorchEngine
from loomrl.load import load_any
from loomrl.serving.deployment.front import Front, FrontSettings
from loomrl.serving.deployment.process import check_of, settings_of
from loomrl.serving.durable import open_recorder
from loomrl.serving.gateway import GatewaySettings
from loomrl.serving.recorder import MemoryRecorder, Recorder
from loomrl.serving.refusal import Refusal
from loomrl.serving.request import Caller
from loomrl.serving.speech import LanguageServedPolicy
from loomrl.types import Source
from tests.inference.sample_models import logprobs, tiny_model, tiny_tokenizer
from tests.needs import needs
from tests.serving.local_gateway import LocalGateway, NoKeys
from tests.serving.scripted import Adder

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("one_thread")]
CHAT, TEXT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
CONTEXT = 200
USER = {"role": "user", "content": "1 + 2?"}
ADD = {"type": "object", "properties": {"a": {"type": "integer"}}}


@cache
def words() -> ChatTemplate:
    return ChatTemplate(tiny_tokenizer())


class TwoModels(LocalGateway):
    """Two models: `m` is a small Llama, `adder` a script that calls a tool."""

    async def post(self, path: str, body: Any, **headers: str) -> dict[str, Any]:
        answer = await self.client.post(path, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def refused(self, path: str, body: Any, **headers: str) -> tuple[int, str, str]:
        answer = await self.client.post(path, json=body, headers=headers)
        error = answer.json()["error"]
        return answer.status_code, str(error.get("param")), error["message"]


@asynccontextmanager
async def served(recorder: Recorder | None = None, **options: Any) -> AsyncIterator[TwoModels]:
    model = tiny_model()
    engine = TorchEngine(model, slots=8, context=CONTEXT, version=3)
    policy = LanguageServedPolicy(Voice(engine, words(), Sampling(max_tokens=8), CONTEXT), version="r/3")
    kept = MemoryRecorder(source=Source.PRODUCTION) if recorder is None else recorder
    async with TwoModels({"m": policy, "adder": Adder()}, kept, **options) as gateway:
        yield gateway
    await policy.close()


# -- fields ----------------------------------------------------------------------------------------------------------


async def test_fields_that_mean_nothing_change_nothing() -> None:
    hint = {"cache_control": {"type": "ephemeral"}}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    said = [USER, {"role": "assistant", "content": "3"}, {"role": "user", "content": "And?"}]
    named = [
        {"role": "user", "name": "ann", "content": [{"type": "text", "text": "1 + 2?", **hint}]},
        {
            "role": "assistant",
            "name": "bot",
            "content": [{"type": "text", "text": "3", "role": "assistant"}],
            "reasoning_content": "Hm.",
            "thinking_blocks": [thought],
            "parsed": None,
        },
        {"role": "user", "content": "And?", **hint},
    ]
    blocks = [
        USER,
        {
            "role": "assistant",
            "content": [thought, {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "3"}],
        },
        {"role": "user", "content": "And?"},
    ]
    items = [
        {"role": "user", "content": "1 + 2?", "name": "ann"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"role": "assistant", "content": "3", "phase": "final_answer"},
        {"role": "user", "content": "And?"},
    ]
    tool = {"name": "add", "description": "Sum.", "input_schema": ADD, "eager_input_streaming": True, **hint}
    base = {"model": "m", "max_tokens": 5, "temperature": 0.0}
    async with served() as gateway:
        plain = await gateway.post(CHAT, {**base, "messages": said})
        same = await gateway.post(CHAT, {**base, "messages": named, "stop": [str(at) * 9 for at in range(8)]})
        assert same["choices"] == plain["choices"]
        responses = {"model": "m", "max_output_tokens": 5, "temperature": 0.0}
        whole = await gateway.post(RESPONSES, {**responses, "input": items})
        assert whole["output"][0]["content"][0]["text"] == plain["choices"][0]["message"]["content"]
        thread = {"type": "create"}
        answer = await gateway.post(MESSAGES, {**base, "messages": blocks, "thread": thread})
        assert answer["content"][0]["text"] == plain["choices"][0]["message"]["content"]
        called = await gateway.post(MESSAGES, {**base, "model": "adder", "messages": [USER], "tools": [tool]})
        assert called["stop_reason"] == "tool_use"
        call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
        part = {"type": "text", "text": "3", "role": "assistant", "refusal": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": "c", "content": "3"}
        for own, expected in (([call], 200), ([{**call, "id": "d"}], 400)):
            repeats = {"role": "assistant", "content": [part], "tool_calls": own}
            answer = {**result, "tool_call_id": own[0]["id"]}
            asked = {**base, "model": "adder", "messages": [USER, repeats, answer]}
            assert (await gateway.client.post(CHAT, json=asked)).status_code == expected
        wrong = {**named[1], "content": [{"type": "text", "text": "3", "role": "user"}]}
        status, where, _ = await gateway.refused(CHAT, {**base, "messages": [USER, wrong, USER]})
        assert (status, where) == (400, "messages.1.content.0.role")


async def test_an_answer_continues_what_the_caller_began() -> None:
    begun = [USER, {"role": "assistant", "content": "The answer"}]
    more = {"model": "m", "max_tokens": 6, "temperature": 0.0}
    async with served() as gateway:
        prompt = await gateway.post("/tokenize", {"messages": [USER], "model": "m"})
        ids = [*prompt["tokens"], *words().encode("The answer").tolist()[:-1]]
        expected = (await gateway.post(TEXT, {**more, "prompt": ids}))["choices"][0]["text"]
        flags: list[dict[str, Any]] = [
            {"messages": begun, "continue_final_message": True, "add_generation_prompt": False},
            {"messages": [USER, {**begun[1], "prefix": True}]},
        ]
        for fields in flags:
            assert (await gateway.post(CHAT, {**more, **fields}))["choices"][0]["message"]["content"] == expected
        whole = await gateway.post(MESSAGES, {**more, "messages": begun})
        assert whole["content"][0]["text"] == expected
        streamed = await gateway.client.post(MESSAGES, json={**more, "messages": begun, "stream": True})
        events = [json.loads(line[6:]) for line in streamed.text.splitlines() if line.startswith("data: ")]
        assert "".join(one["delta"]["text"] for one in events if one["type"] == "content_block_delta") == expected
        # without a word of continuing, the assistant speaks again, after its own ids
        one = await gateway.post(f"/sessions/s{CHAT}", {**more, "messages": [USER]})
        said = {"role": "assistant", "content": one["choices"][0]["message"]["content"]}
        two = await gateway.post(f"/sessions/s{CHAT}", {**more, "messages": [USER, said]})
        assert two["usage"]["prompt_tokens_details"]["cached_tokens"] == one["usage"]["total_tokens"]
        again = await gateway.post("/tokenize", {"messages": begun, "model": "m"})
        assert again["count"] > len(ids)
        assert (await gateway.refused(CHAT, {**more, "messages": [USER], "continue_final_message": True}))[0] == 400
        status, where, _ = await gateway.refused(CHAT, {**more, **flags[0], "add_generation_prompt": True})
        assert (status, where) == (400, "add_generation_prompt")


async def test_an_answer_that_was_begun_is_recognised_as_one_message_and_keeps_its_ids() -> None:
    more = {"model": "m", "max_tokens": 6, "temperature": 0.0}
    async with served() as gateway:
        begun = {"role": "assistant", "content": "The answer"}
        first = await gateway.post(f"/sessions/s{MESSAGES}", {**more, "messages": [USER, begun]})
        whole = {"role": "assistant", "content": f"The answer{first['content'][0]['text']}"}
        second = await gateway.post(f"/sessions/s{MESSAGES}", {**more, "messages": [USER, whole, USER]})
        assert second["usage"]["cache_read_input_tokens"] == sum(
            first["usage"][name] for name in ("input_tokens", "output_tokens")
        )
        trajectory = await gateway.gateway.recorder.complete("s")  # type: ignore[union-attr]
    assert trajectory.turns[0].action == whole["content"]


async def test_odds_that_people_set_are_drawn_from_and_on_record() -> None:
    async with served() as gateway:
        wanted = words().plain("é").tolist()[-1:]
        asked = {"model": "m", "messages": [USER], "max_tokens": 3, "logit_bias": {str(wanted[0]): 100}, "top_k": 1}
        await gateway.post(f"/sessions/s{CHAT}", {**asked, "presence_penalty": 0.5, "seed": 1})
        trajectory = await gateway.gateway.recorder.complete("s")  # type: ignore[union-attr]
        tokens = trajectory.turns[0].tokens
        assert tokens is not None
        assert tokens.ids_T[tokens.mask_T].tolist() == wanted * 3
        assert tokens.shifts_T is not None
        shifted = tokens.shifts_T[tokens.mask_T]
        assert np.allclose(shifted, -tokens.logprobs_T[tokens.mask_T], atol=1e-4), "q is 1"
        status, where, _ = await gateway.refused(CHAT, {**asked, "logit_bias": {"999999": 1}})
        assert (status, where) == (400, "logit_bias")
        said = await gateway.post(
            MESSAGES, {"model": "m", "messages": [USER], "max_tokens": 5, "top_k": 1, "temperature": 1}
        )
        plain = await gateway.post(CHAT, {"model": "m", "messages": [USER], "max_tokens": 5, "temperature": 0})
        assert said["content"][0]["text"] == plain["choices"][0]["message"]["content"]


# -- several prompts, echo, scores -----------------------------------------------------------------------------------


async def test_several_prompts_are_answered_each_as_if_alone() -> None:
    more = {"model": "m", "max_tokens": 5, "temperature": 0.0, "n": 2}
    prompts: list[Any] = ["What is", [5, 6, 7], "The answer"]
    async with served() as gateway:
        alone = [(await gateway.post(TEXT, {**more, "prompt": one}))["choices"][0]["text"] for one in prompts[::2]]
        alone.insert(1, (await gateway.post(TEXT, {**more, "prompt": [prompts[1]]}))["choices"][0]["text"])
        for given in (prompts[::2], [prompts[1], [8]]):
            whole = await gateway.post(TEXT, {**more, "prompt": given})
            assert [one["index"] for one in whole["choices"]] == [0, 1, 2, 3]
            texts = [one["text"] for one in whole["choices"]]
            assert texts[0] == texts[1] == alone[prompts.index(given[0])]
        assert whole["usage"]["prompt_tokens"] == 4
        streamed = await gateway.client.post(TEXT, json={**more, "prompt": prompts[::2], "stream": True})
        texts = [""] * 4
        for line in streamed.text.splitlines():
            for choice in json.loads(line[6:])["choices"] if line.startswith("data: {") else ():
                texts[choice["index"]] += choice["text"]
        assert texts == [alone[0]] * 2 + [alone[2]] * 2
        status, where, _ = await gateway.refused(TEXT, {**more, "prompt": ["a"] * 65})
        assert (status, where) == (400, "prompt")


@pytest.mark.parametrize("drawn", [0, 1])
async def test_an_evaluation_harness_gets_the_log_probabilities_of_its_prompts(
    drawn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "SCORE_TOKENS", 7)
    prompts = [[5, 9, 12, 40], [7], list(range(10, 30))]
    asked = {"model": "m", "prompt": prompts, "echo": True, "logprobs": 3, "max_tokens": drawn, "temperature": 0}
    async with served() as gateway:
        whole = await gateway.post(TEXT, asked)
        streamed = await gateway.client.post(TEXT, json={**asked, "stream": True})
    model = tiny_model()
    heard: list[list[Any]] = [[], [], []]
    for line in streamed.text.splitlines():
        for choice in json.loads(line[6:])["choices"] if line.startswith("data: {") else ():
            heard[choice["index"]] += (choice["logprobs"] or {"token_logprobs": []})["token_logprobs"]
    for choice, ids in zip(whole["choices"], prompts, strict=True):
        found = choice["logprobs"]
        assert len(found["tokens"]) == len(ids) + drawn
        assert found["token_logprobs"][0] is found["top_logprobs"][0] is None
        alone = Request(np.array(ids[:1], np.int32), Sampling(), frozenset(), 0)
        expected = logprobs(model, alone, np.array(ids[1:], np.int32))
        assert np.allclose(found["token_logprobs"][1 : len(ids)], expected, atol=1e-4)
        assert all(1 <= len(top) <= 4 for top in found["top_logprobs"][1:]), "bytes may share a text"
        text = "".join(found["tokens"])
        assert found["text_offset"] == [len("".join(found["tokens"][:at])) for at in range(len(found["tokens"]))]
        assert len(text) == len(choice["text"])
        assert heard[choice["index"]] == found["token_logprobs"]


async def test_a_scored_prompt_is_no_answer_on_record() -> None:
    async with served() as gateway:
        asked = {"model": "m", "prompt": "What is", "echo": True, "logprobs": 1, "max_tokens": 0}
        answer = await gateway.client.post(f"/sessions/s{TEXT}", json=asked)
        assert (answer.status_code, answer.headers["x-loomrl-recorded"]) == (200, "false")
        assert answer.json()["choices"][0]["text"] == "What is"
        assert answer.json()["usage"]["completion_tokens"] == 0
        assert (await gateway.refused(TEXT, {**asked, "echo": False}))[1] == "max_tokens"
        long = {**asked, "prompt": [[5] * (CONTEXT + 1)]}
        assert (await gateway.refused(TEXT, long))[0] == 400
        whole = await gateway.post(TEXT, {**asked, "prompt": [[5] * CONTEXT]})
        assert len(whole["choices"][0]["logprobs"]["tokens"]) == CONTEXT


# -- answers named by their ids --------------------------------------------------------------------------------------

TOOL = {"type": "function", "name": "add", "description": "Sum.", "parameters": ADD}


class TokensAsKeys(NoKeys):
    async def caller(self, token: str | None, *, scope: str) -> Caller:
        return Caller(key=token or "")


@pytest.mark.parametrize("is_stored", [False, True])
async def test_answers_are_continued_by_their_ids(is_stored: bool, sqlite_url: str) -> None:
    base = {"model": "adder", "tools": [TOOL]}
    recorder = open_recorder(sqlite_url) if is_stored else MemoryRecorder(source=Source.PRODUCTION)
    async with served(recorder, keys=TokensAsKeys()) as gateway:
        one = {"authorization": "Bearer one"}
        first = await gateway.post(RESPONSES, {**base, "input": "1 + 2?", "instructions": "Add."}, **one)
        text, call = first["output"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "3"}
        whole = {"role": "system", "content": "Subtract."}, USER, text, call, result
        expected = await gateway.post(RESPONSES, {**base, "input": list(whole)}, **one)
        # the AI SDK names the text of an answer and repeats its calls; others name the calls too
        for named in ([call], [{"type": "item_reference", "id": call["id"]}]):
            items = [USER, {"type": "item_reference", "id": text["id"]}, *named, result]
            again = await gateway.client.post(
                RESPONSES, json={**base, "instructions": "Add.", "input": items}, headers=one
            )
            assert again.json()["output"][0]["content"] == expected["output"][0]["content"], again.text
            assert again.json()["usage"]["input_tokens_details"]["cached_tokens"] > 0
        asked = {**base, "previous_response_id": first["id"], "input": [result], "instructions": "Subtract."}
        after = await gateway.post(RESPONSES, asked, **one)
        assert after["previous_response_id"] == first["id"]
        assert after["output"][0]["content"] == expected["output"][0]["content"]
        assert after["usage"]["input_tokens"] == expected["usage"]["input_tokens"], "new instructions replace the old"
        other = {"authorization": "Bearer two"}
        unknown = {**base, "input": "a", "previous_response_id": f"resp_{'0' * 32}"}
        assert (await gateway.refused(RESPONSES, unknown, **one))[:2] == (404, "previous_response_id")
        assert (await gateway.refused(RESPONSES, asked, **other))[:2] == (404, "previous_response_id")
        lost = {**base, "input": [USER, {"type": "item_reference", "id": "msg_1"}]}
        assert (await gateway.refused(RESPONSES, lost, **one))[:2] == (404, "input.1.id")
        if is_stored:  # another gateway has it from LoomDB
            async with served(open_recorder(sqlite_url), keys=TokensAsKeys()) as second:
                found = await second.post(RESPONSES, asked, **one)
                assert found["output"][0]["content"] == after["output"][0]["content"]


async def test_anthropics_threads_continue_answers_on_record() -> None:
    base = {"model": "m", "max_tokens": 4, "temperature": 0.0, "system": "Add."}
    async with served() as gateway:
        first = await gateway.post(MESSAGES, {**base, "messages": [USER], "thread": {"type": "create"}})
        said = {"role": "assistant", "content": first["content"]}
        expected = await gateway.post(MESSAGES, {**base, "messages": [USER, said, USER]})
        thread = {"type": "continue", "previous_message_id": first["id"]}
        after = await gateway.post(MESSAGES, {**base, "messages": [USER], "thread": thread})
        assert (after["content"], after["usage"]) == (expected["content"], expected["usage"])
        bare = await gateway.post(MESSAGES, {**base, "system": None, "messages": [USER], "thread": thread})
        assert (bare["content"], bare["usage"]) == (expected["content"], expected["usage"]), "the thread has its system"
        # as the SDK's tool runner: only what is new, neither tools nor system again
        adding = {"model": "adder", "max_tokens": 9, "messages": [USER], "system": "Add."}
        tool = {"name": "add", "description": "Sum.", "input_schema": ADD}
        one = await gateway.post(MESSAGES, {**adding, "tools": [tool], "thread": {"type": "create"}})
        result = {"type": "tool_result", "tool_use_id": one["content"][-1]["id"], "content": "3 + 4"}
        thread = {"type": "continue", "previous_message_id": one["id"]}
        turn = {"model": "adder", "max_tokens": 9, "messages": [{"role": "user", "content": [result]}]}
        two = await gateway.post(MESSAGES, {**turn, "thread": thread})
        assert (two["stop_reason"], two["content"][-1]["input"]) == ("tool_use", {"a": 3, "b": 4})
        assert two["usage"]["cache_read_input_tokens"] > 0
        unknown = {**base, "messages": [USER], "thread": {**thread, "previous_message_id": "msg_x"}}
        answer = await gateway.client.post(MESSAGES, json=unknown)
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")


async def test_what_was_redacted_is_not_recalled_in_other_words(sqlite_url: str) -> None:
    secret = "My mail is ann@example.org: 1 + 2?"
    async with served(open_recorder(sqlite_url)) as gateway:
        first = await gateway.post(RESPONSES, {"model": "adder", "input": secret})
        asked = {"model": "adder", "input": "And?", "previous_response_id": first["id"]}
        assert (await gateway.client.post(RESPONSES, json=asked)).status_code == 200, "this gateway has it in memory"
        async with served(open_recorder(sqlite_url)) as second:
            status, _, message = await second.refused(RESPONSES, asked)
            assert (status, "redacted" in message) == (404, True)


@pytest.mark.parametrize(("source", "kept"), [(Source.ROLLOUT, True), (Source.PRODUCTION, False)])
async def test_an_agent_that_is_trained_is_on_record_whatever_its_client_sets(source: Source, kept: bool) -> None:
    recorder = MemoryRecorder(source=source)
    async with served(recorder) as gateway:
        asked = {"model": "m", "messages": [USER], "store": False}
        answer = await gateway.client.post(f"/sessions/s{CHAT}", json=asked)
        assert answer.headers["x-loomrl-recorded"] == str(kept).lower()


# -- tokens without an answer ----------------------------------------------------------------------------------------


async def test_tokens_are_counted_and_shown_as_the_policy_reads_them() -> None:
    async with served() as gateway:
        told = {"model": "m", "messages": [USER], "system": "Add."}
        counted = await gateway.post(f"{MESSAGES}/count_tokens", told)
        answered = await gateway.post(MESSAGES, {**told, "max_tokens": 1})
        assert counted["input_tokens"] == answered["usage"]["input_tokens"]
        text = await gateway.post("/tokenize", {"model": "m", "prompt": "What is é?", "return_token_strs": True})
        assert text["tokens"] == words().plain("What is é?").tolist()
        assert (text["count"], text["max_model_len"]) == (len(text["tokens"]), CONTEXT)
        assert len(text["token_strs"]) == text["count"]
        back = await gateway.post("/detokenize", {"model": "m", "tokens": text["tokens"]})
        assert back == {"prompt": "What is é?"}
        much = await gateway.post(f"{MESSAGES}/count_tokens", {**told, "messages": [{**USER, "content": "é" * 5000}]})
        assert much["input_tokens"] > CONTEXT, "a count says how much too long it is"
        assert (await gateway.refused("/detokenize", {"model": "m", "tokens": [10**6]}))[0] == 400
        both = {"model": "m", "prompt": "a", "messages": [USER]}
        assert (await gateway.refused("/tokenize", both))[:2] == (400, "prompt")
        assert (await gateway.refused("/tokenize", {"model": "m", "prompt": "a", "add_special_tokens": False}))[
            0
        ] == 400
        status, where, message = await gateway.refused("/v1/embeddings", {"model": "m", "input": "a"})
        assert (status, where, "no embeddings" in message) == (404, "model", True)


# -- unknown fields --------------------------------------------------------------------------------------------------


async def test_unknown_fields_are_refused_or_ignored_by_name() -> None:
    asked = {"model": "m", "messages": [{**USER, "mood": "é\n"}], "web_search_options": {}, "verbosity": "low"}
    async with served() as gateway:
        assert (await gateway.refused(CHAT, asked))[0] == 400
    async with served(settings=GatewaySettings(unknown="ignore")) as gateway:
        answer = await gateway.client.post(CHAT, json=asked)
        assert answer.status_code == 200, answer.text
        assert set(answer.headers["x-loomrl-ignored"].split(", ")) == {
            "messages.0.mood",
            "web_search_options",
            "verbosity",
        }
        assert (
            "x-loomrl-ignored" not in (await gateway.client.post(CHAT, json={"model": "m", "messages": [USER]})).headers
        )
        odd = {"model": "m", "messages": [USER], "é\r\nx": 1}
        assert (await gateway.client.post(CHAT, json=odd)).headers["x-loomrl-ignored"] == "%C3%A9%0D%0Ax"
        # what is wrong is not unknown
        assert (await gateway.refused(CHAT, {"model": "m", "messages": [{"role": "user"}]}))[0] == 400
        assert (await gateway.refused(CHAT, {"model": "m", "messages": [USER], "temperature": 9}))[0] == 400
        counted = await gateway.client.post("/tokenize", json={"model": "m", "messages": [{**USER, "mood": 1}]})
        assert counted.headers["x-loomrl-ignored"] == "messages.0.mood"
        many = {f"field{at}": 0 for at in range(65)}
        assert (await gateway.refused(CHAT, {"model": "m", "messages": [USER], **many}))[0] == 400


def test_the_service_is_told_by_its_experiment_and_refusals_name_options_that_exist() -> None:
    def serving(*more: str) -> ServingExperiment:
        found = load_any([], ["kind=serving", "name=x", "arms=[{what: folder}]", *more])
        assert isinstance(found, ServingExperiment)
        return found

    assert settings_of(serving("unknown=ignore")).unknown == "ignore"
    with pytest.raises(Refusal, match=r"allowed_hosts=\[evil.example\]") as refused:
        check_of(serving(), ())("GET", {"host": "evil.example:80"})
    (option,) = re.findall(r"allowed_hosts=\S+\]", str(refused.value))
    check_of(serving(option), ())("GET", {"host": "evil.example:80"})


# -- HTTP ------------------------------------------------------------------------------------------------------------


def raw(url: str, *requests: bytes) -> bytes:
    """The bytes that answer requests on one connection."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        found = b""
        for request in requests:
            connection.sendall(request)
            part = b""
            while (got := connection.recv(65536)) and not (part := part + got).endswith(b"}"):
                pass
            found += part
        return found


def http(path: str, body: Any, version: str = "1.1", **headers: str) -> bytes:
    content = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/{version}", "host: 127.0.0.1", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()] + [f"content-length: {len(content)}"]
    return "\r\n".join([*lines, "", ""]).encode() + content


async def test_a_wrong_method_is_405_and_says_which_is_right() -> None:
    async with served() as gateway:
        for method, path, right in (
            ("GET", CHAT, "POST"),
            ("DELETE", "/v1/models", "GET"),
            ("PUT", "/tokenize", "POST"),
        ):
            answer = await gateway.client.request(method, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, right)
        answer = await gateway.client.get(MESSAGES)
        assert (answer.status_code, answer.json()["type"]) == (405, "error")


async def test_streams_to_http_1_0_end_with_the_connection() -> None:
    body = {"model": "m", "messages": [USER], "max_tokens": 3, "stream": True}
    async with served() as gateway:
        old = await asyncio.to_thread(raw, gateway.url, http(CHAT, body, "1.0"))
        head, _, content = old.partition(b"\r\n\r\n")
        assert b"chunked" not in head.lower()
        assert content.startswith(b"data: {")
        assert content.endswith(b"data: [DONE]\n\n")
        whole = await asyncio.to_thread(raw, gateway.url, http(CHAT, {**body, "stream": False}, "1.0"))
        assert json.loads(whole.partition(b"\r\n\r\n")[2])["object"] == "chat.completion"


async def test_an_offer_of_http_2_is_ignored() -> None:
    body = {"model": "m", "messages": [USER], "max_tokens": 3}
    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAMAAABk"}
    async with served() as gateway:
        found = await asyncio.to_thread(raw, gateway.url, http(CHAT, body, **offer), http(CHAT, body))
    assert found.count(b"HTTP/1.1 200 OK") == 2
    assert found.count(b"chat.completion") == 2


@needs("HAProxy")
async def test_the_front_passes_all_of_it_on(unused_tcp_port: int) -> None:
    body = {"model": "m", "messages": [USER], "max_tokens": 3}
    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAMAAABk"}
    async with served(settings=GatewaySettings(unknown="ignore")) as gateway:
        front = Front(FrontSettings(host="127.0.0.1", port=unused_tcp_port))
        await front.start()
        await front.follow([gateway.url.removeprefix("http://")])
        try:
            async with httpx.AsyncClient(base_url=front.url) as client:
                assert (await client.get(CHAT)).headers["allow"] == "POST"
                counted = await client.post("/tokenize", json={"model": "m", "prompt": "What"})
                assert counted.json()["tokens"] == words().plain("What").tolist()
                odd = await client.post(CHAT, json={**body, "verbosity": "low"})
                assert odd.headers["x-loomrl-ignored"] == "verbosity"
            old = await asyncio.to_thread(raw, front.url, http(CHAT, {**body, "stream": True}, "1.0"))
            assert b"chunked" not in old.partition(b"\r\n\r\n")[0].lower()
            assert old.endswith(b"data: [DONE]\n\n")
            found = await asyncio.to_thread(raw, front.url, http(CHAT, body, **offer), http(CHAT, body))
            assert found.count(b"chat.completion") == 2
        finally:
            await front.close()
