"""The preference of a request, as a policy behind the gateway reads it."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from loomrl.serving.local import LocalGateway
from loomrl.serving.recorder import MemoryRecorder
from tests.serving.adder import Adder, Weigher


@pytest.fixture
def policy() -> Weigher:
    return Weigher()


@pytest.fixture
async def url(policy: Weigher) -> AsyncIterator[str]:
    async with LocalGateway({"steered": policy, "plain": Adder()}, MemoryRecorder()) as gateway:
        yield gateway.url


HELLO: tuple[dict[str, str], ...] = ({"role": "user", "content": "Hello"},)


async def ask(
    url: str, *messages: dict[str, str], model: str = "steered", session: str = "", **more: Any
) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        body = {"model": model, "messages": list(messages or HELLO), **more}
        return await client.post(f"{url}{session}/v1/chat/completions", json=body)


async def test_it_is_the_last_line_of_the_system_message(policy: Weigher, url: str) -> None:
    await ask(url, preference={"right": 0.25, "short": 0.75})
    await ask(url, {"role": "system", "content": "Be kind."}, *HELLO, preference={"right": 1})
    await ask(url)
    told = [(asked.messages[0].role, asked.messages[0].text) for asked in policy.asked]
    assert told == [
        ("system", "Preference: right 25, short 75."),
        ("system", "Be kind.\nPreference: right 100, short 0."),
        ("system", "Preference: right 50, short 50."),
    ]


async def test_a_conversation_goes_on_by_the_same_preference_and_begins_anew_by_another(
    policy: Weigher, url: str
) -> None:
    preference = {"right": 0.25, "short": 0.75}
    answer = (await ask(url, preference=preference, session="/sessions/s")).json()["choices"][0]["message"]
    more = (*HELLO, {"role": "assistant", "content": answer["content"]}, {"role": "user", "content": "More"})
    await ask(url, *more, preference=preference, session="/sessions/s")
    await ask(url, *more, preference={"right": 1}, session="/sessions/s")
    assert [bool(asked.known_T.size) for asked in policy.asked] == [False, True, False]


@pytest.mark.parametrize(
    ("model", "preference", "says"),
    [
        ("plain", {"right": 1}, "reads no preference"),
        ("steered", {"rihgt": 1}, "no objective is named rihgt; known: right, short"),
        ("steered", {"right": 0.5}, "sum to 0.5"),
        ("steered", {"right": "much"}, "finite numbers"),
        ("steered", "right", "object"),
    ],
)
async def test_what_is_no_preference_of_this_policy_is_refused(
    url: str, model: str, preference: object, says: str
) -> None:
    refused = await ask(url, model=model, preference=preference)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"].startswith("preference")
    assert says in refused.json()["error"]["message"]


async def test_the_list_of_models_names_the_objectives(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        steered, plain = [(await client.get(f"/v1/models/{name}")).json() for name in ("steered", "plain")]
        listed = (await client.get("/v1/models")).json()["data"]
        theirs = (await client.get("/v1/models/steered", headers={"anthropic-version": "2023-06-01"})).json()
    assert steered["objectives"] == ["right", "short"]
    assert "objectives" not in plain
    assert listed == [steered, plain]
    assert "objectives" not in theirs
