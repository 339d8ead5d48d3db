"""Dispatch: arms are sticky and get their shares, calls are admitted in turn, and preferences are checked."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomrl.serving.recorder import MemoryRecorder
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.room import Room
from loomrl.serving.split import choose_arm, shadows, stable
from loomrl.store.endpoints import Arm, Role
from tests.serving.local_gateway import LocalGateway
from tests.serving.scripted import Adder, Weigher
from tests.serving.waiting import refuses

SESSIONS = [f"s{number}" for number in range(4000)]


def arms(canary: float, shadow: float = 0.0) -> list[Arm]:
    return [
        Arm(name="stable", policy="r/1", share=1 - canary),
        Arm(name="canary", policy="r/2", share=canary, role=Role.CANARY),
        Arm(name="shadow", policy="r/3", share=shadow, role=Role.SHADOW),
    ]


def on_canary(share: float, sessions: list[str] = SESSIONS) -> set[str]:
    found = ((session, choose_arm("e", arms(share), session)) for session in sessions)
    return {session for session, arm in found if arm is not None and arm.name == "canary"}


@settings(max_examples=20)
@given(st.floats(0, 1), st.floats(0, 1))
def test_raising_a_share_moves_nobody_back(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert on_canary(low, SESSIONS[:200]) <= on_canary(high, SESSIONS[:200])


def test_shares_are_met() -> None:
    for share in (0.0, 0.1, 0.25, 0.5, 1.0):
        deviation = (share * (1 - share) / len(SESSIONS)) ** 0.5
        assert abs(len(on_canary(share)) / len(SESSIONS) - share) <= 4 * deviation


def test_endpoints_draw_independently() -> None:
    both = [(choose_arm("a", arms(0.5), s), choose_arm("b", arms(0.5), s)) for s in SESSIONS]
    same = sum(one == other for one, other in both) / len(both)
    assert 0.45 < same < 0.55


def test_a_shadow_hears_its_share_and_never_answers() -> None:
    heard = [s for s in SESSIONS if shadows("e", arms(0.1, 0.3), s)]
    assert 0.26 < len(heard) / len(SESSIONS) < 0.34
    assert {arm.name for s in SESSIONS if (arm := choose_arm("e", arms(0.1, 0.9), s))} == {"stable", "canary"}


def test_the_stable_arm_helps_out_and_without_shares_nobody_answers() -> None:
    found = stable(arms(1.0))
    assert found is not None
    assert found.name == "stable"
    assert choose_arm("e", [], "s") is None


def soon(seconds: float = 5.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_no_more_than_the_slots_are_inside_and_all_get_their_turn() -> None:
    room, inside, most = Room(slots=3, queue=100), 0, 0

    async def call(key: str) -> None:
        nonlocal inside, most
        async with room.enter(key, deadline=soon()):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(call(str(number % 5)) for number in range(100)))
    assert (most, room.busy) == (3, 0)


async def test_a_full_queue_is_refused_with_a_time_to_try_again() -> None:
    room = Room(slots=1, queue=1)
    async with room.enter("a", deadline=soon()):
        waiting = asyncio.create_task(_pass(room, "a"))
        await asyncio.sleep(0)
        with pytest.raises(Refusal) as refused:
            await _pass(room, "b")
        assert (refused.value.cause, refused.value.status) == (RefusalCause.FULL, 429)
        assert refused.value.retry_after_s
    await waiting


async def test_a_key_that_crowds_waits_behind_its_own() -> None:
    room, order = Room(slots=1, queue=100), []

    async def call(key: str) -> None:
        async with room.enter(key, deadline=soon()):
            order.append(key)

    async with room.enter("x", deadline=soon()):
        calls = [asyncio.create_task(call("crowd")) for _ in range(50)]
        await asyncio.sleep(0)
        calls.append(asyncio.create_task(call("one")))
        await asyncio.sleep(0)
    await asyncio.gather(*calls)
    assert order.index("one") <= 1


async def test_the_deadline_ends_the_wait_and_leaves_no_place_taken() -> None:
    room = Room(slots=1, queue=5)
    async with room.enter("a", deadline=soon()):
        with refuses(RefusalCause.TIMEOUT):
            await _pass(room, "b", seconds=0.01)
        gone = asyncio.create_task(_pass(room, "c"))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
    await asyncio.wait_for(_pass(room, "d"), 1)
    assert room.busy == 0


async def _pass(room: Room, key: str, *, seconds: float = 5.0) -> None:
    async with room.enter(key, deadline=soon(seconds)):
        pass


@pytest.fixture
def policy() -> Weigher:
    return Weigher()


@pytest.fixture
async def client(policy: Weigher) -> AsyncIterator[httpx.AsyncClient]:
    async with LocalGateway({"steered": policy, "plain": Adder()}, MemoryRecorder()) as gateway:
        yield gateway.client


HELLO: tuple[dict[str, str], ...] = ({"role": "user", "content": "Hello"},)


async def ask(
    client: httpx.AsyncClient, *messages: dict[str, str], model: str = "steered", session: str = "", **more: Any
) -> httpx.Response:
    body = {"model": model, "messages": list(messages or HELLO), **more}
    return await client.post(f"{session}/v1/chat/completions", json=body)


async def test_it_is_the_last_line_of_the_system_message(policy: Weigher, client: httpx.AsyncClient) -> None:
    await ask(client, preference={"right": 0.25, "short": 0.75})
    await ask(client, {"role": "system", "content": "Be kind."}, *HELLO, preference={"right": 1})
    await ask(client)
    told = [(asked.messages[0].role, asked.messages[0].text) for asked in policy.asked]
    assert told == [
        ("system", "Preference: right 25, short 75."),
        ("system", "Be kind.\nPreference: right 100, short 0."),
        ("system", "Preference: right 50, short 50."),
    ]


async def test_a_conversation_goes_on_by_the_same_preference_and_begins_anew_by_another(
    policy: Weigher, client: httpx.AsyncClient
) -> None:
    preference = {"right": 0.25, "short": 0.75}
    answer = (await ask(client, preference=preference, session="/sessions/s")).json()["choices"][0]["message"]
    more = (*HELLO, {"role": "assistant", "content": answer["content"]}, {"role": "user", "content": "More"})
    await ask(client, *more, preference=preference, session="/sessions/s")
    await ask(client, *more, preference={"right": 1}, session="/sessions/s")
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
    client: httpx.AsyncClient, model: str, preference: object, says: str
) -> None:
    refused = await ask(client, model=model, preference=preference)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"].startswith("preference")
    assert says in refused.json()["error"]["message"]


async def test_the_list_of_models_names_the_objectives(client: httpx.AsyncClient) -> None:
    steered, plain = [(await client.get(f"/v1/models/{name}")).json() for name in ("steered", "plain")]
    listed = (await client.get("/v1/models")).json()["data"]
    theirs = (await client.get("/v1/models/steered", headers={"anthropic-version": "2023-06-01"})).json()
    assert steered["objectives"] == ["right", "short"]
    assert "objectives" not in plain
    assert listed == [steered, plain]
    assert "objectives" not in theirs
