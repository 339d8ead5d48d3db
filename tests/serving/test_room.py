"""Admission: so many at once, a bounded queue, turns by key, and no wait beyond the deadline."""

import asyncio

import pytest

from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.room import Room


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
        with pytest.raises(Refusal) as refused:
            await _pass(room, "b", seconds=0.01)
        assert refused.value.cause is RefusalCause.TIMEOUT
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
