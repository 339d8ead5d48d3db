"""A real Prometheus on this machine, with the shipped configuration and rules, at a test's pace."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from loomrl.cluster.monitoring import SHIPPED, write


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running server."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}, timeout=30)
        assert answer.status_code == 200, f"{expression}: {answer.text}"
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    def has(self, expression: str) -> bool:
        """True if it has data now, other than NaN."""
        return any(series["value"][1] != "NaN" for series in self.query(expression))

    def alerts(self) -> set[str]:
        """The alerts that fire."""
        answer = httpx.get(f"{self.url}/api/v1/alerts", timeout=30).json()["data"]["alerts"]
        return {each["labels"]["alertname"] for each in answer if each["state"] == "firing"}

    def targets(self) -> dict[str, str]:
        """The roles of what is scraped, and their health."""
        answer = httpx.get(f"{self.url}/api/v1/targets", timeout=30).json()["data"]["activeTargets"]
        return {f"{each['labels'].get('role', 'record')}": each["health"] for each in answer}

    def wait(self, expression: str, *, timeout_s: float = 30.0) -> None:
        """Return once the expression has data."""
        until = time.monotonic() + timeout_s
        while not self.has(expression):
            assert time.monotonic() < until, f"{expression}: no data after {timeout_s} s; {self.targets()}"
            time.sleep(0.1)


@contextmanager
def prometheus(folder: Path, port: int, record: str, *, pace_s: float = 1.0) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the record at `record` (`host:port`), and whatever that says there is."""
    write(folder)
    config = yaml.safe_load((SHIPPED / "prometheus.yaml").read_text().replace("127.0.0.1:9464", record))
    config["global"] = dict.fromkeys(("scrape_interval", "evaluation_interval"), f"{round(1000 * pace_s)}ms")
    config["scrape_configs"][1]["http_sd_configs"][0]["refresh_interval"] = "1s"
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    program = shutil.which("prometheus")
    command = [
        program,
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    running = Prometheus(f"http://127.0.0.1:{port}")
    try:
        _wait(running.url, process, folder / "log")
        yield running
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        try:
            if httpx.get(f"{url}/-/ready", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"Prometheus did not start:\n{log.read_text()}")
