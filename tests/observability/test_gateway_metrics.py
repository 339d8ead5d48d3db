"""What a gateway counts: calls by the arm they were given to, its tokens, its times, and how full it is."""

import asyncio
import random
import time

import pytest

from loomrl.serving.acting import ControlServedPolicy
from loomrl.serving.deployment.key import StoredKeys
from loomrl.serving.gateway import GatewaySettings
from loomrl.serving.meter import ErrorRates
from loomrl.serving.split import assign_arm
from loomrl.store import LoomDB
from loomrl.store.endpoints import Arm, Role
from loomrl.store.keys import create_key
from tests.observability.gateway_samples import metered, served
from tests.serving.control_support import control_policy
from tests.serving.scripted import Script
from tests.serving.test_gateway import Slow

pytestmark = pytest.mark.system
CHAT, HELLO = "/v1/chat/completions", {"model": "e", "messages": [{"role": "user", "content": "Hello"}]}
CALLS = "loomrl_gateway_calls_total"
STABLE = {"endpoint": "e", "arm": "stable"}


async def test_an_answered_call_has_its_outcome_its_tokens_and_its_times() -> None:
    async with metered(served({"stable": Slow(tokens=5)})) as gateway:
        answer = await gateway.client.post(CHAT, json=HELLO)
        assert answer.status_code == 200, answer.text
        streamed = await gateway.client.post(CHAT, json=HELLO | {"stream": True})
        assert "[DONE]" in streamed.text
        value = gateway.value
        assert await value(CALLS, **STABLE, model_version="slow", outcome="answered") == 2
        assert await value("loomrl_gateway_tokens_total", **STABLE, kind="completion") == 10
        assert await value("loomrl_gateway_tokens_total", **STABLE, kind="prompt") == 4
        assert await value("loomrl_gateway_first_token_seconds_count", **STABLE) == 2
        assert await value("loomrl_gateway_latency_seconds_count", **STABLE) == 2
        rate = await value("loomrl_gateway_tokens_per_second_sum", **STABLE)
        assert 0 < rate / 2 < 1100, "a token a millisecond"
        assert await value("agent_rl_model_errors_total", model_version="slow") == 0
        assert await value("agent_rl_model_error_rate", model_version="slow") == 0


async def test_a_call_that_another_arm_answered_is_an_error_of_the_version_it_was_given_to() -> None:
    arms = Arm(name="stable", policy="good", share=0.5), Arm(name="canary", policy="bad", share=0.5, role=Role.CANARY)
    view = served({"good": Script(random.Random(1)), "bad": Slow(error_at=0)}, *arms)
    user = next(each for n in range(100) if (found := assign_arm(view.known["e"], (), each := f"u{n}"))
                and found.arm.name == "canary")  # fmt: skip
    async with metered(view) as gateway:
        answer = await gateway.client.post(CHAT, json=HELLO | {"user": user})
        assert answer.headers["x-loomrl-arm"] == "stable"
        value = gateway.value
        assert await value(CALLS, endpoint="e", arm="canary", model_version="slow", outcome="moved") == 1
        assert await value("agent_rl_model_errors_total", model_version="slow") == 1
        assert await value("agent_rl_model_error_rate", model_version="slow") == 1
        assert await value("loomrl_gateway_latency_seconds_count", **STABLE) == 1


async def test_a_call_that_breaks_off_failed_and_one_whose_caller_leaves_is_gone() -> None:
    async with metered(served({"stable": Slow(error_at=3)})) as gateway:
        assert (await gateway.client.post(CHAT, json=HELLO)).status_code == 503
        assert await gateway.value(CALLS, **STABLE, model_version="slow", outcome="failed") == 1
        assert await gateway.value("loomrl_gateway_refusals_total", cause="unavailable") == 1
    slow = Slow()
    async with metered(served({"stable": slow})) as gateway:
        async with gateway.client.stream("POST", CHAT, json=HELLO | {"stream": True}) as answer:
            await anext(answer.aiter_bytes())
        async with asyncio.timeout(10):
            while slow.open:  # noqa: ASYNC110 - of the policy
                await asyncio.sleep(0.01)
        assert await gateway.value(CALLS, **STABLE, model_version="slow", outcome="gone") == 1
        assert await gateway.value("agent_rl_model_errors_total", model_version="slow") == 0


async def test_a_wrong_request_is_refused_and_no_error_of_the_version() -> None:
    async with metered(served({"stable": ControlServedPolicy(control_policy(), version="r/1", number=1)})) as gateway:
        wrong = await gateway.client.post("/v1/act", json={"observation": [0, 0]})
        assert wrong.status_code == 400
        right = await gateway.client.post("/v1/act", json={"observation": [0, 0, 0, 0]})
        assert right.status_code == 200, right.text
        value = gateway.value
        assert await value(CALLS, **STABLE, model_version="r/1", outcome="answered") == 1
        assert await value("agent_rl_model_errors_total", model_version="r/1") in (0, None)
        assert await value("loomrl_gateway_refusals_total", cause="invalid") == 1


async def test_a_full_gateway_shows_its_queue() -> None:
    slow = Slow(first_s=0.5, tokens=1)
    async with metered(served({"stable": slow}), settings=GatewaySettings(slots=1, queue=1)) as gateway:
        asked = [asyncio.create_task(gateway.client.post(CHAT, json=HELLO)) for _ in range(3)]
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert await gateway.value("loomrl_gateway_busy", endpoint="e") == 1
        assert await gateway.value("loomrl_gateway_waiting", endpoint="e") == 1
        assert await gateway.value("loomrl_gateway_queue", endpoint="e") == 1
        statuses = sorted(answer.status_code for answer in await asyncio.gather(*asked))
        assert statuses == [200, 200, 429]
        assert await gateway.value("loomrl_gateway_waiting", endpoint="e") == 0


async def test_metrics_need_a_key_of_their_scope_where_keys_are_needed(store: LoomDB) -> None:
    reading, _ = create_key(store, "prometheus", scopes=["metrics"], at=time.time())
    acting, _ = create_key(store, "app", scopes=["act"], at=time.time())
    keys = StoredKeys(store, required=True)
    async with metered(served({"stable": Slow(tokens=1)}), keys=keys) as gateway:
        get, bearer = gateway.client.get, "Bearer {}".format
        assert (await get("/metrics")).status_code == 401
        assert (await get("/metrics", headers={"authorization": bearer(acting)})).status_code == 403
        assert (await get("/metrics", headers={"authorization": bearer(reading)})).status_code == 200


def test_errors_older_than_the_window_are_forgotten() -> None:
    now = 0.0
    rates = ErrorRates(lambda: now)

    def rate() -> list[float]:
        (found,) = rates.collect()
        return [sample.value for sample in found.samples]

    assert rate() == []
    rates.note("v", is_error=True)
    rates.note("v", is_error=False)
    assert rate() == [0.5]
    now = 200.0
    rates.note("v", is_error=False)
    assert rate() == [pytest.approx(1 / 3)]
    now = 301.0
    assert rate() == [0.0]
    now = 501.0
    assert rate() == []
