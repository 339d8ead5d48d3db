"""A policy behind a channel is the policy itself, and a lost one is a refusal at once."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import update

from loomrl.serving.call import ChatMessage, ChoiceClosed, Drawing, Event, PromptOpened, TokensDrawn, ToolSpec
from loomrl.serving.channel.link import ChannelLink
from loomrl.serving.channel.server import ChannelServer
from loomrl.serving.deployment.reconcile import StoredView
from loomrl.serving.policy import About, ActRequest, ActResult, Continuation, Picture
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.store import LoomDB
from loomrl.store.endpoints import Arm, Role, drain_endpoint, set_endpoint
from loomrl.store.replicas import REPLICAS, Replica, ReplicaRole, ReplicaState, beat, leave
from tests.serving.waiting import refuses, until


class Echo:
    """Draws the known ids again, one by one; keeps what it was asked."""

    def __init__(self) -> None:
        self.about = About(kind="language", version="r/1", number=1, context=64)
        self.asked: list[Continuation] = []
        self.cancelled = asyncio.Event()

    async def answer(self, continuation: Continuation) -> AsyncIterator[Event]:
        self.asked.append(continuation)
        if continuation.prompt == "refuse":
            raise Refusal(RefusalCause.TOO_LONG, "no room", where="messages")
        if continuation.prompt == "break":
            raise RuntimeError("broken")
        try:
            yield PromptOpened(ids_T=continuation.known_T[:2])
            for each in continuation.known_T:
                ids = np.array([each], np.int32)
                yield TokensDrawn(ids_T=ids, logprobs_T=-ids.astype(np.float32), versions_T=ids + 1, text="é")
                await asyncio.sleep(0)
            if continuation.prompt == "hang":
                await asyncio.Event().wait()
            yield ChoiceClosed(text="é" * len(continuation.known_T), finish="stop")
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.set()
            raise

    async def act(self, act: ActRequest) -> ActResult:
        return ActResult(
            actions=act.observations * 2,
            version=7,
            states=None if act.states is None else act.states + act.observations,
        )


async def all_of(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


async def linked(echo: Echo) -> tuple[ChannelServer, ChannelLink]:
    server = ChannelServer(echo, token="secret")
    return server, await ChannelLink.open(await server.start(), token="secret")


async def test_what_is_asked_and_answered_arrives_as_it_was() -> None:
    echo = Echo()
    server, link = await linked(echo)
    asked = Continuation(
        known_T=np.array([5, 300, 70000], np.int32),
        pictures=(Picture(png=b"\x89PNG", start=3),),
        messages=(ChatMessage(role="user", text="ü", images=(b"x",)),),
        tools=(ToolSpec(name="t", parameters={"type": "object", "n": [1, {"a": None}]}),),
        drawing=Drawing(stop=("a", "b"), seed=2**62, temperature=0.5),
    )
    events = [event async for event in link.answer(asked)]
    assert [type(event) for event in events] == [PromptOpened, TokensDrawn, TokensDrawn, TokensDrawn, ChoiceClosed]
    got = echo.asked[0]
    assert got.known_T.tolist() == [5, 300, 70000]
    assert got.known_T.dtype == np.int32
    assert (got.messages, got.tools, got.drawing, got.pictures) == (
        asked.messages,
        asked.tools,
        asked.drawing,
        asked.pictures,
    )
    drawn = [event for event in events if isinstance(event, TokensDrawn)]
    assert np.concatenate([each.ids_T for each in drawn]).tolist() == [5, 300, 70000]
    assert np.concatenate([each.logprobs_T for each in drawn]).tolist() == [-5, -300, -70000]
    assert link.about == echo.about
    await link.close()
    await server.close()


async def test_a_thousand_calls_share_a_connection_without_mixing() -> None:
    server, link = await linked(Echo())

    async def ids(number: int) -> list[int]:
        asked = Continuation(known_T=np.arange(number, number + 3, dtype=np.int32))
        return [int(event.ids_T[0]) async for event in link.answer(asked) if isinstance(event, TokensDrawn)]

    answers = await asyncio.gather(*map(ids, range(1000)))
    assert answers == [list(range(number, number + 3)) for number in range(1000)]
    acted = await asyncio.gather(
        *(link.act(ActRequest(observations=np.full((2, 3), n, np.float32))) for n in range(50))
    )
    assert [float(each.actions[1, 2]) for each in acted] == [2.0 * n for n in range(50)]
    assert all(each.states is None for each in acted)
    begun = [
        ActRequest(observations=np.full((2, 3), n, np.float32), states=np.ones((2, 3), np.float32)) for n in range(50)
    ]
    acted = await asyncio.gather(*map(link.act, begun))
    assert [each.states.tolist() for each in acted] == [[[1.0 + n] * 3] * 2 for n in range(50)]
    assert link.busy == 0
    await link.close()
    await server.close()


@pytest.mark.parametrize(("prompt", "cause"), [("refuse", RefusalCause.TOO_LONG), ("break", RefusalCause.UNAVAILABLE)])
async def test_a_refusal_and_a_failure_are_refusals_on_the_other_side(prompt: str, cause: RefusalCause) -> None:
    server, link = await linked(Echo())
    with pytest.raises(Refusal) as refused:
        await all_of(link.answer(Continuation(prompt=prompt)))
    assert refused.value.cause is cause
    await link.close()
    await server.close()


async def test_hanging_up_ends_the_sampling() -> None:
    echo = Echo()
    server, link = await linked(echo)
    events = link.answer(Continuation(known_T=np.array([1], np.int32), prompt="hang"))
    await anext(events)
    await events.aclose()  # type: ignore[attr-defined]
    await asyncio.wait_for(echo.cancelled.wait(), 5)
    await link.close()
    await server.close()


async def test_calls_of_a_lost_connection_are_refused_at_once() -> None:
    server, link = await linked(Echo())
    events = link.answer(Continuation(known_T=np.array([1], np.int32), prompt="hang"))
    await anext(events)
    await server.close()
    with refuses(RefusalCause.UNAVAILABLE, match="gone"):
        await asyncio.wait_for(all_of(events), 5)
    assert link.is_lost
    with pytest.raises(Refusal, match="gone"):
        await link.act(ActRequest(observations=np.zeros((1, 1))))


async def test_a_stranger_is_not_served() -> None:
    server = ChannelServer(Echo(), token="secret")
    address = await server.start()
    with pytest.raises(Refusal):
        await ChannelLink.open(address, token="other")
    await server.close()
    with pytest.raises(Refusal, match="does not answer"):
        await ChannelLink.open(address, token="secret")


# -- a gateway sees endpoints, replicas and their deaths in LoomDB --------------------------------------------


async def replica(db: LoomDB, id: str, policy: str) -> ChannelServer:
    server = ChannelServer(Echo(), token="secret")
    address = await server.start()
    where = {"policy": policy, "address": address, "node": "here", "pid": 1}
    beat(db, Replica(id=id, role=ReplicaRole.POLICY, state=ReplicaState.READY, **where))
    return server


async def test_changes_are_seen_and_the_dead_are_not_asked(store: LoomDB) -> None:
    one, two = await replica(store, "a", "run/1"), await replica(store, "b", "run/1")
    set_endpoint(store, "e", [Arm(name="stable", policy="run/1")], at=1.0)
    view = StoredView(store, token="secret")
    await view.start()
    await until(lambda: len(view.replicas("run/1")) == 2)
    found = view.endpoint("e")
    assert found is not None
    assert (found.revision, view.replicas("run/2"), view.endpoint("f")) == (1, (), None)

    await one.close()
    await until(lambda: len(view.replicas("run/1")) == 1)
    leave(store, "b")
    await until(lambda: not view.replicas("run/1"))

    three = await replica(store, "c", "run/2")
    arms = [Arm(name="stable", policy="run/1", share=0.5), Arm(name="new", policy="run/2", share=0.5, role=Role.CANARY)]
    set_endpoint(store, "e", arms, at=2.0)
    await until(lambda: len(view.replicas("run/2")) == 1)
    drain_endpoint(store, "e", at=3.0)
    await until(lambda: (now := view.endpoint("e")) is not None and now.revision == 3)
    await view.close()
    for server in (two, three):
        await server.close()


async def test_a_busy_replica_is_asked_where_no_other_is_up(store: LoomDB) -> None:
    """Its heartbeat is late, as while it reads a long prompt: what is wrong with a call is still said by it."""
    one, two = await replica(store, "a", "run/1"), await replica(store, "b", "run/1")
    set_endpoint(store, "e", [Arm(name="stable", policy="run/1")], at=1.0)
    view = StoredView(store, token="secret")
    await view.start()
    await until(lambda: len(view.replicas("run/1")) == 2)
    with store.write() as connection:
        late = REPLICAS.c.beat_at - 20
        connection.execute(update(REPLICAS.table).where(REPLICAS.c.id == "a").values(beat_at=late))
    await until(lambda: len(view.replicas("run/1")) == 1)
    leave(store, "b")
    await until(lambda: [link.address for link in view.replicas("run/1")] == [one_address(store)])
    await one.close()
    await until(lambda: not view.replicas("run/1"))
    await view.close()
    await two.close()


def one_address(store: LoomDB) -> str:
    return REPLICAS.require(store, "a").address


async def test_a_new_revision_takes_hold_once_its_policies_are_linked(
    store: LoomDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = ChannelLink.open

    async def slow(address: str, *, token: str) -> ChannelLink:
        await asyncio.sleep(0.3)
        return await opened(address, token=token)

    one = await replica(store, "a", "run/1")
    stable = Arm(name="stable", policy="run/1")
    set_endpoint(store, "e", [stable], at=1.0)
    view = StoredView(store, token="secret")
    await view.start()
    monkeypatch.setattr(ChannelLink, "open", slow)
    two = await replica(store, "b", "run/2")
    set_endpoint(
        store, "e", [replace(stable, share=0.5), Arm(name="new", policy="run/2", share=0.5, role=Role.CANARY)], at=2.0
    )
    await until(lambda: (now := view.endpoint("e")) is not None and now.revision == 2)
    assert len(view.replicas("run/2")) == 1
    await view.close()
    for server in (one, two):
        await server.close()


async def test_a_replica_tells_when_its_version_changes() -> None:
    echo = Echo()
    server, link = await linked(echo)
    echo.about = type(echo.about)(kind="language", version="r/2", number=2, context=64)
    server.announce()
    await until(lambda: link.about.version == "r/2")
    await link.close()
    await server.close()
