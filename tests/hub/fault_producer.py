"""A producer that gets killed: `fault_producer.py HUB_URL LOG NAME`.

It writes to LOG what the hub confirmed. Its attempts follow from their number, so after a crash it sends again what may
or may not have arrived.
"""

import os
import sys
import time
from pathlib import Path

from hub_samples import attempts

from loomrl.hub.client import HubClient


def main(url: str, log: Path, name: str) -> None:
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
            time.sleep(0.002)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
