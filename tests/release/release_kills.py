"""A process that controls releases until it is killed, as `loomrl release control` does but faster."""

import sys
import time

from loomrl.release.controller import Controller
from loomrl.store import open_store
from tests.release.release_support import ENDPOINT


def main(url: str, pace_s: float) -> None:
    """Tick for ever, with pauses of so many seconds."""
    with open_store(url) as db:
        controller = Controller(db, ENDPOINT)
        print("ready", flush=True)
        while True:
            controller.tick()
            time.sleep(pace_s)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
