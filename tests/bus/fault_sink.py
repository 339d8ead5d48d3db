"""A sink in a process of its own, to be killed. Ends at SIGTERM and tells its largest memory, in KB."""

import sys

from loomrl.bus.open import open_bus
from loomrl.bus.sink import Sink
from loomrl.errors import BusError
from loomrl.process import exit_on_sigterm, peak_memory_kb
from loomrl.store import open_store


def main(store: str, url: str) -> None:
    exit_on_sigterm()
    with open_store(store) as db, open_bus(url) as bus:
        sink = Sink(db, store, bus)
        sink.step(wait_s=0)
        print("ready", flush=True)
        try:
            while True:
                try:
                    sink.step(wait_s=0.5)
                except BusError as error:
                    print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            print(peak_memory_kb(), flush=True)
            sink.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
