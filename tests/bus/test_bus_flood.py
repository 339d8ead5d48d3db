import os
import random
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from broker_support import NatsServer, until
from event_samples import foreign_event, message

from loomrl.bus.agent import open_agent_hub
from loomrl.bus.bus import Message
from loomrl.bus.dead import letters
from loomrl.bus.event import TRAJECTORY
from loomrl.bus.open import open_bus
from loomrl.config import HubConfig
from loomrl.hub import EVERYTHING

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(7200)]
EVENTS, BAD, KILLS = int(os.environ.get("LOOMRL_FLOOD", "30000")), 300, 10
"""The stream keeps the latest 1,000,000, good and bad: more than 999,700 good ones cannot all wait in it."""
BYTES = 600_000_000
"""All of the flood together: more memory than a sink may take."""
MOST_KB = 400_000
"""The interpreter with SQLAlchemy and NumPy is half of it; all of the flood at once would be more than twice this."""


def start(store: str, url: str) -> subprocess.Popen[str]:
    program = Path(__file__).with_name("fault_sink.py")
    sink = subprocess.Popen([sys.executable, program, store, url], stdout=subprocess.PIPE, text=True, env=os.environ)
    assert sink.stdout.readline() == "ready\n"
    return sink


def count(url: str) -> int:
    with open_agent_hub(url, "zero", HubConfig()) as hub:
        return sum(stats.trajectories for stats in hub.stats().environments.values())


def test_a_flood_is_taken_in_once_in_bounded_memory_while_sinks_are_killed(
    nats_server: NatsServer, sqlite_url: str
) -> None:
    nats_server.start()
    rng = random.Random(0)
    padding = "x" * (BYTES // EVENTS)
    good = [str(uuid.UUID(int=rng.getrandbits(128), version=4)) for _ in range(EVENTS)]
    with open_bus(nats_server.url) as bus:
        for first in range(0, EVENTS, 1000):
            bus.publish([message(foreign_event(id, says=padding)) for id in good[first : first + 1000]])
        bus.publish([Message(subject=TRAJECTORY.subject, id=f"bad {n}", payload=b"{}") for n in range(BAD)])
        sink = start(sqlite_url, nats_server.url)
        for number in range(1, KILLS + 1):
            until(lambda number=number: count(sqlite_url) > number * EVENTS // (2 * KILLS), seconds=1200)  # type: ignore[misc]
            sink.kill()
            sink.communicate()
            sink = start(sqlite_url, nats_server.url)
        until(lambda: count(sqlite_url) >= EVENTS, seconds=3600)
        until(lambda: all(one.waiting + one.unacked == 0 for s in bus.stats() for one in s.consumers), seconds=300)
        sink.send_signal(signal.SIGTERM)
        said, _ = sink.communicate(timeout=120)
        assert int(said) < MOST_KB
        assert len({letter.message for letter in letters(bus)}) == len(list(letters(bus))) == BAD
    found: list[str] = []
    with open_agent_hub(sqlite_url, "zero", HubConfig()) as hub:
        found.extend(trajectory.id for _, trajectory in hub.replay(selection=EVERYTHING, page=500))
    assert sorted(found) == sorted(good)
