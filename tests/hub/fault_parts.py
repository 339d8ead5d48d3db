"""Parts of a loop that get killed: a hub, a producer, and a learner that keeps to the contract of `loomrl.hub.hub`."""

import faulthandler
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hub_samples import attempts

from loomrl.config import HubConfig
from loomrl.errors import LeaseLost
from loomrl.http.listen import open_door
from loomrl.hub import open_hub
from loomrl.hub.client import HubClient
from loomrl.hub.http import serve_hub


def traced(trace: Path, part: Callable[..., None], *arguments: Any) -> None:
    """Run a part; if it crashes, the stacks of its threads are in `trace`."""
    with trace.open("w") as file:
        faulthandler.enable(file)
        part(*arguments)


def serve(store_url: str, port: int) -> None:
    serve_hub(open_hub(store_url, HubConfig(lease_s=1.0), groups_per_update=10_000), open_door(port=port))


def produce(url: str, log: Path, name: str) -> None:
    """Write to `log` what the hub confirmed.

    Attempts follow from their number, so after a crash it sends again what may or may not have arrived.
    """
    confirmed = log.read_text().split("\n")[:-1] if log.exists() else []
    number = len(confirmed) // 2
    with HubClient(url, patience_s=60) as hub, log.open("a") as lines:
        lines.truncate(sum(len(line) + 1 for line in confirmed))
        while True:
            for trajectory in attempts(f"{name}-{number}", 2)[len(confirmed) % 2 :]:
                hub.append([trajectory])
                lines.write(trajectory.id + "\n")
                lines.flush()
                os.fsync(lines.fileno())
            confirmed = []
            number += 1
            if log.with_name("stop").exists():
                break
            time.sleep(0.01)


def learn(url: str, folder: Path) -> None:
    """Train until all is drained.

    A checkpoint is `staged` with its lease, acked, and only then renamed to its number, which counts as trained.
    """
    staged = folder / "staged"
    with HubClient(url, patience_s=60) as hub:
        if staged.exists():
            believe(hub, staged)
        while not (folder / "drained").exists():
            version = sum(1 for _ in folder.glob("*.checkpoint"))
            lease = hub.lease(4, version=0, consumer="learner")
            if not lease.groups:
                time.sleep(0.02)
                continue
            trained = [trajectory.id for group in lease.groups for trajectory in group.trajectories]
            stage(staged, {"version": version + 1, "lease": lease.id, "trained": trained})
            believe(hub, staged)


def stage(staged: Path, checkpoint: dict[str, object]) -> None:
    unfinished = staged.with_suffix(".new")
    with unfinished.open("w") as file:
        json.dump(checkpoint, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(staged)


def believe(hub: HubClient, staged: Path) -> None:
    checkpoint = json.loads(staged.read_text())
    try:
        hub.ack(checkpoint["lease"], version=checkpoint["version"])
    except LeaseLost:
        staged.unlink()
    else:
        staged.rename(staged.with_name(f"{checkpoint['version']}.checkpoint"))
