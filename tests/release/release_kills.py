"""A process that controls releases until it is killed, as `loomrl release control` does but faster."""

import sys
import time

from loomrl.release.controller import Controller
from loomrl.store import open_store
from tests.release.release_support import ENDPOINT


def main(url: str) -> None:
    """Tick for ever."""
    with open_store(url) as db:
        controller = Controller(db, ENDPOINT)
        print("ready", flush=True)
        while True:
            controller.tick()
            time.sleep(0.002)


if __name__ == "__main__":
    main(sys.argv[1])
