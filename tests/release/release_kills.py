"""A process that controls releases until it is killed, as `loomrl release control` does but faster."""

import sys
import time
from collections.abc import Callable

from loomrl.release.controller import Controller
from loomrl.store import open_store
from tests.release.release_support import ENDPOINT


def main(url: str, pace_s: float, ready: Callable[[], object] = lambda: print("ready", flush=True)) -> None:
    """Tick for ever, with pauses of so many seconds."""
    with open_store(url) as db:
        controller = Controller(db, ENDPOINT)
        ready()
        while True:
            controller.tick()
            time.sleep(pace_s)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
