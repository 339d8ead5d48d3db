"""A relay between two TAP devices that delays and loses packets: a program of its own, one per host that needs it.

    relay.py FOLDER NAME DEVICE DEVICE

It reads `link-NAME`, "delay_s loss" for each way, from the folder again and again, and writes `relay-NAME.stat` there
once its devices exist. It imports nothing but the standard library, so that it starts at once.
"""

import collections
import fcntl
import os
import random
import select
import struct
import sys
import time
from pathlib import Path

TUNSETIFF = 0x400454CA
IFF_TAP = 0x0002
IFF_NO_PI = 0x1000
LONGEST = 65536
AT_ONCE = 64
"""Packets read from one side before the other is looked at."""
MOST_WAITING = 50_000
"""Packets under way in one direction; more are lost, as in a router."""
LOOK_S = 0.05
"""Time until a changed setting is in force."""


class Way:
    """One direction. Packets keep their order: all wait equally long."""

    def __init__(self, source: int, sink: int) -> None:
        self.source = source
        self.sink = sink
        self.waiting: collections.deque[tuple[float, bytes]] = collections.deque()

    def take(self, delay_s: float, loss: float) -> None:
        """Read what has come."""
        due = time.monotonic() + delay_s
        for _ in range(AT_ONCE):
            try:
                packet = os.read(self.source, LONGEST)
            except BlockingIOError:
                return
            if len(self.waiting) < MOST_WAITING and random.random() >= loss:
                self.waiting.append((due, packet))

    def give(self) -> None:
        """Write what is due."""
        now = time.monotonic()
        while self.waiting and self.waiting[0][0] <= now:
            try:
                os.write(self.sink, self.waiting.popleft()[1])
            except OSError:  # the device is down or full: the packet is lost
                continue


def relay(settings: Path, ways: list[Way]) -> None:
    """Run until killed."""
    delay_s = 0.0
    loss = 0.0
    look = 0.0
    while True:
        now = time.monotonic()
        if now >= look:
            delay_s, loss = map(float, settings.read_text().split())
            look = now + LOOK_S
        soon = min([look, *(way.waiting[0][0] for way in ways if way.waiting)])
        ready = select.select([way.source for way in ways], [], [], max(0.0, soon - now))[0]
        for way in ways:
            if way.source in ready:
                way.take(delay_s, loss)
            way.give()


def tap(name: str) -> int:
    """A TAP device of this name, in our network namespace, for as long as we live."""
    handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(handle, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return handle


def main(folder: Path, name: str, left: str, right: str) -> None:
    """Open both devices, say so, relay."""
    here = tap(left)
    there = tap(right)
    ready = folder / f".relay-{name}"
    ready.write_text(Path("/proc/self/stat").read_text())
    ready.rename(folder / f"relay-{name}.stat")
    relay(folder / f"link-{name}", [Way(here, there), Way(there, here)])


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
