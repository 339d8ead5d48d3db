import threading
from collections.abc import Iterator

import pytest
from broker_support import NatsServer, drained

from loomrl.bus.bus import STREAMS, Bus, Message, stream_of
from loomrl.bus.open import open_bus
from loomrl.errors import BusError, TooLarge

pytestmark = pytest.mark.system
REWARD, STATUS = "agent.rl.reward.v1", "agent.rl.training.status.v1"


@pytest.fixture(params=["sqlite", "nats"])
def bus_url(request: pytest.FixtureRequest) -> str:
    """The same promises must hold on every bus."""
    if request.param != "nats":
        url: str = request.getfixturevalue(f"{request.param}_url")
        return url
    server: NatsServer = request.getfixturevalue("nats_server")
    server.start()
    return server.url


@pytest.fixture
def bus(bus_url: str) -> Iterator[Bus]:
    with open_bus(bus_url) as bus:
        yield bus


def messages(*bodies: str, subject: str = REWARD) -> list[Message]:
    return [Message(subject=subject, id=f"id-{body}", payload=body.encode()) for body in bodies]


def test_what_is_published_is_given_in_order_once_it_is_acknowledged_never_again(bus: Bus) -> None:
    bodies = [str(number) for number in range(300)]
    assert bus.publish(messages(*bodies)) == [True] * 300
    assert drained(bus, REWARD) == [body.encode() for body in bodies]
    assert drained(bus, REWARD) == []


def test_a_repeated_id_is_dropped(bus: Bus) -> None:
    assert bus.publish(messages("a", "b", "a")) == [True, True, False]
    assert bus.publish([Message(subject=REWARD, id="id-a", payload=b"other content")]) == [False]
    assert bus.publish([Message(subject=STATUS, id="id-a", payload=b"of another stream")]) == [True]
    assert bus.publish([Message(subject=REWARD, id="", payload=b"x")] * 2) == [True, True], "without an id all are kept"
    assert drained(bus, REWARD) == [b"a", b"b", b"x", b"x"]


def test_every_group_gets_every_message_and_members_share_them(bus: Bus) -> None:
    bus.publish(messages(*map(str, range(20))))
    with bus.subscribe(REWARD, group="pair") as one, bus.subscribe(REWARD, group="pair") as other:
        first = one.fetch(7, wait_s=2)
        rest = other.fetch(100, wait_s=2)
        assert (len(first), len(rest)) == (7, 13)
        assert not {given.payload for given in first} & {given.payload for given in rest}
        one.ack(first)
        other.ack(rest)
    assert len(drained(bus, REWARD, "alone")) == 20


def test_what_is_not_acknowledged_is_given_again_and_says_so(bus: Bus) -> None:
    bus.publish(messages("a", "b"))
    with bus.subscribe(REWARD, group="g", hold_s=1) as one:
        given = one.fetch(2, wait_s=2)
        one.ack(given[:1])
        (again,) = one.fetch(2, wait_s=5)
        assert (again.payload, again.tries) == (b"b", 2)


def test_payloads_headers_subject_and_id_arrive_as_they_are(bus: Bus) -> None:
    bodies = [bytes(range(256)), b"", "é\0".encode()]
    bus.publish([Message(subject=STATUS, id=f"id {n}", payload=b, headers={"H": "s"}) for n, b in enumerate(bodies)])
    with bus.subscribe(STATUS, group="g") as subscription:
        given = subscription.fetch(10, wait_s=2)
    assert [one.payload for one in given] == bodies
    assert (given[0].subject, given[0].id, dict(given[0].headers)) == (STATUS, "id 0", {"H": "s"})


def test_fetch_waits_for_what_comes_meanwhile(bus: Bus) -> None:
    with bus.subscribe(REWARD, group="g") as subscription:
        assert subscription.fetch(10, wait_s=0.1) == []
        later = threading.Timer(0.3, bus.publish, [messages("late")])
        later.start()
        assert [given.payload for given in subscription.fetch(10, wait_s=20)] == [b"late"]
        later.join()


def test_a_bus_that_is_opened_again_has_kept_messages_and_what_groups_have_done(bus_url: str) -> None:
    with open_bus(bus_url) as bus:
        bus.publish(messages("a", "b", "c"))
        with bus.subscribe(REWARD, group="g") as subscription:
            subscription.ack(subscription.fetch(2, wait_s=2))
    with open_bus(bus_url) as bus:
        assert bus.publish(messages("a")) == [False]
        assert drained(bus, REWARD, "g") == [b"c"]


def test_who_looks_consumes_nothing_and_can_delete(bus: Bus) -> None:
    bus.publish(messages(*map(str, range(5))))
    drained(bus, REWARD)
    seen = bus.browse("RL_REWARDS", most=3)
    more = bus.browse("RL_REWARDS", after=seen[-1].position)
    assert [given.payload for given in [*seen, *more]] == [b"0", b"1", b"2", b"3", b"4"]
    bus.remove("RL_REWARDS", seen[0].position)
    assert [given.payload for given in bus.browse("RL_REWARDS")] == [b"1", b"2", b"3", b"4"]
    assert bus.browse("RL_DEAD") == []


def test_statistics_count_what_is_kept_waiting_and_open(bus: Bus) -> None:
    bus.publish(messages("a", "b", "c"))
    with bus.subscribe(REWARD, group="g") as subscription:
        given = subscription.fetch(2, wait_s=2)
        (stats,) = [one for one in bus.stats() if one.name == "RL_REWARDS"]
        (consumer,) = stats.consumers
        assert (stats.messages, stats.last, consumer.waiting, consumer.unacked) == (3, given[-1].position + 1, 1, 2)
        assert stats.bytes >= 3


def test_an_unknown_subject_and_too_large_a_message_are_refused_before_anything_is_published(bus: Bus) -> None:
    with pytest.raises(BusError, match=r"agent\.rl\.rewards\.v1.*Known: .*agent\.rl\.reward\.v1"):
        bus.publish([*messages("a"), *messages("b", subject="agent.rl.rewards.v1")])
    with pytest.raises(TooLarge, match=r"1048577 bytes") as refusal:
        bus.publish([*messages("a"), Message(subject=REWARD, id="big", payload=b"x" * ((1 << 20) + 1))])
    assert refusal.value.id == "big"
    assert drained(bus, REWARD) == []
    assert bus.publish([]) == []


@pytest.mark.parametrize("bus_url", ["postgres", "nats"], indirect=True)
def test_threads_publish_and_consume_at_once(bus: Bus) -> None:
    found: list[bytes] = []

    def publish(name: int) -> None:
        for first in range(0, 200, 50):
            bus.publish(messages(*(f"{name}-{number}" for number in range(first, first + 50))))

    def consume() -> None:
        found.extend(drained(bus, REWARD, "shared", wait_s=2))

    threads = [threading.Thread(target=publish, args=(name,)) for name in range(3)]
    threads += [threading.Thread(target=consume) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(set(found)) == 600


def test_the_streams_are_those_of_the_contract() -> None:
    kept = {stream.name: (stream.subjects, stream.days, stream.most) for stream in STREAMS}
    assert kept.keys() == {"RL_DEAD", "RL_INTAKE", "RL_MODELS", "RL_REWARDS", "RL_TRAINING", "RL_TRAJECTORIES"}
    assert kept["RL_TRAJECTORIES"] == (("agent.rl.trajectory.v1",), 30, 1_000_000)
    assert kept["RL_REWARDS"] == (("agent.rl.reward.v1",), 30, 500_000)
    assert kept["RL_TRAINING"] == (("agent.rl.training.>",), 7, 10_000)
    assert stream_of("agent.rl.training.request.v1").name == "RL_TRAINING"
