"""Calls in LoomDB: several processes, restarts, secrets, and the way to the hub."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event, select

from loomrl.config import HubConfig
from loomrl.errors import StoreError
from loomrl.hub.codec import encode
from loomrl.hub.open import open_endpoint_hub
from loomrl.serving.durable import StoreRecorder, StoreSettings, open_recorder
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.retention.sweep import DAY_S, Sweeper, SweepTerms
from loomrl.store import LoomDB, open_store
from loomrl.store.sessions import CALLS, SESSIONS, answers, delete_sessions, opt_in, opt_out
from loomrl.types import End, Source
from tests.serving.scripted import Desk, ask, reply, user
from tests.serving.waiting import refuses

Opened = Callable[..., StoreRecorder]


class Clock:
    """A clock that is set by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def opened(store_url: str, clock: Clock) -> AsyncIterator[Opened]:
    """Opens recorders on one database, as several processes would."""
    stores: list[StoreRecorder] = []

    def another(settings: StoreSettings | None = None) -> StoreRecorder:
        stores.append(open_recorder(store_url, settings=settings, clock=clock))
        return stores[-1]

    yield another
    for store in stores:
        await store.close()


async def test_a_session_goes_on_in_another_process(opened: Opened) -> None:
    one, other = Desk(opened()), Desk(opened())
    first = await one.call("s", ask(user("a")), id="1")
    asked = ask(user("a"), reply(first), user("b"))
    second = await other.call("s", asked, id="2")
    assert second.parent == "1/0"
    third = await one.call("s", ask(*asked.messages, reply(second), user("c")), id="3")
    assert third.parent == "2/0"
    made = await other.recorder.complete("s")
    (context, ids), tokens = (one.policy.log[1].context, one.policy.log[1].ids), made.tokens
    assert tokens is not None
    assert tuple(tokens.ids_T) == context + ids
    with refuses(RefusalCause.CONFLICT):
        await one.recorder.keep(replace(third, id="4"))
    with pytest.raises(Refusal):  # the end elsewhere is known from now on
        await one.recorder.find_beginning("s", asked)


async def test_an_end_elsewhere_is_noticed_before_an_answer(opened: Opened, clock: Clock) -> None:
    one, other = Desk(opened()), Desk(opened())
    await one.call("s", ask(user("a")))
    await other.recorder.complete("s")
    clock.now += 11
    with refuses(RefusalCause.CONFLICT):
        await one.recorder.find_beginning("s", ask(user("a")))


async def test_what_was_said_is_recalled_for_its_key_until_it_is_deleted(
    opened: Opened, clock: Clock, store: LoomDB
) -> None:
    one, other = Desk(opened()), Desk(opened())
    first = await one.call("s", ask(user("a")), id="1")
    second = await one.call("s", ask(user("a"), reply(first), user("b")), id="2")
    for desk in (one, other):
        assert await desk.recorder.recall("2", key="stranger") is None
        found = await desk.recorder.recall("2", key="key")
        assert found is not None
        assert [said.text.strip() for said in found.messages] == [
            "a", first.choices[0].text.strip(), "b", second.choices[0].text.strip()
        ]  # fmt: skip
        assert await desk.recorder.recall("3", key="key") is None
    with store.write() as connection:
        delete_sessions(connection, ["s"])
    clock.now += 11
    for desk in (one, other):
        assert await desk.recorder.recall("2", key="key") is None


async def test_a_stranger_cannot_take_a_session_over_nor_disturb_it(opened: Opened) -> None:
    one, other = Desk(opened()), Desk(opened())
    first = await one.call("s", ask(user("a")), id="1")
    for _ in range(2):
        with refuses(RefusalCause.UNKNOWN):
            await other.recorder.keep(replace(first, id="x", key="stranger"))
    assert (await other.recorder.find_beginning("s", ask(user("a"), reply(first), user("b")), key="key")) is not None


async def test_what_the_cache_forgot_is_read_again(opened: Opened) -> None:
    desk = Desk(opened(StoreSettings(most_sessions=2)))
    first = {name: await desk.call(name, ask(user(name))) for name in "abcdef"}
    for name, call in first.items():
        second = await desk.call(name, ask(user(name), reply(call), user("more")))
        assert second.parent == f"{call.id}/0"


async def test_many_calls_share_a_transaction(opened: Opened) -> None:
    store = opened()
    commits = []
    event.listen(store._db.engine, "commit", lambda connection: commits.append(1))
    desk = Desk(store)
    made = [await desk.answered(f"s{n}", ask(user("a")), None, id=f"c{n}") for n in range(200)]
    await asyncio.gather(*(store.keep(call) for call in made))
    assert len(commits) < 30
    with store._db.read() as connection:
        assert len(connection.execute(select(CALLS.c.id)).all()) == 200


async def test_known_rarely_reads_the_database(opened: Opened) -> None:
    desk = Desk(store := opened())
    asked = ask(user("a"))
    call = await desk.call("s", asked)
    reads = []
    event.listen(store._db.engine, "begin", lambda connection: reads.append(1))
    for _ in range(5):
        asked = ask(*asked.messages, reply(call), user("b"))
        assert await store.find_beginning("s", asked, key="key") is not None
        call = await desk.answered("s", asked, await store.find_beginning("s", asked))
        await store.keep(call)
    assert len(reads) == 5, "one transaction for each call that was kept"


async def test_a_database_that_fails_refuses_and_nothing_is_believed(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(store := opened())
    call = await desk.answered("s", ask(user("a")), None)

    def broken(db: LoomDB, new: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("loomrl.serving.recording.commit.keep_calls", broken)
        with pytest.raises(Refusal) as refused:
            await store.keep(call)
    assert refused.value.status == 503
    followed = ask(user("a"), reply(call), user("b"))
    assert await store.find_beginning("s", followed) is None
    await store.keep(call)
    assert await store.find_beginning("s", followed) is not None


async def test_people_who_opted_out_are_not_recorded(opened: Opened, clock: Clock) -> None:
    desk = Desk(store := opened())
    hers = replace(ask(user("a")), user="ada")
    opt_out(store._db, "end", ["ada", "bob"], at=0.0)
    opt_out(store._db, "end", ["ada"], at=1.0)
    assert not await store.takes("end", hers)
    assert await store.takes("another", hers)
    await desk.call("s", hers)
    assert SESSIONS.find(store._db, "s") is None
    opt_in(store._db, "end", ["ada"])
    clock.now += 6
    assert await store.takes("end", hers)


async def test_a_closed_recorder_has_finished_what_it_took_in(store_url: str) -> None:
    store = open_recorder(store_url)
    desk = Desk(store)
    made = [await desk.answered("s", ask(user(str(n))), None, id=f"c{n}") for n in range(50)]
    keeping = [asyncio.create_task(store.keep(call)) for call in made]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*keeping)
    again = open_recorder(store_url)
    assert len((await again.complete("s")).sequences) == 50
    await again.close()


# -- the way to the hub -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
async def test_sessions_become_trajectories_of_the_endpoints_hub_once(
    opened: Opened, clock: Clock, store_url: str
) -> None:
    desk = Desk(store := opened())
    for name in ("told", "idle", "busy"):
        await desk.call(name, ask(user(name)))
    told = await store.complete("told", reward=0.5, success=1.0, correct=0.25, outcome={"by": "ada@example.com"})
    clock.now += 500
    await desk.call("busy", ask(user("more")))
    with open_endpoint_hub(store_url, "end", HubConfig()) as hub:
        sweeper = Sweeper(store._db, hub, "end", terms=SweepTerms(idle_s=400, deadline_s=10_000, days=1))
        done = sweeper.sweep_sessions(now=clock.now)
        assert (done.ended, done.stored, done.deleted) == (1, 2, 0)
        found = {one.id: one for _, one in hub.read()}
        assert encode(found["told"]) == encode(told)
        assert found["told"].reward.total == 0.5
        assert [each.extra.get("correct") for each in (found["told"], found["idle"])] == [0.25, None]
        assert "example" not in str(found["told"].extra)
        assert (found["idle"].end, found["idle"].source) == (End.TRUNCATED, Source.PRODUCTION)
        with store._db.write() as connection:  # as after a kill between the hub and here
            connection.execute(
                SESSIONS.table.update().where(SESSIONS.c.id == "told").values(state="ended", trajectory=None)
            )
        assert sweeper.sweep_sessions(now=clock.now).stored == 1
        clock.now += 10_000
        assert sweeper.sweep_sessions(now=clock.now).ended == 1
        assert sweeper.sweep_sessions(now=clock.now + 2 * DAY_S).deleted == 3
        assert len(hub.read()) == 3
    with store._db.read() as connection:
        assert [connection.execute(table.select()).first() for table in (SESSIONS, CALLS, answers)] == [None] * 3


async def test_other_endpoints_are_left_alone(opened: Opened, clock: Clock, store_url: str) -> None:
    store = opened()
    await Desk(store).call("s", ask(user("a")))
    await store.complete("s")
    with open_endpoint_hub(store_url, "other", HubConfig()) as hub:
        assert Sweeper(store._db, hub, "other").sweep_sessions(now=clock.now).stored == 0


def test_an_endpoints_hub_is_its_own(sqlite_url: str, tmp_path: Path) -> None:
    open_endpoint_hub(sqlite_url, "end", HubConfig()).close()
    assert (tmp_path / "loom-endpoint-end.db").exists()


async def test_a_damaged_session_does_not_stop_the_others(opened: Opened, clock: Clock, store_url: str) -> None:
    desk = Desk(store := opened())
    for name in ("a", "b"):
        await desk.call(name, ask(user("x")))
        await store.complete(name)
    with store._db.write() as connection:
        connection.execute(CALLS.table.update().where(CALLS.c.session == "a").values(payload=b"damaged"))
    with open_endpoint_hub(store_url, "end", HubConfig()) as hub:
        assert Sweeper(store._db, hub, "end").sweep_sessions(now=clock.now).stored == 1
        assert [one.id for _, one in hub.read()] == ["b"]


@pytest.mark.system
@pytest.mark.parametrize("kills", [2, pytest.param(9, marks=pytest.mark.slow)])
async def test_what_was_kept_survives_a_kill_at_any_instant(sqlite_url: str, kills: int) -> None:
    """Each process says which calls `keep` returned for, and is killed in the middle of it."""
    promised: set[str] = set()
    for number in range(kills):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.serving.keeping", sqlite_url, str(number), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        await process.stdout.readline()
        await asyncio.sleep(0.3 + 0.07 * number)
        process.kill()
        rest = (await process.stdout.read()).decode()
        promised |= set(rest[: rest.rfind("\n") + 1].split())
        await process.wait()
    with closing(open_store(sqlite_url)) as db, db.read() as connection:
        stored = list(connection.scalars(select(CALLS.c.id)))
    assert len(promised) > 20
    assert promised <= set(stored)
    assert len(stored) == len(set(stored))
