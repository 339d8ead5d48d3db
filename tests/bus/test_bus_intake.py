"""What an agent publishes raw is redacted at once, and gone as it came."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_support import NatsServer, until
from event_samples import foreign_event, message

from loomrl.bus import Publisher
from loomrl.bus.agent import open_agent_hub
from loomrl.bus.bus import INTAKE, INTAKE_MINUTES, STREAMS, Bus, Message
from loomrl.bus.dead import Cause, letters
from loomrl.bus.event import TRAJECTORY
from loomrl.bus.open import open_bus
from loomrl.bus.sink import Sink
from loomrl.bus.stored import StoredBus
from loomrl.config import HubConfig
from loomrl.store import LoomDB, open_store

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz012345"


@pytest.fixture
def db(sqlite_url: str) -> Iterator[LoomDB]:
    with open_store(sqlite_url) as db:
        yield db


@pytest.fixture
def bus(sqlite_url: str) -> Iterator[StoredBus]:
    with StoredBus(open_store(sqlite_url)) as bus:
        yield bus


@pytest.fixture
def sink(db: LoomDB, sqlite_url: str, bus: StoredBus) -> Iterator[Sink]:
    sink = Sink(db, sqlite_url, bus)
    yield sink
    sink.close()


def raw(event: dict[str, Any], **changes: Any) -> Message:
    return message(event, **{"subject": INTAKE, **changes})


def kept(bus: Bus, stream: str) -> list[bytes]:
    return [given.payload for given in bus.browse(stream, most=1000)]


def stored(url: str, agent: str = "zero") -> list[str]:
    with open_agent_hub(url, agent, HubConfig()) as hub:
        return [trajectory.id for _, trajectory in hub.read(limit=1000)]


def test_a_raw_trajectory_is_stored_and_published_redacted_and_gone_as_it_came(
    sqlite_url: str, bus: StoredBus, sink: Sink
) -> None:
    event = foreign_event(says=f"use {KEY}")
    bus.publish([raw(event)])
    assert sink.step(wait_s=0).stored == 1
    assert kept(bus, "RL_INTAKE") == []
    (payload,) = kept(bus, "RL_TRAJECTORIES")
    assert KEY.encode() not in payload
    assert str(TRAJECTORY.parse(payload)["trajectory_id"]) == event["trajectory_id"]
    assert stored(sqlite_url) == [event["trajectory_id"]]
    assert sink.step(wait_s=0).own == 1


def test_another_service_hears_what_one_sink_took_from_the_intake(bus: StoredBus, sink: Sink, tmp_path: Path) -> None:
    event = foreign_event(says=f"use {KEY}")
    bus.publish([raw(event)])
    sink.step(wait_s=0)
    other_url = f"sqlite:///{tmp_path}/other.db"
    with open_store(other_url) as other_db:
        other = Sink(other_db, other_url, bus)
        assert other.step(wait_s=0).stored == 1
        other.close()
    assert stored(other_url) == [event["trajectory_id"]]


def test_a_secret_on_the_durable_subject_is_replaced_and_what_is_clean_stays_as_it_is(
    sqlite_url: str, bus: StoredBus, sink: Sink
) -> None:
    secret, clean = foreign_event(says=f"use {KEY}"), foreign_event()
    bus.publish([message(secret), message(clean)])
    assert sink.step(wait_s=0).stored == 2
    payloads = kept(bus, "RL_TRAJECTORIES")
    ids = {str(TRAJECTORY.parse(payload)["trajectory_id"]) for payload in payloads}
    assert ids == {secret["trajectory_id"], clean["trajectory_id"]}
    assert not any(KEY.encode() in payload for payload in payloads)
    assert json.dumps(clean).encode() in payloads
    assert sink.step(wait_s=0).stored == 0
    assert len(stored(sqlite_url)) == 2


def test_what_cannot_be_taken_in_leaves_a_redacted_letter_and_nothing_raw(bus: StoredBus, sink: Sink) -> None:
    broken = f'{{"password": "hunter2-x9", "note": "{KEY}"'.encode()
    bus.publish([raw(foreign_event(), payload=broken), message(foreign_event(), payload=broken)])
    assert sink.step(wait_s=0).dead == {Cause.CONTRACT: 2}
    assert (kept(bus, "RL_INTAKE"), kept(bus, "RL_TRAJECTORIES")) == ([], [])
    for letter in letters(bus):
        assert KEY not in letter.payload
        assert "hunter2-x9" not in letter.payload


def test_a_trajectory_that_is_not_to_be_recorded_is_nowhere(sqlite_url: str, bus: StoredBus, sink: Sink) -> None:
    event = foreign_event(metadata={"model": "theirs", "opt_out": True})
    bus.publish([raw(event), message(event)])
    assert sink.step(wait_s=0).opted_out == 2
    assert (kept(bus, "RL_INTAKE"), kept(bus, "RL_TRAJECTORIES"), list(letters(bus))) == ([], [], [])
    assert stored(sqlite_url) == []


def test_our_client_keeps_to_itself_what_is_not_to_be_recorded(sqlite_url: str, tmp_path: Path) -> None:
    with Publisher(sqlite_url, spool=tmp_path / "spool") as publisher:
        assert publisher.publish(foreign_event(metadata={"model": "theirs", "opt_out": True}))
        assert len(publisher.spool) == 0
    with open_bus(sqlite_url) as bus:
        assert kept(bus, "RL_TRAJECTORIES") == []


def test_what_no_sink_takes_is_gone_after_minutes(sqlite_url: str) -> None:
    now = [1_000_000.0]
    with StoredBus(open_store(sqlite_url), clock=lambda: now[0]) as bus:
        bus.publish([raw(foreign_event())])
        now[0] += 60 * INTAKE_MINUTES + 1
        bus.publish([raw(foreign_event())])
        assert len(kept(bus, "RL_INTAKE")) == 1
    assert next(stream for stream in STREAMS if stream.name == "RL_INTAKE").days < 1 / 24


@pytest.mark.system
def test_no_byte_of_a_raw_secret_is_left_in_the_files_of_a_broker(
    nats_server: NatsServer, sqlite_url: str, tmp_path: Path
) -> None:
    nats_server.start()
    secrets = [f"sk-proj-{number:03d}abcdefghijklmnopqrstuvwxyz0123" for number in range(40)]
    with open_store(sqlite_url) as db, open_bus(nats_server.url) as bus, open_bus(nats_server.urls["agent"]) as agent:
        sink = Sink(db, sqlite_url, bus)
        sink.step(wait_s=0)
        for number, secret in enumerate(secrets):
            subject = INTAKE if number % 2 else TRAJECTORY.subject
            agent.publish([message(foreign_event(says=f"use {secret}"), subject=subject)])
        assert any(secret in text for text in files(tmp_path) for secret in secrets)
        taken = 0
        while taken < len(secrets):
            taken += sink.step(wait_s=2.0).stored
        assert kept(bus, "RL_INTAKE") == []
        ids = {TRAJECTORY.parse(payload)["trajectory_id"] for payload in kept(bus, "RL_TRAJECTORIES")}
        sink.close()
    assert len(ids) == len(secrets)
    until(lambda: not any(secret in text for text in files(tmp_path) for secret in secrets))


def files(folder: Path) -> list[str]:
    """All that a broker has written."""
    return [one.read_bytes().decode(errors="replace") for one in folder.rglob("*") if one.is_file()]
