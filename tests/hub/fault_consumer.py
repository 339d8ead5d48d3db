"""A learner that gets killed: `fault_consumer.py HUB_URL FOLDER`. It keeps to the contract of `loomrl.hub.hub`.

A checkpoint is `staged` with its lease, acked, and only then renamed to its number, which is what counts as trained.
"""

import json
import os
import sys
import time
from pathlib import Path

from loomrl.errors import LeaseLost
from loomrl.hub.client import HubClient


def main(url: str, folder: Path) -> None:
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


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
