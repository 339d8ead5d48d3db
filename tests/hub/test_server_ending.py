"""Start and end of a served hub: a busy port is reported before anything else, a killed server is back before its
clients give up, a terminated one leaves its data in its file.
"""

import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest
from hub_samples import attempts, hub_command

from loomrl.config import HubConfig
from loomrl.errors import ServeError
from loomrl.http.listen import open_door
from loomrl.hub import open_hub
from loomrl.hub.client import HubClient

pytestmark = pytest.mark.system


def test_busy_port_is_named_with_who_to_ask_and_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "loomrl",
            "hub",
            "--port",
            str(port),
            f"store_url=sqlite:///{tmp_path}/loom.db",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"port={port} on 127.0.0.1 is taken" in line
    assert f"ss -ltnp 'sport = :{port}'" in line
    assert "--port" in line
    assert not list(tmp_path.iterdir()), "it began to work before it looked"


@pytest.mark.parametrize(("host", "says"), [("no.such.invalid", "is no address"), ("192.0.2.1", "no address of this")])
def test_address_that_is_not_ours_is_said(host: str, says: str) -> None:
    with pytest.raises(ServeError, match=f"{host}.*{says}"):
        open_door(host, 0, token="secret")


def test_killed_server_is_back_and_clients_only_waited(tmp_path: Path, unused_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    with hub_command(tmp_path, unused_tcp_port) as keeper, HubClient(url) as client:
        client.append(attempts("a"))
        for _ in range(2):
            (server,) = psutil.Process(keeper.pid).children()
            server.kill()
            begun = time.monotonic()
            assert httpx.get(f"{url}/v2/health", timeout=60).is_success, "a new connection was refused"
            print(f"back after {time.monotonic() - begun:.2f} s")
        assert client.append(attempts("a")) == [1, 2]
        (server,) = psutil.Process(keeper.pid).children()
        keeper.kill()
        server.wait(30)  # raises, where it outlives its keeper


def test_terminated_hub_leaves_its_data_in_its_file(tmp_path: Path, unused_tcp_port: int) -> None:
    with hub_command(tmp_path, unused_tcp_port) as keeper:
        with HubClient(f"http://127.0.0.1:{unused_tcp_port}") as client:
            client.append(attempts("a"))
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
        assert reader.stdout is not None
        assert reader.stdout.readline() == "open\n"
        hub.append(attempts("a"))
    copy = shutil.copy(tmp_path / "loom.db", tmp_path / "copy.db")
    reader.communicate("\n")
    with open_hub(f"sqlite:///{copy}", HubConfig()) as hub:
        assert len(hub.read()) == 2
