"""Trajectories of other people's agents through NATS: published, taken in, redacted, durable in their agents' hubs."""

import gc
import multiprocessing
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from loomrl.bus.bus import Message
from loomrl.bus.client import Publisher
from loomrl.bus.event import TRAJECTORY
from loomrl.bus.open import open_bus
from loomrl.cluster.nats import broker
from loomrl.errors import BusAway
from loomrl.process import die_with_parent

AGENTS = 4
TURNS = 3
TOGETHER = 1000
"""Messages in one call of `publish`, which has 64 of them on their way."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of work."""

    events: int = 50_000
    paced: int = 1_000
    pace: float = 50.0
    """Per second."""
    sinks: int = 2
    """Processes, as many as there are cores: `loomrl bus run` may run any number of times."""


FULL = Size()
QUICK = Size(events=300, paced=20, pace=100.0)


def measure(size: Size = FULL) -> dict[str, Any]:
    """Every figure of `loomrl bench bus`. It writes to a temporary folder only."""
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as folder, _server(Path(folder) / "nats") as server:
        store = f"sqlite:///{folder}/loom.db"
        warm = AGENTS * size.sinks
        _say(f"{size.events:,} trajectories in windows, {size.sinks} sinks")
        with _sinks(size.sinks, store, server.urls["coordinator"]) as (pids, told):
            _publish(server.urls["agent"], warm)
            _wait_for(told, warm)
            before = _cpu_s(server.pid), sum(map(_cpu_s, pids))
            began = time.monotonic()
            publish_cpu_s = _publish(server.urls["agent"], size.events)
            published = time.monotonic()
            _wait_for(told, warm + size.events)
            ended = _stored_at(warm + size.events)
            after = _cpu_s(server.pid), sum(map(_cpu_s, pids))
            _say(f"{size.paced:,} trajectories, {size.pace:g} a second")
            with ThreadPoolExecutor(1) as reader:  # a sink waits where nobody reads what it tells
                told_all = reader.submit(_wait_for, told, warm + size.events + size.paced)
                sent = _publish_paced(server.urls["agent"], size, Path(folder) / "spool")
                told_all.result()
            first = warm + size.events
            waits = [_stored_at(first + number + 1) - at for number, at in enumerate(sent)]
    cpu = {
        "publisher": publish_cpu_s,
        "server": after[0] - before[0],
        "sink": after[1] - before[1],
    }
    return {
        "events_per_s": round(size.events / (ended - began)),
        "published_per_s": round(size.events / (published - began)),
        "events_per_cpu_s": round(size.events / max(sum(cpu.values()), 1e-9)),
        "cpu_us_per_event": {name: round(1e6 * seconds / size.events, 1) for name, seconds in cpu.items()},
        "collect_ms_p50": round(1e3 * statistics.median(waits), 2),
        "collect_ms_p99": round(1e3 * sorted(waits)[int(0.99 * (len(waits) - 1))], 2),
        "event": {"bytes": len(_payload(0)), "turns": TURNS},
        "sinks": size.sinks,
        "machine": {
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
            "system": platform.platform(),
        },
    }


_seen: list[tuple[int, float]] = []
"""Trajectories on record, and when that was so."""


@dataclass(frozen=True, slots=True)
class _Server:
    pid: int
    urls: dict[str, str]


@contextmanager
def _server(folder: Path) -> Iterator[_Server]:
    _seen.clear()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    made = broker(folder, port=port)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(made.command, env=os.environ | made.environment, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                with open_bus(made.urls["coordinator"]) as bus:
                    bus.subscribe(TRAJECTORY.subject, group="bench").close()
                break
            except BusAway:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        yield _Server(process.pid, made.urls)
    finally:
        process.kill()
        process.wait()


@contextmanager
def _sinks(count: int, store: str, url: str) -> Iterator[tuple[list[int], list[Connection]]]:
    """Sinks in processes of their own: their ids, and where they tell what they stored."""
    context = multiprocessing.get_context("spawn")
    ends = [context.Pipe(duplex=False) for _ in range(count)]
    processes = [context.Process(target=_take_in, args=(store, url, end, os.getpid()), daemon=True) for _, end in ends]
    for process in processes:
        process.start()
    try:
        yield [process.pid or 0 for process in processes], [ours for ours, _ in ends]
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _take_in(store: str, url: str, told: Connection, parent: int) -> None:
    """A sink, until it is ended; it tells how many more are on record, and when that was so."""
    from loomrl.bus.sink import Sink
    from loomrl.store import open_store

    die_with_parent(parent)
    with open_store(store) as db, open_bus(url) as bus:
        sink = Sink(db, store, bus)
        gc.freeze()  # as `loomrl bus run` does
        while True:
            taken = sink.step(wait_s=1.0)
            if taken.dead:
                raise RuntimeError(f"dead letters: {taken.dead}")
            if taken.stored:
                told.send((taken.stored, time.monotonic()))


def _publish(url: str, count: int) -> float:
    """Publish so many in windows; the CPU seconds that it took, without making the events."""
    spent = 0.0
    with open_bus(url) as bus:
        for first in range(0, count, TOGETHER):
            messages = [
                Message(subject=TRAJECTORY.subject, id=str(id := uuid.uuid4()), payload=_payload(number, id))
                for number in range(first, min(first + TOGETHER, count))
            ]
            before = time.process_time()
            bus.publish(messages)
            spent += time.process_time() - before
    return spent


def _publish_paced(url: str, size: Size, spool: Path) -> list[float]:
    """Publish one by one as an agent does, checked and redacted; when each call began."""
    began = []
    with Publisher(url, spool=spool) as publisher:
        publisher.flush()
        start = time.monotonic()
        for number in range(size.paced):
            time.sleep(max(0.0, start + number / size.pace - time.monotonic()))
            event = _event(number, uuid.uuid4())
            began.append(time.monotonic())
            if not publisher.publish(event):
                raise RuntimeError("the broker did not take a trajectory")
    return began


def _wait_for(told: Sequence[Connection], count: int) -> None:
    """Read on until so many are on record."""
    while not _seen or _seen[-1][0] < count:
        if not (ready := wait(told, timeout=600)):
            raise RuntimeError("The sinks of the benchmark are silent: their own message is above.")
        for more, at in sorted((end.recv() for end in told if end in ready), key=itemgetter(1)):
            _seen.append((more + (_seen[-1][0] if _seen else 0), at))


def _stored_at(number: int) -> float:
    return next(at for count, at in _seen if count >= number)


def _cpu_s(pid: int | None) -> float:
    """CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _payload(number: int, id: uuid.UUID | None = None) -> bytes:
    return msgspec.json.encode(_event(number, id or uuid.UUID(int=0)))


def _event(number: int, id: uuid.UUID) -> dict[str, Any]:
    """A trajectory of an ordinary agent: a question, two calls, an answer."""
    at = "2026-01-31T12:00:00Z"
    said = f"Order {number} arrived in the wrong colour; the customer wants the blue one instead, by Friday."
    calls = [
        {
            "turn_id": turn + 1,
            "timestamp": at,
            "observation": {"type": "tool_result" if turn else "user_message", "content": said},
            "thought_process": ["The order has to be looked up first."],
            "action": {"type": "tool_call", "tool_name": "orders", "tool_args": {"number": number, "part": turn}},
            "result": {"success": True, "output": said, "execution_time_ms": 12.5},
        }
        for turn in range(TURNS - 1)
    ]
    answer = {
        "turn_id": TURNS,
        "timestamp": at,
        "observation": {"type": "tool_result", "content": said},
        "action": {"type": "response", "raw_response": "The blue one leaves today and arrives on Thursday."},
        "result": {"success": True},
    }
    return {
        "trajectory_id": str(id),
        "session_id": f"session-{number}",
        "agent_id": f"agent-{number % AGENTS}",
        "start_timestamp": at,
        "end_timestamp": at,
        "turns": [*calls, answer],
        "task_context": {"task_id": f"t-{number}", "instructions": "You help a shop.", "domain": "general"},
        "metadata": {"model": "their-model", "temperature": 0.7, "total_tokens": 412},
    }


def _say(text: str) -> None:
    print(f"bench bus: {text}", file=sys.stderr, flush=True)
