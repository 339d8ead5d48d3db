"""Cost of a gateway's metrics, and of tracing where it is off: CPU time of calls with and without, alternately."""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from loomrl.http.listen import open_door
from loomrl.http.server import Embedded
from loomrl.observability.exposition import process_registry, text_of
from loomrl.serving.converse import Exchange
from loomrl.serving.door import NoKeys
from loomrl.serving.gateway import Gateway
from loomrl.serving.local import only
from loomrl.serving.meter import Meter
from loomrl.serving.observe import Watchers
from loomrl.serving.policy import About, Act, Acted
from loomrl.store import open_store
from loomrl.telemetry.record import RecordCollector

BODY = json.dumps({"model": "m", "observation": [0.0, 0.0, 0.0, 0.0]}).encode()

HEAD = (
    b"POST /v1/act HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    + f"content-length: {len(BODY)}\r\n\r\n".encode()
)


@dataclass(frozen=True, slots=True)
class Size:
    """Amounts of what is measured."""

    calls: int
    rounds: int


FULL, QUICK = Size(2000, 20), Size(50, 2)


class _Still:
    """Always the same action, at no cost: what is left is the gateway."""

    about = About(
        kind="control",
        version="r/1",
        number=1,
        spaces={"observation": {"kind": "box"}, "action": {"kind": "discrete", "n": 2}},
    )

    async def act(self, act: Act) -> Acted:
        return Acted(actions=np.zeros(1, np.int64), version=1)

    def answer(self, continuation: Any) -> Any:
        raise NotImplementedError


def measure(size: Size) -> dict[str, Any]:
    """CPU microseconds of an act over HTTP with its client, and of the gateway alone; the medians of paired rounds."""
    figures: dict[str, Any] = {"calls": size.calls, "rounds": size.rounds}
    for name, rounds in (("http", asyncio.run(_over_http(size))), ("gateway", asyncio.run(_alone(size)))):
        without, metered = zip(*rounds, strict=True)
        ratio = statistics.median(after / before for before, after in rounds)
        figures |= {
            f"{name}_us": round(statistics.median(without), 1),
            f"{name}_metered_us": round(statistics.median(metered), 1),
            f"{name}_ratio": round(ratio, 4),
        }
    return figures | _scrapes(size)


def _gateway(*, metered: bool) -> Gateway:
    watchers = Watchers(meter=Meter()) if metered else Watchers()
    return Gateway(Exchange(only("m", _Still()), None, watchers=watchers), keys=NoKeys())


async def _over_http(size: Size) -> list[tuple[float, float]]:
    """A client of a few lines, so that most of the time is the server's."""
    servers, calls = [], []
    for metered in (False, True):
        door = open_door("127.0.0.1", 0)
        servers.append(Embedded(_gateway(metered=metered), door.listeners))
        await servers[-1].start()
        calls.append(_Client(*await asyncio.open_connection("127.0.0.1", door.port)))
    rounds = await _rounds([client.call for client in calls], size.calls, size.rounds)
    for client, server in zip(calls, servers, strict=True):
        client.writer.close()
        await server.close()
    return rounds


async def _alone(size: Size) -> list[tuple[float, float]]:
    gateways = [_gateway(metered=False), _gateway(metered=True)]
    return await _rounds([partial(_call, gateway) for gateway in gateways], size.calls, size.rounds)


async def _rounds(calls: Sequence[Callable[[], Awaitable[None]]], count: int, rounds: int) -> list[tuple[float, float]]:
    """Microseconds of a call without and with, one after the other, each first in turn."""
    found = []
    for number in range(rounds + 1):
        times = [0.0, 0.0]
        for place in (0, 1) if number % 2 else (1, 0):
            began = time.process_time()
            for _ in range(count):
                await calls[place]()
            times[place] = 1e6 * (time.process_time() - began) / count
        found.append((times[0], times[1]))
    return found[1:]


@dataclass(frozen=True, slots=True)
class _Client:
    """One connection that stays open."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def call(self) -> None:
        self.writer.write(HEAD + BODY)
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        _, _, length = head.partition(b"content-length: ")
        await self.reader.readexactly(int(length.partition(b"\r\n")[0]))


async def _call(gateway: Gateway) -> None:
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/act",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode())],
    }
    statuses = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(message: Any) -> None:
        statuses.append(message.get("status"))

    await gateway(scope, receive, send)
    assert statuses[0] == 200


def _scrapes(size: Size) -> dict[str, float]:
    """CPU milliseconds of a scrape: of a gateway, and of an empty record."""
    meter = Meter()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/loom.db"
        with open_store(url) as db:
            registry, collector = process_registry(), RecordCollector(db, url)
            registry.register(collector)
            record = _median(lambda: text_of(registry), size.rounds)
            collector.close()
    return {"scrape_gateway_ms": _median(meter.text, size.rounds), "scrape_record_ms": record}


def _median(work: Any, rounds: int) -> float:
    times: Sequence[float] = [_time(work) for _ in range(rounds)]
    return round(1e3 * statistics.median(times), 2)


def _time(work: Any) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
