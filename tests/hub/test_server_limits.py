"""Clients that keep a server waiting: their time is limited, and they keep nobody else out."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from hub_samples import attempt, hub_command, served
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from loomrl.http.server import Limits
from loomrl.hub.codec import encode
from loomrl.hub.wire import PAYLOADS

pytestmark = pytest.mark.system

HEAD = b"POST /v2/append HTTP/1.1\r\nHost: 127.0.0.1\r\n"
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


def is_closed(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_half_open_connections_keep_no_producer_out(tmp_path: Path, unused_tcp_port: int) -> None:
    """Nothing at all, half the headers, and bodies that stop: more of them than the server may have descriptors."""
    url = f"http://127.0.0.1:{unused_tcp_port}"
    starts = (b"", HEAD, HEAD + b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
    with hub_command(tmp_path, unused_tcp_port, descriptors=160), ExitStack() as stack:
        kept = stack.enter_context(httpx.Client(timeout=30, headers={"content-type": PAYLOADS}))
        kept.post(f"{url}/v2/append", content=encode(attempt("before"))).raise_for_status()
        attackers = []
        for number in range(300):
            attackers.append(stack.enter_context(socket.create_connection(("127.0.0.1", unused_tcp_port), 30)))
            attackers[-1].sendall(starts[number % 3])
        for number in range(10):
            kept.post(f"{url}/v2/append", content=encode(attempt(f"kept {number}"))).raise_for_status()
            with httpx.Client(timeout=30, headers={"content-type": PAYLOADS}) as fresh:
                fresh.post(f"{url}/v2/append", content=encode(attempt(f"fresh {number}"))).raise_for_status()
        assert sum(map(is_closed, attackers)) >= 300 - 160
