import socket
import socketserver
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from broker_support import NatsServer, drained, until
from event_samples import foreign_event, message

from loomrl.bus.agent import open_agent_hub
from loomrl.bus.bus import STREAMS, Bus, Message
from loomrl.bus.client import Publisher
from loomrl.bus.dead import letters
from loomrl.bus.jetstream import JetStreamBus
from loomrl.bus.open import open_bus
from loomrl.bus.outbox import Outbox
from loomrl.bus.service import serve_bus
from loomrl.config import HubConfig
from loomrl.errors import BusAway, BusRefused
from loomrl.store import LoomDB, open_store
from loomrl.store.events import EVENTS, Event
from tests.needs import need
from tests.tls_samples import issue, trusting

pytestmark = pytest.mark.system
REWARD, TRAJECTORY = "agent.rl.reward.v1", "agent.rl.trajectory.v1"


@pytest.fixture
def server(nats_server: NatsServer) -> NatsServer:
    nats_server.start()
    return nats_server


def test_streams_are_made_as_the_contract_says_and_existing_ones_stay(server: NatsServer) -> None:
    with JetStreamBus(server.url) as bus:

        async def ask(name: str) -> object:
            link = await bus._connect()
            return (await link.jetstream.stream_info(name)).config

        async def make() -> None:
            link = await bus._connect()
            await link.jetstream.add_stream(name="RL_TRAINING", subjects=["agent.rl.training.>"], max_msgs=77)

        bus._do(make())
        for stream in STREAMS:
            bus.publish([Message(subject=stream.subjects[0].replace(">", "status.v1"), id="", payload=b"{}")])
            config: object = bus._do(ask(stream.name))
            most = 77 if stream.name == "RL_TRAINING" else stream.most
            got = {name: getattr(config, name) for name in ("subjects", "retention", "storage", "max_msgs")}
            assert got == {
                "subjects": list(stream.subjects),
                "retention": "limits",
                "storage": "file",
                "max_msgs": most,
            }
            if stream.name != "RL_TRAINING":
                assert config.max_age == stream.days * 86_400  # type: ignore[attr-defined]


def test_no_broker_is_said_by_name_and_at_once(unused_tcp_port: int) -> None:
    began = time.monotonic()
    with (
        open_bus(f"nats://agent:secret@127.0.0.1:{unused_tcp_port}") as bus,
        pytest.raises(
            BusAway, match=rf"no broker answers at 127\.0\.0\.1:{unused_tcp_port}.*loomrl bus broker"
        ) as refusal,
    ):
        bus.publish([message(foreign_event())])
    assert time.monotonic() - began < 30
    assert "secret" not in str(refusal.value)


def test_a_wrong_password_is_a_refusal(server: NatsServer) -> None:
    url = server.url.replace(":p", ":wrong", 1)
    with open_bus(url) as bus, pytest.raises(BusRefused, match=r"refuses user 'coordinator'.*[Aa]uthorization"):
        bus.publish([message(foreign_event())])


def test_a_refusal_whose_words_a_reset_took_along_is_asked_for_again(unused_tcp_port: int) -> None:
    resets = [True, True, False]

    class Refusing(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(b'INFO {"server_id":"s","version":"2.10.0","proto":1,"max_payload":1048576}\r\n')
            self.request.recv(1 << 16)
            if resets.pop(0):
                self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                self.request.sendall(b"-ERR 'Authorization Violation'\r\n")
            self.request.close()

    with socketserver.TCPServer(("127.0.0.1", unused_tcp_port), Refusing) as broker:
        threading.Thread(target=broker.serve_forever, daemon=True).start()
        with (
            open_bus(f"nats://coordinator:wrong@127.0.0.1:{unused_tcp_port}") as bus,
            pytest.raises(BusRefused, match=r"refuses user 'coordinator'.*Authorization"),
        ):
            bus.publish([message(foreign_event())])
        broker.shutdown()
    assert not resets


@pytest.mark.parametrize(
    ("account", "subject"), [("agent", REWARD), ("trainer", TRAJECTORY), ("trainer", REWARD)], ids=str
)
def test_a_publish_that_the_account_may_not_is_refused_by_name_before_any_time_out(
    server: NatsServer, account: str, subject: str
) -> None:
    with open_bus(server.url) as bus:
        bus.publish([Message(subject=subject, id="0", payload=b"{}")])
    began = time.monotonic()
    with (
        open_bus(server.urls[account]) as bus,
        pytest.raises(BusRefused, match=rf"refuses user '{account}' a publish to '{subject}'.*docs/events.md"),
    ):
        bus.publish([Message(subject=subject, id="1", payload=b"{}")])
    assert time.monotonic() - began < 30
    with open_bus(server.url) as bus:
        assert len(drained(bus, subject)) == 1


def test_an_agent_may_publish_and_neither_consume_nor_hear_what_others_are_given(server: NatsServer) -> None:
    with open_bus(server.url) as bus:
        bus.publish([message(foreign_event())])
    with open_bus(server.urls["agent"]) as bus:
        assert bus.publish([message(foreign_event())]) == [True]
        with pytest.raises(BusRefused, match=r"\$js\.api\."):
            bus.subscribe(TRAJECTORY, group="spy")
        with pytest.raises(BusRefused):
            bus.browse("RL_TRAJECTORIES")
        with pytest.raises(BusRefused):
            bus.stats()


def test_a_broker_that_is_killed_keeps_what_it_acknowledged_and_the_rest_is_told(server: NatsServer) -> None:
    with open_bus(server.url) as bus:
        acknowledged: list[str] = []
        stop = threading.Event()

        def publish() -> None:
            while not stop.is_set():
                batch = [Message(subject=REWARD, id=(id := uuid.uuid4().hex), payload=id.encode()) for _ in range(50)]
                while not stop.is_set():
                    try:
                        bus.publish(batch)
                    except BusAway:
                        time.sleep(0.05)
                        continue
                    acknowledged.extend(one.id for one in batch)
                    break

        thread = threading.Thread(target=publish)
        thread.start()
        for count in (200, 400):
            until(lambda count=count: len(acknowledged) > count)  # type: ignore[misc]
            server.kill()
            time.sleep(0.3)
            server.start()
        until(lambda: len(acknowledged) > 600)
        stop.set()
        thread.join()
        arrived = [body.decode() for body in drained(bus, REWARD, wait_s=2)]
    assert set(acknowledged) <= set(arrived)
    assert len(arrived) == len(set(arrived))


@contextmanager
def serving(db: LoomDB, url: str, bus: Bus) -> Iterator[list[str]]:
    """Outbox and sink, running, and what they say."""
    said: list[str] = []
    stop = threading.Event()
    thread = threading.Thread(target=serve_bus, args=(db, url, bus), kwargs={"stop": stop, "say": said.append})
    thread.start()
    try:
        yield said
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def loop(server: NatsServer, sqlite_url: str) -> Iterator[list[str]]:
    with open_store(sqlite_url) as db, open_bus(server.url) as bus, serving(db, sqlite_url, bus) as said:
        until(lambda: any(each.name == "RL_TRAJECTORIES" for each in bus.stats()))
        yield said


def taken_in(url: str) -> list[str]:
    with open_agent_hub(url, "zero", HubConfig()) as hub:
        return [trajectory.id for _, trajectory in hub.read(limit=10_000)]


def requested(number: int) -> Event:
    dataset = {"source": "local", "sample_size": 10}
    config = {"algorithm": "raft", "base_model": "m", "dataset": dataset, "hyperparameters": {}}
    data = {"requester": "test", "trigger_reason": "manual", "training_config": config, "evaluation": None}
    return Event(kind="training.requested", subject=f"job {number}", data=data, created_at=time.time())


def test_a_trainer_subscribes_before_anything_was_published_and_tells_its_status(
    loop: list[str], server: NatsServer, sqlite_url: str
) -> None:
    """Its account may consume and make no stream."""
    with open_bus(server.url) as bus:
        until(lambda: {one.name for one in bus.stats()} == {stream.name for stream in STREAMS})
        assert sum(one.messages for one in bus.stats()) == 0
    with open_bus(server.urls["trainer"]) as trainer, open_store(sqlite_url) as db:
        waiting = trainer.subscribe("agent.rl.training.request.v1", group="rl-workers")
        EVENTS.append(db, [requested(1)])
        found: list[bytes] = []
        until(lambda: bool(found.__iadd__(one.payload for one in waiting.fetch(1, wait_s=0.2))))
        assert b'"requester":"test"' in found[0]
        trainer.publish([Message(subject="agent.rl.training.status.v1", id="s", payload=b"{1}")])
    assert not any(said.startswith("streams: ") for said in loop)


def test_a_stream_of_another_name_that_takes_all_subjects_keeps_nothing_from_being_published(
    server: NatsServer, sqlite_url: str
) -> None:
    with open_store(sqlite_url) as db, JetStreamBus(server.url) as bus:

        async def make() -> None:
            link = await bus._connect()
            await link.jetstream.add_stream(name="EVERYTHING", subjects=["agent.rl.>"])

        async def count() -> int:
            link = await bus._connect()
            return int((await link.jetstream.stream_info("EVERYTHING")).state.messages)

        bus._do(make())
        EVENTS.append(db, [requested(1)])
        with serving(db, sqlite_url, bus) as said:
            until(lambda: bus._do(count()) == 1)
    assert len([one for one in said if one.startswith("streams: ")]) == 1


@pytest.mark.parametrize("away_s", [0.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_while_the_broker_is_away_both_sides_wait_and_everything_arrives_once(
    loop: list[str], server: NatsServer, sqlite_url: str, tmp_path: Path, away_s: float
) -> None:
    """An agent publishes, LoomDB records; the broker is killed in between and stays away for a while."""
    events, back_at = [foreign_event() for _ in range(40)], 0.0
    with open_store(sqlite_url) as db, Publisher(server.urls["agent"], spool=tmp_path / "spool") as agent:
        for number, event in enumerate(events):
            if number == 10:
                server.kill()
                back_at = time.monotonic() + away_s
            if number == 30:
                until(lambda until=back_at: time.monotonic() >= until, seconds=90)  # type: ignore[misc]
                until(lambda: any("no broker answers" in one or "broke" in one for one in loop))
                assert len(agent.spool) == 20
                server.start()
            is_out = agent.publish(event)
            assert is_out or number >= 10
            EVENTS.append(db, [requested(number)])
        until(lambda: _flushed(agent))
        ids = sorted(event["trajectory_id"] for event in events)
        until(lambda: sorted(taken_in(sqlite_url)) == ids, seconds=60)
        until(lambda: any("works again" in one for one in loop), seconds=60)
        with open_bus(server.url) as bus:
            found: list[bytes] = []
            until(lambda: len(found.__iadd__(drained(bus, "agent.rl.training.request.v1"))) >= 40, seconds=60)
            assert len(found) == 40
            assert list(letters(bus)) == []


def _flushed(agent: Publisher) -> bool:
    try:
        agent.flush()
    except BusAway:
        return False
    return len(agent.spool) == 0


def test_a_refused_service_waits_longer_and_longer_says_so_once_and_loses_nothing(
    server: NatsServer, sqlite_url: str
) -> None:
    with open_store(sqlite_url) as db, open_bus(server.urls["agent"]) as bus:
        EVENTS.append(db, [requested(1)])
        began = time.monotonic()
        with serving(db, sqlite_url, bus) as said:
            until(lambda: any(one.startswith("outbox: BusRefused") for one in said))
            until(lambda: bool(EVENTS.read(db, kind="bus.refused")), seconds=60)
        assert len([one for one in said if one.startswith("outbox: BusRefused")]) == 1
        refused = {event.subject for _, event in EVENTS.read(db, kind="bus.refused")}
        assert refused <= {"outbox", "sink"}
        assert time.monotonic() - began > 5
    with open_store(sqlite_url) as db, open_bus(server.url) as bus:
        outbox = Outbox(db, sqlite_url, bus)
        assert outbox.step() == 1
        outbox.close()


def test_events_go_over_tls_to_a_broker_that_is_trusted(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    need("nats-server")
    issued = issue(tmp_path)
    server = NatsServer(tmp_path / "nats", unused_tcp_port_factory(), certificate=issued.certificate)
    try:
        with trusting(issued.authority):
            server.start()
            with open_bus(server.url) as bus:
                assert bus.publish([message(foreign_event())]) == [True]
        with pytest.raises(BusAway), JetStreamBus(server.url, connect_s=2) as bus:
            bus.stats()
    finally:
        server.kill()
