import os
import signal
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest
from event_samples import foreign_event

from loomrl.bus import Publisher, publish_trajectory
from loomrl.bus.bus import Message
from loomrl.bus.client import Spool
from loomrl.bus.event import TRAJECTORY
from loomrl.bus.open import open_bus
from loomrl.errors import BusAway, BusError, BusRefused, EventError

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz012345"


def on(url: str) -> list[bytes]:
    with open_bus(url) as bus:
        return [given.payload for given in bus.browse("RL_TRAJECTORIES")]


def test_a_trajectory_is_checked_redacted_and_published_with_its_id(sqlite_url: str, tmp_path: Path) -> None:
    event = foreign_event(says=f"use {KEY}")
    event |= {"trajectory_id": uuid.UUID(event["trajectory_id"]), "end_timestamp": datetime(2026, 2, 1, tzinfo=UTC)}
    assert publish_trajectory(event, url=sqlite_url, spool=tmp_path / "spool")
    assert publish_trajectory(event, url=sqlite_url, spool=tmp_path / "spool")
    (payload,) = on(sqlite_url)
    assert KEY.encode() not in payload
    assert TRAJECTORY.parse(payload)["trajectory_id"] == event["trajectory_id"]
    with pytest.raises(EventError, match="further: Extra inputs"):
        publish_trajectory(foreign_event(further=1), url=sqlite_url, spool=tmp_path / "spool")


def test_without_a_url_the_variable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NATS_URL", raising=False)
    with pytest.raises(BusError, match="NATS_URL"):
        publish_trajectory(foreign_event(), spool=tmp_path)


def test_an_unknown_scheme_is_named_with_the_nearest() -> None:
    with pytest.raises(BusError, match=r"'natz'.*Known: nats.*Did you mean 'nats'"):
        open_bus("natz://127.0.0.1:4222")


class Away:
    """Loses the bus when told so."""

    def __init__(self, publisher: Publisher, error: BusError) -> None:
        self._publisher, self._bus, self._error = publisher, publisher._bus, error

    def __enter__(self) -> None:
        self._publisher._bus = self  # type: ignore[assignment]

    def publish(self, messages: object) -> list[bool]:
        raise self._error

    def __exit__(self, *_: object) -> None:
        self._publisher._bus = self._bus


def test_what_the_broker_does_not_take_waits_in_the_spool_redacted_and_goes_first(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loomrl.bus.client.PAUSE_S", 0.0)
    events = [foreign_event(says=f"use {KEY}") for _ in range(4)]
    with Publisher(sqlite_url, spool=tmp_path / "spool") as publisher:
        with Away(publisher, BusAway("gone")):
            assert [publisher.publish(event) for event in events[:2]] == [False, False]
        with Away(publisher, BusRefused("no right")), pytest.raises(BusRefused):
            publisher.publish(events[2])
        assert len(publisher.spool) == 3
        assert all(KEY.encode() not in file.read_bytes() for file in (tmp_path / "spool").iterdir())
        assert publisher.publish(events[3])
        assert len(publisher.spool) == 0
    ids = [str(TRAJECTORY.parse(payload)["trajectory_id"]) for payload in on(sqlite_url)]
    assert ids == [event["trajectory_id"] for event in events]


def test_a_full_spool_refuses_by_name_and_loses_nothing_that_is_in_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", most_bytes=1000)
    messages = [Message(subject="s", id=str(number), payload=b"x" * 300) for number in range(4)]
    for message in messages[:2]:
        spool.put(message)
    with pytest.raises(BusError, match=r"spool .* is full \(2 messages"):
        spool.put(messages[2])
    waiting = spool.waiting(10)
    assert [message for _, message in waiting] == messages[:2]
    spool.drop([waiting[0][0]])
    spool.put(messages[3])
    assert [message.id for _, message in spool.waiting(10)] == ["1", "3"]


def test_a_damaged_file_is_put_aside(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.put(Message(subject="s", id="1", payload=b"\n\0binary\n"))
    (tmp_path / "0-cut.event").write_bytes(b'{"subject": ')
    (tmp_path / "0-half.new").write_bytes(b"{}")
    ((_, message),) = spool.waiting(10)
    assert message.payload == b"\n\0binary\n"
    assert sorted(file.suffix for file in tmp_path.iterdir()) == [".broken", ".event", ".new"]


@pytest.mark.system
def test_an_agent_that_is_killed_leaves_a_spool_that_the_next_one_publishes(sqlite_url: str, tmp_path: Path) -> None:
    program = """
import os, signal, sys, uuid
sys.path[:0] = sys.argv[3:]
from event_samples import foreign_event
from loomrl.bus import Publisher
import loomrl.bus.client as client
client.PAUSE_S = 1e9
publisher = Publisher("nats://127.0.0.1:" + sys.argv[2], spool=sys.argv[1])
for number in range(20):
    event = foreign_event(str(uuid.UUID(int=number)))
    assert not publisher.publish(event)
heavy = {"torch", "ray", "transformers", "vllm", "sqlalchemy", "numpy"} & set(sys.modules)
print(sorted(heavy), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", program, tmp_path / "spool", "1", Path(__file__).parent]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout.strip() == "[]"
    with Publisher(sqlite_url, spool=tmp_path / "spool") as publisher:
        assert publisher.flush() == 20
    ids = [TRAJECTORY.parse(payload)["trajectory_id"].int for payload in on(sqlite_url)]
    assert ids == list(range(20))


def test_agent_of_the_guide_publishes(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_URL", sqlite_url)
    monkeypatch.chdir(tmp_path)
    guide = (Path(__file__).parents[2] / "docs/events.md").read_text()
    exec(guide.partition("```python\n")[2].partition("```")[0], {})
    (payload,) = on(sqlite_url)
    assert TRAJECTORY.parse(payload)["agent_id"] == "support"
