"""Servers that speak HTTPS: a hub and its client, and clients that never come to a handshake."""

import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest
from hub_samples import attempts, hub_command, math_of, served
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from loomrl.config import HubConfig
from loomrl.errors import HubError, ServeError
from loomrl.experiments.cli import app
from loomrl.http.listen import Certificate, open_door, trusted
from loomrl.http.server import Limits
from loomrl.hub import open_hub
from loomrl.hub.client import HubClient
from loomrl.hub.http import create_app
from tests.tls_samples import Issued, issue, trusting

pytestmark = pytest.mark.system
BRIEF = Limits(patience_s=1.0, connections=8)


@pytest.fixture
def issued(tmp_path: Path) -> Issued:
    return issue(tmp_path)


async def scheme(request: Request) -> PlainTextResponse:
    return PlainTextResponse(request.url.scheme)


def test_a_hub_is_reached_over_https_by_who_trusts_its_certificate(issued: Issued, sqlite_url: str) -> None:
    with open_hub(sqlite_url, HubConfig()) as hub, served(create_app(hub), certificate=issued.certificate) as url:
        assert url.startswith("https://")
        with trusting(issued.authority), HubClient(url) as client:
            client.append(attempts("group"))
            assert math_of(client).trajectories == 2
        with HubClient(url, patience_s=0.1) as stranger, pytest.raises(HubError, match="CERTIFICATE_VERIFY_FAILED"):
            stranger.stats()
        with pytest.raises(httpx.TransportError):
            httpx.get(url.replace("https", "http"), trust_env=False)


def test_clients_without_a_handshake_keep_nobody_out(issued: Issued) -> None:
    app = Starlette(routes=[Route("/", scheme)])
    with served(app, BRIEF, certificate=issued.certificate) as url, ExitStack() as stack, trusting(issued.authority):
        port = int(url.rpartition(":")[2])
        for _ in range(3 * BRIEF.connections):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        client = stack.enter_context(httpx.Client(verify=trusted(), trust_env=False, timeout=30))
        begun = time.monotonic()
        assert client.get(url).text == "https"
        assert time.monotonic() - begun < 20
        silent = stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
        assert silent.recv(1) == b"", "it is closed"


@pytest.mark.parametrize(
    ("chain", "key", "said"),
    [
        ("nowhere.pem", "key.pem", "no such file"),
        ("chain.pem", "nowhere.pem", "no such file"),
        ("key.pem", "key.pem", "in PEM"),
        ("chain.pem", "root.pem", "in PEM"),
        ("chain.pem", "other/key.pem", "(?i)mismatch"),
    ],
)
def test_files_that_are_no_certificate_are_refused_by_name(
    issued: Issued, tmp_path: Path, chain: str, key: str, said: str
) -> None:
    (tmp_path / "other").mkdir()
    issue(tmp_path / "other")
    with pytest.raises(ServeError, match=said) as caught:
        open_door(port=0, certificate=Certificate(tmp_path / chain, tmp_path / key))
    assert str(tmp_path) in str(caught.value)


def test_busy_port_is_named_with_who_to_ask_and_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServeError, match=rf"port={port} on 127.0.0.1 is taken.*ss -ltnp 'sport = :{port}'.*--port"):
            app(["hub", "--port", str(port), f"store_url=sqlite:///{tmp_path}/loom.db"], standalone_mode=False)
    assert not list(tmp_path.iterdir()), "it began to work before it looked"


@pytest.mark.parametrize(("host", "says"), [("no.such.invalid", "is no address"), ("192.0.2.1", "no address of this")])
def test_address_that_is_not_ours_is_said(host: str, says: str) -> None:
    with pytest.raises(ServeError, match=f"{host}.*{says}"):
        open_door(host, 0, token="secret")


def test_killed_server_is_back_and_a_terminated_one_leaves_its_data_in_its_file(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    with hub_command(tmp_path, unused_tcp_port) as keeper:
        with HubClient(url) as client:
            client.append(attempts("a"))
            (server,) = psutil.Process(keeper.pid).children()
            server.kill()
            assert httpx.get(f"{url}/v2/health", timeout=60).is_success, "a new connection was refused"
            assert client.append(attempts("a")) == [1, 2]
        keeper.terminate()
        assert keeper.wait(30) == 128 + signal.SIGTERM
    copy = shutil.copy(tmp_path / "loom.db", tmp_path / "copy.db")
    with open_hub(f"sqlite:///{copy}", HubConfig()) as hub:
        assert len(hub.read()) == 2


def test_closed_database_is_whole_in_its_file_though_another_process_has_it_open(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/loom.db"
    look = f"from loomrl.store import open_store; db = open_store({url!r}); print('open', flush=True); input()"
    with open_hub(url, HubConfig()) as hub:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        reader = subprocess.Popen([sys.executable, "-c", look], text=True, **pipes)
        assert reader.stdout.readline() == "open\n"
        hub.append(attempts("a"))
    copy = shutil.copy(tmp_path / "loom.db", tmp_path / "copy.db")
    reader.communicate("\n")
    with open_hub(f"sqlite:///{copy}", HubConfig()) as hub:
        assert len(hub.read()) == 2
