"""Cost of a gateway's metrics, and of tracing where it is off: CPU time of calls with and without, alternately."""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
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


@dataclass(frozen=True, slots=True)
class Size:
    """Amounts of what is measured."""

    calls: int
    rounds: int


FULL, QUICK = Size(2000, 15), Size(50, 3)


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
    servers = []
    clients = []
    for metered in (False, True):
        door = open_door("127.0.0.1", 0)
        server = Embedded(_gateway(metered=metered), door.listeners)
        await server.start()
        servers.append(server)
        clients.append(httpx.AsyncClient(base_url=door.url))

    async def one(client: httpx.AsyncClient) -> float:
        began = time.process_time()
        for _ in range(size.calls // 4):
            answer = await client.post("/v1/act", content=BODY, headers={"content-type": "application/json"})
            assert answer.status_code == 200, answer.text
        return 4e6 * (time.process_time() - began) / size.calls

    rounds = [(await one(clients[0]), await one(clients[1])) for _ in range(size.rounds)]
    for client, server in zip(clients, servers, strict=True):
        await client.aclose()
        await server.close()
    return rounds[1:]


async def _alone(size: Size) -> list[tuple[float, float]]:
    gateways = [_gateway(metered=False), _gateway(metered=True)]

    async def one(gateway: Gateway) -> float:
        began = time.process_time()
        for _ in range(size.calls):
            await _call(gateway)
        return 1e6 * (time.process_time() - began) / size.calls

    return [(await one(gateways[0]), await one(gateways[1])) for _ in range(size.rounds)][1:]


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
