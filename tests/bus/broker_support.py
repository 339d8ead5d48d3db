"""A real NATS server with our configuration, which can be killed and started again."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from loomrl.bus.bus import Bus
from loomrl.bus.open import open_bus
from loomrl.cluster.nats import broker
from loomrl.errors import BusAway
from loomrl.http.listen import Certificate


class NatsServer:
    """A server in a process of its own."""

    def __init__(self, folder: Path, port: int, *, certificate: Certificate | None = None) -> None:
        made = broker(folder, port=port)
        self.urls = made.urls
        self._command, self._environment = [*made.command, "-l", str(folder / "log")], os.environ | made.environment
        if certificate is not None:
            self._command += ["--tls", f"--tlscert={certificate.chain}", f"--tlskey={certificate.key}"]
            self.urls = {name: url.replace("nats://", "tls://") for name, url in made.urls.items()}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Of the account that takes in and publishes."""
        return self.urls["coordinator"]

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, env=self._environment)
        deadline = time.monotonic() + 30
        while True:
            try:
                with open_bus(self.url) as bus:
                    bus.browse("RL_DEAD")
            except BusAway:
                assert time.monotonic() < deadline, "nats-server did not start"
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def until(holds: Callable[[], bool], *, seconds: float = 20.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def drained(bus: Bus, subject: str, group: str = "all", *, wait_s: float = 0.5) -> list[bytes]:
    """The payloads that a group is given until nothing more comes, all acknowledged."""
    found: list[bytes] = []
    with bus.subscribe(subject, group=group) as subscription:
        while given := subscription.fetch(100, wait_s=wait_s):
            subscription.ack(given)
            found += [one.payload for one in given]
    return found
