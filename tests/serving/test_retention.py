"""What was served moves on: from the hub into files, out of the files; and a person's is deleted from all of them."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from loomrl.artifacts import open_artifacts
from loomrl.bus.open import open_bus
from loomrl.bus.outbox import Outbox
from loomrl.canonical import as_uuid
from loomrl.config import HubConfig
from loomrl.errors import ArtifactError
from loomrl.feedback.content import Contents, fingerprint
from loomrl.hub import EVERYTHING
from loomrl.hub.codec import encode
from loomrl.hub.hub import Hub
from loomrl.hub.open import open_hub
from loomrl.parquet import from_parquet, to_parquet
from loomrl.serving.durable import StoreRecorder, open_recorder
from loomrl.serving.retention import archive, erasure, sweep
from loomrl.serving.retention.archive import read_archive
from loomrl.serving.retention.erasure import finish, forget
from loomrl.serving.retention.sweep import DAY_S, Sweeper, SweepTerms, SweptTrajectories
from loomrl.store import LoomDB, beside, open_store
from loomrl.store.archives import list_files
from loomrl.store.bus_messages import MESSAGES
from loomrl.store.datasets import identified, list_datasets, read_rows, record_dataset
from loomrl.store.endpoints import Arm, set_endpoint
from loomrl.store.erasures import ERASURES, Erasure, open_erasures
from loomrl.store.events import EVENTS
from loomrl.store.feedback import FEEDBACK, append_feedback
from loomrl.store.log import metadata
from loomrl.store.observations import Observation, append_observations, read_observations, unit_hash
from loomrl.store.rewards import REWARDS, StoredReward, store_rewards
from loomrl.store.sessions import CALLS, SESSIONS, opt_out, participants, people_in, person_hash
from loomrl.types import Feedback
from tests.algorithms.test_served_items import row
from tests.serving.control_support import recorded_act
from tests.serving.scripted import Desk, ask, user

TERMS = SweepTerms(idle_s=0.0, days=30, archive_days=90)
BEGIN = 1_000_000 * DAY_S / 50


@contextmanager
def cut_off(at: str, *modules: ModuleType) -> Iterator[None]:
    """What is done here is killed when it gets to that function."""

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setattr(module, at, killed, raising=False)
        with pytest.raises(KeyboardInterrupt):
            yield


class House:
    """An endpoint's record, hub and files, under a clock that is set by hand."""

    def __init__(self, url: str, folder: Path) -> None:
        self.now, self.url, self.files = BEGIN, url, folder / "artifacts"
        self.db = open_store(url)
        self.store: StoreRecorder = open_recorder(url, clock=self.clock)
        self.hub: Hub = open_hub(beside(url, "endpoint-end"), HubConfig(), clock=self.clock)
        self.desk = Desk(self.store)
        self.sweeper = Sweeper(self.db, self.hub, "end", artifact_url=str(self.files), terms=TERMS)

    def clock(self) -> float:
        return self.now

    async def talk(self, session: str, *people: str, text: str = "hello") -> None:
        for person in people or ("",):
            call = await self.desk.answered(session, replace(ask(user(text)), user=person), None)
            await self.store.keep(replace(call, started_at=self.now, finished_at=self.now + 1))

    def judge(self, *SESSIONS: str) -> None:
        append_feedback(
            self.db,
            [
                Feedback(
                    id=f"f-{name}", trajectory=name, source="human", kind="thumb", value=1.0, comment="ada's words"
                )
                for name in SESSIONS
            ],
        )

    def archive(self) -> None:
        self.sweeper.sweep_sessions(now=self.now + 1)

    def forget(self, person: str) -> Erasure:
        return forget(self.db, self.hub, "end", person, at=self.now)

    def later(self, days: float) -> SweptTrajectories:
        self.now += days * DAY_S
        return self.sweeper.sweep_trajectories(now=self.now)

    def in_hub(self) -> set[str]:
        return {one.id for _, one in self.hub.read(limit=1000)}

    def in_files(self) -> set[str]:
        return {one.id for one in read_archive(self.db, "end")}

    def bytes_of(self, word: str) -> list[str]:
        """The files below the artifacts in whose Parquet columns a word is left."""
        found = []
        for path in self.files.rglob("bytes"):
            columns = from_parquet(path.read_bytes())
            if word in str(columns["conversation"]) or word.encode() in b"".join(columns["payload"]):
                found.append(str(path))
        return found

    async def close(self) -> None:
        await self.store.close()
        self.hub.close()
        self.db.close()


@pytest.fixture
async def house(store_url: str, tmp_path: Path) -> AsyncIterator[House]:
    opened = House(store_url, tmp_path)
    yield opened
    await opened.close()


# -- ages -------------------------------------------------------------------------------------------------------------


async def test_old_trajectories_become_files_that_give_them_back_whole(house: House) -> None:
    await house.talk("old", text="an old word")
    house.archive()
    ((_, before),) = house.hub.read()
    house.now += 10 * DAY_S
    await house.talk("young")
    house.archive()
    assert house.later(19) == SweptTrajectories(0, 0)
    assert house.later(3) == SweptTrajectories(1, 0)
    assert (house.in_hub(), house.in_files()) == ({"young"}, {"old"})
    (back,) = read_archive(house.db, "end")
    assert encode(back) == encode(before)
    assert list(read_archive(house.db, "end", since=before.finished_at + 1)) == []
    (file,) = list_files(house.db, "end")
    assert (file.state, file.count, file.first_at) == ("kept", 1, before.finished_at)
    assert len(house.bytes_of("an old word")) == 1
    assert list_files(house.db, "another") == []


async def test_files_are_deleted_with_all_that_points_at_what_was_in_them(house: House) -> None:
    await house.talk("s", "ada")
    await house.talk("t")
    house.judge("s", "t")
    house.archive()
    house.later(32)
    house.archive()
    assert house.later(87).deleted == 0
    assert people_in(house.db, ["s"]) != {}
    assert len(FEEDBACK.read(house.db)) == 2
    assert house.later(3).deleted == 2
    assert (house.in_files(), list_files(house.db, "end"), house.bytes_of("")) == (set(), [], [])
    assert people_in(house.db, ["s"]) == {}
    assert FEEDBACK.read(house.db) == []


async def test_a_days_worth_is_one_file(house: House) -> None:
    for hour in range(0, 48, 4):
        house.now = BEGIN + hour * DAY_S / 24
        await house.talk(f"s{hour}")
        house.archive()
    counts = []
    for hour in range(29 * 24, 35 * 24, 3):
        house.now = BEGIN + hour * DAY_S / 24
        counts.append(house.sweeper.sweep_trajectories(now=house.now).archived)
    assert sum(counts) == 12
    assert len(list_files(house.db, "end")) <= 3


async def test_control_steps_come_back_from_files_too(house: House) -> None:
    new = recorded_act("s", np.arange(4.0), endpoint="end", at=BEGIN, user="ada")
    await house.store.keep_acts(new)
    assert people_in(house.db, ["s"]) == {"s": {person_hash("end", "ada")}}
    house.archive()
    house.later(40)
    (back,) = read_archive(house.db, "end")
    assert back.steps == new.acts.steps


@pytest.mark.parametrize("at", ["write_file", "ids_in", "find_erased", "move_file"])
async def test_a_round_that_is_cut_off_is_finished_by_a_later_one(house: House, at: str) -> None:
    for name in ("s", "t"):
        await house.talk(name)
    house.archive()
    with cut_off(at, archive, sweep):
        house.later(40)
    house.later(1 / 24)
    assert (house.in_hub(), house.in_files()) == (set(), {"s", "t"})
    assert [file.state for file in list_files(house.db, "end")] == ["kept"]
    assert len(list(house.files.rglob("bytes"))) == 1


# -- people -----------------------------------------------------------------------------------------------------------


async def test_everything_of_a_person_is_deleted_and_the_record_of_it_stays(house: House) -> None:
    await house.talk("filed", "ada", text="her filed words")
    await house.talk("filed too", text="nobody's words")
    house.archive()
    house.later(40)
    for name, person in (("hot", "ada"), ("open", "ada"), ("both", "ada"), ("his", "bob"), ("nobodys", "")):
        await house.talk(name, person, text=f"words of {person}")
    await house.talk("both", "bob")
    await house.store.complete("hot")
    house.archive()
    await house.talk("open now", "ada")
    await house.talk("elsewhere", "ada")
    with house.db.write() as connection:  # the same name at another endpoint is somebody else
        connection.execute(participants.update().where(participants.c.session == "elsewhere").values(endpoint="x"))
        connection.execute(SESSIONS.table.update().where(SESSIONS.c.id == "elsewhere").values(endpoint="x"))
    house.judge("filed", "hot", "his", "nobodys")
    observe(house.db, "ada", "hot", "bob")
    done = house.forget("ada")
    expected = {"sessions": 4, "calls": 5, "feedback": 2, "trajectories": 3, "archived": 1, "observations": 2}
    assert {name: done.counts[name] for name in expected} == expected
    assert house.in_hub() == {"his", "nobodys"}
    assert house.in_files() == {"filed too"}
    assert house.bytes_of("her filed words") == []
    assert [one.trajectory for _, one in FEEDBACK.read(house.db)] == ["his", "nobodys"]
    assert [each.unit for _, each in read_observations(house.db, "end")] == [unit_hash("bob")]
    with house.db.read() as connection:
        assert set(connection.scalars(select(SESSIONS.c.id))) == {"his", "nobodys", "elsewhere"}
        assert set(connection.scalars(select(CALLS.c.session))) == {"his", "nobodys", "elsewhere"}
        assert set(connection.scalars(select(participants.c.session))) == {"his", "elsewhere"}
    ((_, event),) = EVENTS.read(house.db, kind="person.forgotten")
    assert (event.subject, event.data) == (person_hash("end", "ada"), {"endpoint": "end", **done.counts})
    assert not any(house.forget("nobody").counts.values())


async def test_what_was_told_of_a_person_is_deleted_too_and_data_sets_stay_what_they_were(house: House) -> None:
    """On the bus in this LoomDB: the trajectory and its reward. A frozen data set has ids only."""
    set_endpoint(house.db, "end", [Arm(name="stable", policy="v", share=1.0)], at=0.0, reason="a test")
    for name, person in (("hot", "ada"), ("his", "bob")):
        await house.talk(name, person, text=f"words of {person}")
    house.archive()
    content = {"components": {}, "normalization": "none"}
    made = [
        StoredReward(
            id=as_uuid(f"reward of {name}"), trajectory=name, endpoint="end", task="t", total=0.5, confidence=0.0,
            content=content, created_at=house.now,
        )
        for name in ("hot", "his")
    ]  # fmt: skip
    store_rewards(house.db, made)
    frozen = [row(name, hub="endpoint-end") for name in ("hot", "his")]
    record_dataset(house.db, identified("d", {"sizes": {}, "parent": None}, frozen, created_at=1.0), frozen)
    bus = open_bus(house.url)
    outbox = Outbox(house.db, house.url, bus, clock=house.clock)
    while outbox.step():
        pass
    told = [message for message in on_bus(house.db) if b'"hot"' in message or b"words of ada" in message]
    assert len(told) == 2
    done = house.forget("ada")
    assert (done.counts["rewards"], done.counts["messages"]) == (1, 2)
    left = b"".join(on_bus(house.db))
    assert b'"hot"' not in left
    assert b"words of ada" not in left
    assert b"words of bob" in left
    assert [one.trajectory for _, one in REWARDS.read(house.db)] == ["his"]
    (kept,) = list_datasets(house.db, trajectory="hot")
    assert read_rows(house.db, kept.id) == frozen
    outbox.close()
    bus.close()


async def test_data_sets_read_what_moved_into_a_file_until_its_person_is_forgotten(house: House) -> None:
    for name, person in (("hers", "ada"), ("his", "bob")):
        await house.talk(name, person, text=f"words of {person}")
    house.archive()
    frozen = [
        row(one.id, hub="endpoint-end", position=position, sha256=fingerprint(one))
        for position, one in house.hub.replay(selection=EVERYTHING)
    ]
    house.later(40)
    assert (house.in_hub(), house.in_files()) == (set(), {"hers", "his"})
    with Contents(house.url) as contents:
        found = {each.trajectory: contents.read(each) for each in frozen}
        assert {id: one is not None and one.id for id, one in found.items()} == {"hers": "hers", "his": "his"}
        house.forget("ada")
        found = {each.trajectory: contents.read(each) for each in frozen}
        assert {id: one is not None for id, one in found.items()} == {"hers": False, "his": True}


def on_bus(db: LoomDB) -> list[bytes]:
    """The payloads of all messages."""
    with db.read() as connection:
        return [bytes(payload) for payload in connection.scalars(select(MESSAGES.c.payload))]


def observe(db: LoomDB, *units: str) -> None:
    append_observations(
        db,
        "end",
        "gateway",
        [
            Observation(revision=1, arm="stable", unit=unit_hash(unit), metric="error", value=0.0, at=1.0)
            for unit in units
        ],
        1.0,
    )


async def test_no_name_is_stored_only_its_hash(house: House) -> None:
    await house.talk("s", "Ada Lovelace")
    house.archive()
    opt_out(house.db, "end", ["Ada Lovelace"], at=1.0)
    house.forget("Bob Babbage")
    with house.db.read() as connection:
        for table in metadata.sorted_tables:
            text = str(connection.execute(select(table)).all())
            assert "Lovelace" not in text, table.name
            assert "Babbage" not in text, table.name
    assert b"Lovelace" not in b"".join(encode(one) for _, one in house.hub.read())


@pytest.mark.parametrize("at", ["erase", "keep_erasure", "take_out", "forget_units", "finish_erasure"])
async def test_a_deletion_that_is_cut_off_is_finished(house: House, at: str) -> None:
    await house.talk("filed", "ada", text="her filed words")
    house.archive()
    house.later(40)
    await house.talk("hot", "ada")
    house.archive()
    house.judge("filed", "hot")
    with cut_off(at, erasure):
        house.forget("ada")
    assert len(open_erasures(house.db, "end")) == 1
    assert open_erasures(house.db, "another") == []
    assert finish(house.db, house.hub, "end", at=house.now) == 1
    assert finish(house.db, house.hub, "end", at=house.now) == 0
    assert (house.in_hub(), house.in_files(), house.bytes_of("her filed words")) == (set(), set(), [])
    assert FEEDBACK.read(house.db) == []
    assert len(EVENTS.read(house.db, kind="person.forgotten")) == 1


@pytest.mark.parametrize("at", ["read_file", "write_file", "move_file", "delete_file", "drop_file"])
async def test_a_file_that_was_being_rewritten_loses_nobody_else_and_keeps_nobody(house: House, at: str) -> None:
    await house.talk("filed", "ada", text="her filed words")
    await house.talk("another", text="other words")
    house.archive()
    house.later(40)
    with cut_off(at, archive, sweep):
        house.forget("ada")
    finish(house.db, house.hub, "end", at=house.now)
    assert (house.in_files(), house.bytes_of("her filed words")) == ({"another"}, [])
    house.later(1 / 24)
    assert (house.in_files(), house.bytes_of("her filed words")) == ({"another"}, [])
    assert {file.state for file in list_files(house.db, "end")} == {"kept"}


async def test_whoever_stores_something_meanwhile_deletes_it(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep and a round of retention that had read before the deletion, and write after it."""
    for name in ("ended", "old"):
        await house.talk(name, "ada", text="her words")
    await house.store.complete("ended")
    append = house.hub.append

    def late(payloads: Any) -> list[int]:
        house.forget("ada")
        return append(payloads)

    with monkeypatch.context() as patch:
        patch.setattr(house.hub, "append", late)
        house.archive()
    assert house.in_hub() == set()

    await house.talk("old", "ada", text="her words")
    await house.talk("another")
    house.later(1 / 12)
    house.archive()
    write = archive.write_file

    def later(url: str, trajectories: Any) -> None:
        house.forget("ada")
        write(url, trajectories)

    with monkeypatch.context() as patch:
        patch.setattr(archive, "write_file", later)
        house.later(40)
    assert (house.in_hub(), house.in_files(), house.bytes_of("her words")) == (set(), {"another"}, [])
    house.later(1)
    with house.db.read() as connection:
        assert connection.scalars(select(ERASURES.c.id)).all() == []
    assert house.in_files() == {"another"}


async def test_a_round_finishes_deletions_and_keeps_the_ages(house: House) -> None:
    for name, person in (("a", "ada"), ("b", "")):
        await house.talk(name, person)
    house.archive()
    with cut_off("erase", erasure):
        house.forget("ada")
    assert house.later(1000) == SweptTrajectories(archived=1, deleted=1)
    assert (house.in_hub(), open_erasures(house.db, "end")) == (set(), [])


# -- files ------------------------------------------------------------------------------------------------------------


def test_parquet_gives_back_what_it_was_given(tmp_path: Path) -> None:
    columns = {"id": ["a", "b"], "n": [1, 2], "x": [0.5, None], "data": [b"\0\xff", b""]}
    data = to_parquet(columns)
    assert from_parquet(data) == columns
    assert from_parquet(data, columns=["n"]) == {"n": [1, 2]}
    with pytest.raises(ArtifactError, match="no Parquet file"):
        from_parquet(b"something else")


def test_an_artifact_that_is_not_there_can_be_deleted_if_that_is_allowed(tmp_path: Path) -> None:
    artifacts = open_artifacts(str(tmp_path))
    url = artifacts.put("a/b", b"x")
    assert artifacts.url_of("a/b") == url
    artifacts.delete("a/b")
    artifacts.delete("a/b", missing_ok=True)
    with pytest.raises(ArtifactError, match="is not in"):
        artifacts.delete("a/b")
