import json
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from broker_support import NatsServer, until
from event_samples import foreign_event, message

from loomrl.bus import Publisher
from loomrl.bus import stored as stored_module
from loomrl.bus.agent import STORE, list_agents, open_agent_hub, origin_of
from loomrl.bus.bus import INTAKE, INTAKE_MINUTES, STREAMS, Bus, Delivery, Message, Stream
from loomrl.bus.dead import Cause, letter_from, letters, replay
from loomrl.bus.event import TRAJECTORY
from loomrl.bus.open import open_bus
from loomrl.bus.sink import MOST_TRIES, REJECTED, Sink, Terms
from loomrl.bus.stored import StoredBus
from loomrl.config import HubConfig
from loomrl.errors import BusAway, BusError, StoreError
from loomrl.safety.redaction import PatternRedactor
from loomrl.store import LoomDB, open_store
from loomrl.store.events import EVENTS
from loomrl.types import Trajectory

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz012345"


def stored(url: str, agent: str = "zero") -> list[Trajectory]:
    with open_agent_hub(url, agent, HubConfig()) as hub:
        return [trajectory for _, trajectory in hub.read(limit=10_000)]


def rejected(db: LoomDB) -> dict[str, int]:
    counts: dict[str, int] = {}
    for _, event in EVENTS.read(db, kind=REJECTED):
        for cause, number in event.data.items():
            counts[cause] = counts.get(cause, 0) + number
    return counts


def test_trajectories_go_to_the_hubs_of_their_agents_and_the_agents_on_record(
    db: LoomDB, url: str, bus: StoredBus, sink: Sink
) -> None:
    events = [foreign_event(agent=agent) for agent in ("zero", "other agent", "zero")]
    bus.publish([message(event) for event in events])
    assert (sink.step(wait_s=0).stored, sink.step(wait_s=0).total) == (3, 0)
    assert [one.id for one in stored(url)] == [events[0]["trajectory_id"], events[2]["trajectory_id"]]
    assert [one.id for one in stored(url, "other agent")] == [events[1]["trajectory_id"]]
    assert list(list_agents(db)) == ["zero", "other agent"]
    assert list_agents(db)["zero"] == "agent-zero"


def test_a_trajectory_that_comes_twice_is_stored_once_and_is_no_dead_letter(
    url: str, bus: StoredBus, sink: Sink
) -> None:
    event = foreign_event()
    bus.publish([message(event), message(event, id="as another message")])
    sink.step(wait_s=0)
    bus.publish([message(event, id="much later")])
    assert sink.step(wait_s=0).stored == 1
    assert len(stored(url)) == 1
    assert list(letters(bus)) == []


def test_what_cannot_be_taken_in_becomes_a_letter_with_its_reason_and_is_counted(
    db: LoomDB, url: str, bus: StoredBus, sink: Sink
) -> None:
    good = [foreign_event() for _ in range(20)]
    reused = foreign_event(good[7]["trajectory_id"], says="Something else.")
    huge = foreign_event()
    huge["turns"][0]["observation"]["context"] = {"memory_state": {"number": 10**40}}
    bad = [
        message(foreign_event(), payload=b"no json", id="b1"),
        message(foreign_event(further=1), id="b2"),
        message(reused, id="b3"),
        message(huge, id="b4"),
        message(foreign_event(agent="nul\0"), id="b5"),
    ]
    bus.publish([*map(message, good[:10]), *bad, *map(message, good[10:])])
    taken = sink.step(wait_s=0)
    assert (taken.stored, taken.dead) == (20, {Cause.CONTRACT: 2, Cause.REUSED: 1, Cause.REFUSED: 2})
    assert [one.id for one in stored(url)] == [event["trajectory_id"] for event in good]
    found = {letter.message: letter for letter in letters(bus)}
    assert {id: letter.cause.value for id, letter in found.items()} == {
        "b1": "contract",
        "b2": "contract",
        "b3": "reused",
        "b4": "refused",
        "b5": "refused",
    }
    assert "further: Extra inputs are not permitted" in found["b2"].reason
    assert "stored already with other content" in found["b3"].reason
    assert json.loads(found["b3"].payload) == reused
    assert rejected(db) == {"contract": 2, "reused": 1, "refused": 2}


def test_a_letter_holds_no_secret_and_is_never_too_large_for_the_bus(bus: StoredBus, sink: Sink) -> None:
    event = foreign_event(further={"api_key": KEY}, says=f"use {KEY}")
    wide = "\u0001" * 150_000  # six bytes each in JSON, and far more than a letter may have
    bus.publish([message(event), message(event, payload=wide.encode(), id="wide")])
    sink.step(wait_s=0)
    first, last = letters(bus)
    assert KEY not in first.payload + first.reason
    assert first.is_whole
    assert (last.is_whole, len(last.payload)) == (False, 100_000)
    with pytest.raises(BusError, match="its first 100000 characters"):
        replay(bus, last)


def test_a_letter_is_replayed_and_comes_back_only_if_it_is_still_wrong(url: str, bus: StoredBus, db: LoomDB) -> None:
    crowded = Sink(db, url, bus, terms=Terms(agents=1))
    event = foreign_event(agent="second")
    bus.publish([message(foreign_event()), message(event), message(foreign_event(further=1))])
    assert crowded.step(wait_s=0).dead == {Cause.AGENTS: 1, Cause.CONTRACT: 1}
    crowded.close()
    for letter in list(letters(bus)):
        replay(bus, letter)
    assert list(letters(bus)) == []
    roomy = Sink(db, url, bus)
    taken = roomy.step(wait_s=0)
    roomy.close()
    assert (taken.stored, taken.dead) == (1, {Cause.CONTRACT: 1})
    assert [one.id for one in stored(url, "second")] == [event["trajectory_id"]]
    assert len(list(letters(bus))) == 1


def test_our_own_events_are_not_taken_in_again(db: LoomDB, url: str, bus: StoredBus, sink: Sink) -> None:
    bus.publish([message(foreign_event(), headers={STORE: origin_of(db)})])
    taken = sink.step(wait_s=0)
    assert (taken.stored, taken.own, list_agents(db)) == (0, 1, {})


def test_a_message_that_nobody_ever_acknowledged_becomes_a_letter() -> None:
    given = Delivery(subject=TRAJECTORY.subject, id="i", payload=b"{}", headers={}, position=7, tries=MOST_TRIES + 1)
    made = Sink._read(Sink.__new__(Sink), given)
    assert getattr(made, "cause", None) is Cause.TRIES
    arguments = {"redactor": PatternRedactor(), "at": 0.0}
    letter = letter_from(given, Cause.TRIES, "why", **arguments)
    assert letter.id == letter_from(given, Cause.TRIES, "why", **arguments).id


class Flaky(StoredBus):
    """Loses the connection at one of its calls."""

    fails = ""

    def publish(self, messages: "list[Message]") -> list[bool]:  # type: ignore[override]
        if self.fails == "publish":
            raise BusAway("gone")
        return super().publish(messages)


@pytest.mark.parametrize("boundary", ["publish", "record", "ack"])
def test_a_window_that_fails_halfway_is_done_again_to_the_same_effect(
    db: LoomDB, url: str, boundary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = Flaky(open_store(url))
    sink = Sink(db, url, bus)
    event = foreign_event()
    bus.publish([message(event), message(foreign_event(further=1))])

    def fail(*_: object, **__: object) -> None:
        raise StoreError("gone") if boundary == "record" else BusAway("gone")

    with monkeypatch.context() as patch:
        if boundary == "publish":
            patch.setattr(bus, "fails", "publish")
        elif boundary == "record":
            patch.setattr("loomrl.bus.sink.EVENTS.append", fail)
        else:
            patch.setattr("loomrl.bus.stored._StoredSubscription.ack", fail)
        for _ in range(2):
            with pytest.raises((BusAway, StoreError)):
                sink.step(wait_s=0)
    taken = sink.step(wait_s=0)
    assert (taken.stored, sum(taken.dead.values())) == (1, 1)
    assert sink.step(wait_s=0).total == 0
    assert len(stored(url)) == 1
    assert len(list(letters(bus))) == 1
    assert rejected(db) == {"contract": 1}
    sink.close()
    bus.close()


def test_two_sinks_share_the_messages_and_a_dead_one_s_are_taken_over(db: LoomDB, url: str, bus: StoredBus) -> None:
    events = [foreign_event() for _ in range(40)]
    bus.publish(list(map(message, events)))
    dead = bus.subscribe(TRAJECTORY.subject, group=f"loomrl-{origin_of(db)[:12]}", hold_s=0.2)
    assert len(dead.fetch(10, wait_s=0)) == 10
    sinks = [Sink(db, url, bus, terms=Terms(window=8)) for _ in range(2)]
    until = time.monotonic() + 20
    while len(stored(url)) < 40 and time.monotonic() < until:
        for sink in sinks:
            sink.step(wait_s=0.1)
    for sink in sinks:
        sink.close()
    assert sorted(one.id for one in stored(url)) == sorted(event["trajectory_id"] for event in events)


def test_clocks_that_are_off_by_a_day_change_neither_order_nor_what_is_taken(
    db: LoomDB, url: str, bus: StoredBus
) -> None:
    clock = {"now": 1_700_000_000.0}
    ours = StoredBus(open_store(url), clock=lambda: clock["now"])
    sink = Sink(db, url, ours, clock=lambda: clock["now"])
    times = ["2026-02-01T12:00:00Z", "2026-01-30T12:00:00Z", "2026-01-31T12:00:00+14:00"]
    events = [foreign_event(start_timestamp=at, end_timestamp="2026-01-31T12:00:00Z") for at in times]
    for event, off in zip(events, (0, 86_400, -2 * 86_400), strict=True):
        clock["now"] += off
        ours.publish([message(event)])
        assert sink.step(wait_s=0).stored == 1
    sink.close()
    ours.close()
    assert [one.id for one in stored(url)] == [event["trajectory_id"] for event in events]


def test_what_is_held_past_a_clock_that_went_back_is_given_again(url: str) -> None:
    clock = {"now": 1_700_000_000.0}
    with StoredBus(open_store(url), clock=lambda: clock["now"]) as bus:
        bus.publish([message(foreign_event())])
        with bus.subscribe(TRAJECTORY.subject, group="g") as subscription:
            assert len(subscription.fetch(1, wait_s=0)) == 1
            assert subscription.fetch(1, wait_s=0) == []
            clock["now"] -= 86_400
            assert len(subscription.fetch(1, wait_s=0)) == 1


def test_old_messages_and_those_beyond_the_most_go_first(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = (Stream(name="RL_TRAJECTORIES", subjects=(TRAJECTORY.subject,), days=1, most=15),)
    monkeypatch.setattr(stored_module, "STREAMS", few)
    monkeypatch.setattr(stored_module, "PRUNE_EVERY", 10)
    clock = {"now": 1_700_000_000.0}
    bus = StoredBus(open_store(url), clock=lambda: clock["now"])
    with bus, bus.subscribe(TRAJECTORY.subject, group="g") as subscription:
        bus.publish([Message(subject=TRAJECTORY.subject, id=f"a{n}", payload=b"") for n in range(10)])
        assert len(subscription.fetch(5, wait_s=0)) == 5
        bus.publish([Message(subject=TRAJECTORY.subject, id=f"b{n}", payload=b"") for n in range(10)])
        left = [given.id for given in bus.browse("RL_TRAJECTORIES")]
        assert left == [f"a{n}" for n in range(5, 10)] + [f"b{n}" for n in range(10)]
        clock["now"] += 2 * 86_400
        bus.publish([Message(subject=TRAJECTORY.subject, id=f"c{n}", payload=b"") for n in range(10)])
        assert [given.id for given in bus.browse("RL_TRAJECTORIES")] == [f"c{n}" for n in range(10)]
        assert [given.id for given in subscription.fetch(100, wait_s=0)] == [f"c{n}" for n in range(10)]


def test_a_window_is_bounded_in_bytes(bus: StoredBus) -> None:
    large = b"x" * 1_000_000
    bus.publish([Message(subject=TRAJECTORY.subject, id=uuid.uuid4().hex, payload=large) for _ in range(40)])
    with bus.subscribe(TRAJECTORY.subject, group="g") as subscription:
        assert len(subscription.fetch(1000, wait_s=0)) == 33
        assert len(subscription.fetch(1000, wait_s=0)) == 7


def test_many_agents_do_not_keep_many_hubs_open(
    db: LoomDB, url: str, bus: StoredBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loomrl.bus.sink.OPEN_HUBS", 1)
    sink = Sink(db, url, bus)
    for agent in ("a", "b", "a"):
        bus.publish([message(foreign_event(agent=agent))])
        sink.step(wait_s=0)
        assert len(sink._hubs) == 1
    sink.close()
    assert [len(stored(url, agent)) for agent in "ab"] == [2, 1]
    assert len(list(Path(url.removeprefix("sqlite:///")).parent.glob("loom-agent-*.db"))) == 2


# -- what an agent publishes raw: redacted at once, and gone as it came ------------------------------------------------


def raw(event: dict[str, Any], **changes: Any) -> Message:
    return message(event, **{"subject": INTAKE, **changes})


def kept(bus: Bus, stream: str) -> list[bytes]:
    return [given.payload for given in bus.browse(stream, most=1000)]


def test_a_raw_trajectory_is_stored_and_published_redacted_and_gone_as_it_came(
    url: str, bus: StoredBus, sink: Sink
) -> None:
    event = foreign_event(says=f"use {KEY}")
    bus.publish([raw(event)])
    assert sink.step(wait_s=0).stored == 1
    assert kept(bus, "RL_INTAKE") == []
    (payload,) = kept(bus, "RL_TRAJECTORIES")
    assert KEY.encode() not in payload
    assert str(TRAJECTORY.parse(payload)["trajectory_id"]) == event["trajectory_id"]
    assert [one.id for one in stored(url)] == [event["trajectory_id"]]
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
    assert [one.id for one in stored(other_url)] == [event["trajectory_id"]]


def test_a_secret_on_the_durable_subject_is_replaced_and_what_is_clean_stays_as_it_is(
    url: str, bus: StoredBus, sink: Sink
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
    assert len(stored(url)) == 2


def test_what_cannot_be_taken_in_leaves_a_redacted_letter_and_nothing_raw(bus: StoredBus, sink: Sink) -> None:
    broken = f'{{"password": "hunter2-x9", "note": "{KEY}"'.encode()
    bus.publish([raw(foreign_event(), payload=broken), message(foreign_event(), payload=broken)])
    assert sink.step(wait_s=0).dead == {Cause.CONTRACT: 2}
    assert (kept(bus, "RL_INTAKE"), kept(bus, "RL_TRAJECTORIES")) == ([], [])
    for letter in letters(bus):
        assert KEY not in letter.payload
        assert "hunter2-x9" not in letter.payload


def test_a_trajectory_that_is_not_to_be_recorded_is_nowhere(url: str, bus: StoredBus, sink: Sink) -> None:
    event = foreign_event(metadata={"model": "theirs", "opt_out": True})
    bus.publish([raw(event), message(event)])
    assert sink.step(wait_s=0).opted_out == 2
    assert (kept(bus, "RL_INTAKE"), kept(bus, "RL_TRAJECTORIES"), list(letters(bus))) == ([], [], [])
    assert stored(url) == []


def test_our_client_keeps_to_itself_what_is_not_to_be_recorded(url: str, tmp_path: Path) -> None:
    with Publisher(url, spool=tmp_path / "spool") as publisher:
        assert publisher.publish(foreign_event(metadata={"model": "theirs", "opt_out": True}))
        assert len(publisher.spool) == 0
    with open_bus(url) as bus:
        assert kept(bus, "RL_TRAJECTORIES") == []


def test_what_no_sink_takes_is_gone_after_minutes(url: str) -> None:
    now = [1_000_000.0]
    with StoredBus(open_store(url), clock=lambda: now[0]) as bus:
        bus.publish([raw(foreign_event())])
        now[0] += 60 * INTAKE_MINUTES + 1
        bus.publish([raw(foreign_event())])
        assert len(kept(bus, "RL_INTAKE")) == 1
    assert next(stream for stream in STREAMS if stream.name == "RL_INTAKE").days < 1 / 24


@pytest.mark.system
def test_no_byte_of_a_raw_secret_is_left_in_the_files_of_a_broker(
    nats_server: NatsServer, url: str, tmp_path: Path
) -> None:
    nats_server.start()
    secrets = [f"sk-proj-{number:03d}abcdefghijklmnopqrstuvwxyz0123" for number in range(40)]
    with open_store(url) as db, open_bus(nats_server.url) as bus, open_bus(nats_server.urls["agent"]) as agent:
        sink = Sink(db, url, bus)
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
