"""Clients that keep a server waiting: their time is limited, and they keep nobody else out."""

import json
import socket
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from half_open import HEAD, half_open
from hub_samples import attempt, hub_command, served
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from loomrl.http.server import Limits
from loomrl.hub.codec import encode

pytestmark = pytest.mark.system

BRIEF = Limits(patience_s=1.0, least_rate=1_000_000, total_s=4.0)
HUGE = 64 << 20


async def echo(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def huge(_: Request) -> Response:
    return Response(bytes(HUGE))


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server with little patience."""
    app = Starlette(routes=[Route("/", echo, methods=["POST"]), Route("/huge", huge)])
    with served(app, BRIEF) as url:
        yield int(url.rpartition(":")[2])


@pytest.mark.parametrize(
    "start", [b"", HEAD, HEAD + b"Content-Length: 9\r\n\r\n12345678", HEAD + b"Content-Length: 0\r\n\r\n"]
)
def test_client_that_says_no_more_is_closed(port: int, start: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(start)
        begun = time.monotonic()
        while client.recv(1 << 16):
            pass
    assert time.monotonic() - begun >= BRIEF.patience_s / 2


@pytest.mark.parametrize("start", [HEAD, HEAD + b"Content-Length: 1000000\r\n\r\n"])
def test_client_that_drips_is_closed_though_it_never_pauses(port: int, start: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), 30) as client, pytest.raises(OSError):  # noqa: PT012
        client.sendall(start)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            client.sendall(b"x")
            time.sleep(0.05)


def test_body_is_closed_in_the_end_however_steadily_it_comes(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 30) as client, pytest.raises(OSError):  # noqa: PT012
        client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            client.sendall(b"30D40\r\n" + bytes(200_000) + b"\r\n")
            time.sleep(0.1)


def test_body_that_comes_steadily_outlasts_the_patience(port: int) -> None:
    def slowly() -> Iterator[bytes]:
        for _ in range(10):
            yield bytes(500_000)
            time.sleep(0.15)

    assert httpx.post(f"http://127.0.0.1:{port}/", content=slowly(), timeout=60).text == "5000000"


def test_answer_that_nobody_reads_is_given_up_and_one_that_is_read_slowly_is_not(port: int) -> None:
    ask = b"GET /huge HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), 30) as idle:
        idle.sendall(ask)
        with socket.create_connection(("127.0.0.1", port), 30) as slow:
            slow.sendall(ask)
            assert read_all(slow, pause_s=0.02) > HUGE
        time.sleep(BRIEF.patience_s + 1)
        assert read_all(idle) < HUGE


def read_all(client: socket.socket, *, pause_s: float = 0.0) -> int:
    size = 0
    while part := client.recv(1 << 20):
        size += len(part)
        time.sleep(pause_s)
    return size


def append_s(url: str, name: str, count: int) -> float:
    """The median time of an append: every second one on a connection of its own, the others on one that stays."""
    took, headers = [], {"content-type": "application/vnd.loomrl.trajectories"}
    with httpx.Client(base_url=url, timeout=120) as client:
        for number in range(count):
            payload = encode(attempt(f"{name}/{number}"))
            begun = time.monotonic()
            if number % 2:
                client.post("/v2/append", content=payload, headers=headers).raise_for_status()
            else:
                httpx.post(f"{url}/v2/append", content=payload, headers=headers, timeout=120).raise_for_status()
            took.append(time.monotonic() - begun)
    return statistics.median(took)


@pytest.mark.parametrize(
    ("descriptors", "count", "rounds", "appends"),
    [(160, 300, 1, 20), pytest.param(1024, 2000, 3, 100, marks=pytest.mark.slow)],
)
def test_half_open_connections_keep_no_producer_out(
    descriptors: int, count: int, rounds: int, appends: int, tmp_path: Path, unused_tcp_port: int
) -> None:
    alone, beside, closed = [], [], 0
    url = f"http://127.0.0.1:{unused_tcp_port}"
    with hub_command(tmp_path, unused_tcp_port, descriptors=descriptors):
        append_s(url, "warm", 10)
        for number in range(rounds):
            alone.append(append_s(url, f"alone {number}", appends))
            with half_open(unused_tcp_port, count) as were_closed:
                beside.append(append_s(url, f"beside {number}", appends))
            closed += were_closed[0]
    figures = {"alone_ms": [1e3 * s for s in alone], "beside_ms": [1e3 * s for s in beside], "closed": closed}
    print(json.dumps(figures))
    assert statistics.median(beside) < 5 * statistics.median(alone), figures
    assert closed >= (count - descriptors) * rounds
