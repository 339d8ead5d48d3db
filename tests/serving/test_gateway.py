"""The gateway over real HTTP, before a policy of a script: answers, records, refusals, callers who leave."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from loomrl.serving.call import ChoiceClosed, Event, PromptOpened
from loomrl.serving.gateway import GatewaySettings, Mode
from loomrl.serving.policy import ActRequest, ActResult, Continuation, ServedPolicy
from loomrl.serving.recorder import MemoryRecorder
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.request import Caller
from loomrl.store.endpoints import Arm, Endpoint, Role, State
from loomrl.types import Source
from tests.serving.control_support import acting_policy
from tests.serving.local_gateway import FixedView, LocalGateway, NoKeys
from tests.serving.scripted import Script, Speaker, tokens_drawn
from tests.serving.waiting import until

pytestmark = pytest.mark.system
HELLO = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
CHAT = "/v1/chat/completions"


class Slow(Speaker):
    """Draws a token a millisecond until it is told to stop, or for ever."""

    about = replace(Speaker.about, version="slow")

    def __init__(self, *, tokens: int = 1 << 30, first_s: float = 0.0, error_at: int | None = None) -> None:
        self._tokens, self._first_s, self._error_at = tokens, first_s, error_at
        self.open = 0
        self.drawn = 0

    async def act(self, act: ActRequest) -> ActResult:
        await asyncio.sleep(self._first_s)
        raise Refusal(RefusalCause.UNAVAILABLE, "no")

    async def answer(self, continuation: Continuation) -> AsyncIterator[Event]:
        self.open += 1
        try:
            await asyncio.sleep(self._first_s)
            yield PromptOpened(ids_T=np.array([1, 2], np.int32))
            for number in range(self._tokens):
                if number == self._error_at:
                    raise Refusal(RefusalCause.UNAVAILABLE, "the engine broke", retry_after_s=1.0)
                self.drawn += 1
                yield tokens_drawn([number + 3], "x", logprobs=-number - 3, versions=number + 3)
                await asyncio.sleep(0.001)
            yield ChoiceClosed(text="x" * self._tokens, finish="stop")
        finally:
            self.open -= 1


class Serving(LocalGateway):
    """A gateway whose recorder is in memory."""

    def __init__(
        self, policies: "dict[str, ServedPolicy] | FixedView", *, mode: Mode = "before", **settings: Any
    ) -> None:
        recorder = MemoryRecorder(source=Source.PRODUCTION)
        super().__init__(policies, recorder, mode=mode, settings=GatewaySettings(**settings))

    async def post(self, path: str, body: Any = HELLO, **headers: str) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.post(path, content=content, headers={"content-type": "application/json", **headers})


def arms(*each: tuple[str, ServedPolicy, float, str]) -> FixedView:
    listed = tuple(Arm(name=name, policy=name, share=share, role=Role(role)) for name, _, share, role in each)
    return FixedView({"m": endpoint(*listed)}, {name: [policy] for name, policy, _, _ in each})


def endpoint(*listed: Arm, state: State = State.SERVING) -> Endpoint:
    return Endpoint(name="m", revision=1, arms=listed, state=state, created_at=0.0)


async def test_an_answer_says_who_gave_it_and_what_recorded_it() -> None:
    policy = Script()
    async with Serving({"m": policy}) as served:
        answer = await served.post(f"/sessions/one{CHAT}", **{"x-request-id": "mine"})
        assert answer.status_code == 200
        names = ("version", "arm", "recorded", "session", "trajectory")
        assert [answer.headers[f"x-loomrl-{name}"] for name in names] == ["v", "stable", "true", "one", "one"]
        assert answer.headers["x-request-id"] == "mine"
        trajectory = await served.gateway.recorder.complete("one")
    tokens = trajectory.tokens
    assert tokens is not None
    assert tuple(tokens.ids_T[tokens.mask_T].tolist()) == policy.log[0].ids
    assert answer.json()["usage"]["completion_tokens"] == len(policy.log[0].ids)


async def test_a_conversation_goes_on_with_its_ids_streamed_or_not() -> None:
    policy = Script()
    async with Serving({"m": policy}) as served:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
        for turn in range(6):
            body = {"model": "m", "messages": messages, "stream": turn % 2 == 1}
            answer = await served.post(f"/sessions/s{CHAT}", body)
            assert answer.status_code == 200, answer.text
            messages.append({"role": "assistant", "content": said(answer)})
            messages.append({"role": "user", "content": f"And {turn}?"})
        for before, after in zip(policy.log, policy.log[1:], strict=False):
            assert after.context[: len(before.context) + len(before.ids)] == (*before.context, *before.ids)


def said(answer: httpx.Response) -> str:
    if answer.headers["content-type"].startswith("application/json"):
        return str(answer.json()["choices"][0]["message"]["content"])
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    return "".join(json.loads(line)["choices"][0]["delta"].get("content") or "" for line in lines)


async def test_callers_who_name_no_session_are_known_by_what_was_said() -> None:
    policy = Script()
    async with Serving({"m": policy}) as served:
        first = await served.post(CHAT)
        other = await served.post(CHAT)
        more = [*HELLO["messages"], {"role": "assistant", "content": said(first)}, {"role": "user", "content": "?"}]
        second = await served.post(CHAT, {"model": "m", "messages": more})
        sessions = [each.headers["x-loomrl-session"] for each in (first, other, second)]
        assert sessions[0] == sessions[2] != sessions[1]


async def test_the_key_itself_can_be_the_session() -> None:
    async with Serving({"m": Script()}) as served:
        answer = await served.post(CHAT, authorization="Bearer any~box-7")
        assert answer.headers["x-loomrl-session"] == "box-7"


async def test_opting_out_leaves_no_record() -> None:
    async with Serving({"m": Script()}) as served:
        answer = await served.post(f"/sessions/s{CHAT}", {**HELLO, "store": False})
        assert (answer.status_code, answer.headers["x-loomrl-recorded"]) == (200, "false")
        assert (await served.post("/sessions/s/complete", {})).status_code == 404


async def test_a_completed_session_is_a_trajectory_and_takes_no_more() -> None:
    async with Serving({"m": Script()}) as served:
        await served.post(f"/sessions/s{CHAT}")
        told = {"reward": 0.5, "success": 1, "correct": 0}
        assert (await served.post("/sessions/s/complete", told | {"correct": 2})).status_code == 400
        for _ in range(2):
            assert (await served.post("/sessions/s/complete", told)).json() == {"session": "s", "trajectory": "s"}
        assert (await served.post("/sessions/s/complete", {"reward": 1})).status_code == 409
        assert (await served.post(f"/sessions/s{CHAT}")).status_code == 409
        assert (await served.post("/sessions/s/complete", {"rewards": 1})).status_code == 400


async def test_a_caller_who_hangs_up_frees_the_engine_and_what_was_drawn_is_on_record() -> None:
    policy = Slow()
    async with Serving({"m": policy}) as served:
        body = json.dumps({**HELLO, "stream": True})
        async with served.client.stream("POST", f"/sessions/s{CHAT}", content=body) as answer:
            async for _ in answer.aiter_bytes():
                break
        await until(lambda: policy.open == 0)
        await until(lambda: not served.gateway._tasks)
        trajectory = await served.gateway.recorder.complete("s")
    tokens = trajectory.tokens
    assert tokens is not None
    assert tokens.ids_T[tokens.mask_T].tolist() == list(range(3, 3 + int(tokens.mask_T.sum())))
    assert tokens.mask_T.any()


async def test_the_deadline_ends_every_call() -> None:
    for stream in (False, True):
        policy = Slow()
        async with Serving({"m": policy}, deadline_s=0.3) as served:
            answer = await served.post(CHAT, {**HELLO, "stream": stream})
            if stream:
                assert "deadline" in answer.text
            else:
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            await until(lambda policy=policy: policy.open == 0)


async def test_an_arm_that_is_late_or_broken_is_answered_by_the_stable_one() -> None:
    for bad in (Slow(first_s=60), Slow(error_at=0)):
        view = arms(("stable", Script(), 0.0, "stable"), ("canary", bad, 1.0, "canary"))
        async with Serving(view, deadline_s=1.0) as served:
            for stream in (False, True):
                answer = await served.post(CHAT, {**HELLO, "stream": stream})
                assert (answer.status_code, answer.headers["x-loomrl-arm"]) == (200, "stable")
            await until(lambda bad=bad: bad.open == 0)


async def test_a_caller_may_name_an_arm_which_then_answers_alone() -> None:
    view = arms(("old", Script(), 1.0, "stable"), ("new", Script(), 0.0, "canary"), ("deaf", Script(), 1.0, "shadow"))
    async with Serving(view) as served:
        for name in ("old", "new"):
            answer = await served.post("/v1/chat/completions", HELLO | {"model": f"m@{name}"})
            assert (answer.status_code, answer.headers["x-loomrl-arm"]) == (200, name)
        for name in ("deaf", "nobody", ""):
            refused = await served.post("/v1/chat/completions", HELLO | {"model": f"m@{name}"})
            assert (refused.status_code, "Known: m@old, m@new." in refused.text) == (404, True)


async def test_a_stream_that_breaks_says_so_and_ends() -> None:
    async with Serving({"m": Slow(error_at=3)}) as served:
        answer = await served.post(CHAT, {**HELLO, "stream": True})
        assert "the engine broke" in answer.text
        assert "[DONE]" not in answer.text


async def test_nobody_up_is_503_with_a_time_to_try_again() -> None:
    view = FixedView({"m": endpoint(Arm(name="stable", policy="gone"))}, {})
    async with Serving(view) as served:
        answer = await served.post(CHAT)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert (await served.client.get("/readyz")).status_code == 503
        assert (await served.client.get("/healthz")).status_code == 200


async def test_a_full_house_is_429_and_frees_itself() -> None:
    policy = Slow(tokens=300)
    async with Serving({"m": policy}, slots=2, queue=1) as served:
        answers = await asyncio.gather(*(served.post(CHAT) for _ in range(8)))
        assert sorted(answer.status_code for answer in answers) == [200] * 3 + [429] * 5
        assert all(answer.headers["retry-after"] for answer in answers if answer.status_code == 429)
        assert (await served.post(CHAT)).status_code == 200


async def test_a_shadow_answers_unheard_and_is_on_record_by_itself() -> None:
    shadow = Script()
    async with Serving(arms(("stable", Script(), 1.0, "stable"), ("next", shadow, 1.0, "shadow"))) as served:
        answer = await served.post(f"/sessions/s{CHAT}")
        assert answer.headers["x-loomrl-arm"] == "stable"
        await until(lambda: bool(shadow.log) and not served.gateway._tasks)
        assert (await served.gateway.recorder.complete("s~next")).turns[0].tokens is not None


async def test_a_draining_endpoint_goes_on_with_what_it_knows_only() -> None:
    view = arms(("stable", Script(), 1.0, "stable"))
    async with Serving(view) as served:
        first = await served.post(f"/sessions/s{CHAT}")
        view.known["m"] = endpoint(*view.known["m"].arms, state=State.DRAINING)  # type: ignore[index]
        assert (await served.post(f"/sessions/t{CHAT}")).status_code == 503
        more = [*HELLO["messages"], {"role": "assistant", "content": said(first)}, {"role": "user", "content": "?"}]
        assert (await served.post(f"/sessions/s{CHAT}", {"model": "m", "messages": more})).status_code == 200


class Spent(NoKeys):
    """Knows everybody, and nobody has anything left: for a while, or for good."""

    def __init__(self, retry_after_s: float | None) -> None:
        self.retry_after_s = retry_after_s

    async def caller(self, token: str | None, *, scope: str) -> Caller:
        raise Refusal(RefusalCause.BUDGET, "nothing is left", retry_after_s=self.retry_after_s)


@pytest.mark.parametrize(
    ("retry_after_s", "after", "again"),
    [(None, None, "false"), pytest.param(2.0, "2", None, id="for a while")],
)
async def test_a_spent_budget_is_tried_again_only_if_waiting_helps(
    retry_after_s: float | None, after: str | None, again: str | None
) -> None:
    async with LocalGateway({"m": Script()}, None, keys=Spent(retry_after_s)) as gateway:
        answer = await gateway.client.post(CHAT, json=HELLO)
        assert answer.status_code == 429
        assert (answer.headers.get("retry-after"), answer.headers.get("x-should-retry")) == (after, again)


async def test_large_bodies_are_read_as_small_ones() -> None:
    policy = Script()
    async with Serving({"m": policy}) as served:
        long = {"model": "m", "messages": [{"role": "user", "content": "a" * 300_000}]}
        assert (await served.post(CHAT, long)).status_code == 200
        assert (await served.post(CHAT, {**long, "frequency": 1})).status_code == 400
    assert len(policy.log[0].context) > 300_000


@pytest.mark.parametrize(
    ("path", "body", "status", "named"),
    [
        (CHAT, b"{", 400, "not JSON"),
        (CHAT, b"\xff\xfe\x00", 400, "not JSON"),
        (CHAT, b'{"model": "\xff"}', 400, "not JSON"),
        pytest.param(CHAT, b"[" * 100_000, 400, "not JSON", id="deep"),
        (CHAT, b"[]", 400, "object"),
        (CHAT, {**HELLO, "model": "other"}, 404, "Known: m"),
        (CHAT, {**HELLO, "frequency": 1}, 400, "frequency"),
        pytest.param(CHAT, b" " * 3000, 413, "at most 2000", id="large"),
        ("/v1/nothing", {}, 404, "Known"),
        ("/sessions/a b" + CHAT, HELLO, 400, "session"),
        ("/v1/act", {"observation": [1]}, 400, "language policy"),
    ],
)
async def test_what_is_wrong_is_refused_in_the_apis_own_shape(path: str, body: Any, status: int, named: str) -> None:
    async with Serving({"m": Script()}, max_bytes=2000 if status == 413 else 10 << 20) as served:
        answer = await served.post(path, body)
        assert answer.status_code == status
        assert named in answer.json()["error"]["message"]


async def test_models_are_listed() -> None:
    async with Serving({"m": Script()}) as served:
        mine = {"id": "m", "object": "model", "created": 0, "owned_by": "loomrl"}
        assert (await served.client.get("/v1/models")).json()["data"] == [mine]
        assert (await served.client.get("/v1/models/m")).json() == mine
        assert (await served.client.get("/v1/models/x")).status_code == 404
        served.client.headers["anthropic-version"] = "2023-06-01"
        listed = (await served.client.get("/v1/models")).json()
        assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("m", "m", False)
        assert listed["data"][0]["created_at"] == "1970-01-01T00:00:00Z"
        unknown = await served.client.get("/v1/models/x")
        assert (unknown.status_code, unknown.json()["type"]) == (404, "error")


async def test_control_acts_beside_language() -> None:
    policies = {"pole": acting_policy(), "gru": acting_policy(memory="gru", version="run/4"), "m": Script()}
    async with Serving(policies) as served:
        answer = await served.post("/v1/act", {"model": "pole", "observation": [0.0] * 4})
        assert (answer.json()["action"], answer.headers["x-loomrl-version"]) in [(0, "run/3"), (1, "run/3")]
        chatting = await served.post(CHAT, {**HELLO, "model": "pole"})
        assert (chatting.status_code, "cannot chat" in chatting.text) == (400, True)
        assert (await served.post("/v1/act", {"observation": [1]})).status_code == 404
        buffer = io.BytesIO()
        np.save(buffer, np.zeros((1, 4)))
        headers = {"content-type": "application/x-npy"}
        packed = [await served.post(f"/v1/act?model={name}", buffer.getvalue(), **headers) for name in ("pole", "gru")]
        assert [each.status_code for each in packed] == [200, 400]
        assert "no place in a .npy" in packed[1].text, "its answer cannot hold the state of a memory"
