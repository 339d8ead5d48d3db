"""A served hub for the Atropos tests: in a thread, or as a process that can be killed."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from hub_samples import served

from loomrl.config import HubConfig
from loomrl.hub.atropos.routes import atropos_routes
from loomrl.hub.http import create_app
from loomrl.hub.open import open_hub
from loomrl.store import open_store
from loomrl.store.notes import Notes

TRAINER = {
    "wandb_group": "group",
    "wandb_project": "project",
    "batch_size": 4,
    "max_token_len": 512,
    "checkpoint_dir": "/checkpoints",
    "save_checkpoint_interval": 10,
    "starting_step": 0,
    "num_steps": 100,
}
ENVIRONMENT = {"max_token_length": 512, "desired_name": "math", "weight": 1.0, "group_size": 4}


@contextmanager
def serving(
    url: str, *, lease_s: float = 600.0, max_bytes: int = 1 << 20, token: str | None = None
) -> Iterator[httpx.Client]:
    """A client of a hub that is served in this process; closing and opening again is a clean restart."""
    hub, db = open_hub(url, HubConfig(lease_s=lease_s)), open_store(url)
    app = create_app(hub, token=token, extra_routes=atropos_routes(hub, Notes(db)), max_bytes=max_bytes)
    try:
        with served(app) as address, httpx.Client(base_url=address, timeout=30) as client:
            yield client
    finally:
        hub.close()
        db.close()


class Process:
    """The same server as a process of its own."""

    def __init__(self, url: str, *, port: int) -> None:
        script = Path(__file__).with_name("atropos_server.py")
        self._process = subprocess.Popen([sys.executable, str(script), url, str(port)])
        self._url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                httpx.get(self._url)
            except httpx.TransportError:
                time.sleep(0.05)
            else:
                return
        raise RuntimeError("The server did not start.")

    def call(self, method: str, path: str, **options: Any) -> Any:
        """One call on a connection of its own, as the real clients make them."""
        return httpx.request(method, self._url + path, timeout=30, **options).raise_for_status().json()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def group(start: int, size: int = 4, length: int = 6, **more: Any) -> dict[str, Any]:
    """A group as an environment posts it; `start` makes it unlike others."""
    tokens = [[start + row * length + place for place in range(length)] for row in range(size)]
    masks = [[-100, -100, *row[2:]] for row in tokens]
    logprobs = [[1.0, 1.0, *(-0.125 * place for place in range(2, length))] for _ in range(size)]
    return {
        "tokens": tokens,
        "masks": masks,
        "scores": [float(row) for row in range(size)],
        "inference_logprobs": logprobs,
        **more,
    }


def first_tokens(batch: list[dict[str, Any]]) -> list[int]:
    """The first tokens of groups, which tell them apart."""
    return [data["tokens"][0][0] for data in batch]
