"""The client for other people's agents: publish a finished trajectory as text, whether a broker is up or not."""

import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from loomrl.bus.bus import Message
from loomrl.bus.clean import cleaned, has_opted_out
from loomrl.bus.event import TRAJECTORY
from loomrl.bus.open import open_bus
from loomrl.errors import BusAway, BusError, BusRefused
from loomrl.files import make_private, private
from loomrl.process import Closing
from loomrl.safety.redaction import PatternRedactor, Redactor, Remembering

MOST_BYTES = 64 << 20
MOST_FILES = 20_000
READY = ".event"
BROKEN = ".broken"


class Spool:
    """A folder of messages, the oldest first."""

    def __init__(self, folder: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self.folder = folder
        self._most_bytes = most_bytes
        self._bytes = 0
        self._files = 0
        """Room that is known to be left."""

    def put(self, message: Message) -> None:
        """Keep a message; a BusError if the folder is full."""
        head = {"subject": message.subject, "id": message.id, "headers": dict(message.headers)}
        content = json.dumps(head).encode() + b"\n" + message.payload
        self._make_room(len(content))
        name = f"{time.time_ns():020d}-{uuid.uuid4().hex[:12]}"
        made = self.folder / f"{name}.new"
        with open(made, "wb", opener=private) as file:
            file.write(content)
        made.rename(made.with_suffix(READY))
        self._bytes -= len(content)
        self._files -= 1

    def waiting(self, most: int) -> list[tuple[Path, Message]]:
        """The oldest messages, with their files. One that is damaged is put aside."""
        found = []
        for file in self._all()[:most]:
            try:
                head, _, payload = file.read_bytes().partition(b"\n")
                message = Message(**json.loads(head), payload=payload)
            except FileNotFoundError:  # another process was faster
                continue
            except (ValueError, TypeError):
                file.rename(file.with_suffix(BROKEN))
                continue
            found.append((file, message))
        return found

    def drop(self, files: Iterable[Path]) -> None:
        """These are on the bus."""
        for file in files:
            file.unlink(missing_ok=True)

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> list[Path]:
        return sorted(self.folder.glob(f"*{READY}")) if self.folder.is_dir() else []

    def _make_room(self, needed: int) -> None:
        if self._bytes >= needed and self._files > 0:
            return
        make_private(self.folder)
        sizes = [entry.stat().st_size for entry in os.scandir(self.folder) if entry.name.endswith(READY)]
        self._bytes = self._most_bytes - sum(sizes)
        self._files = MOST_FILES - len(sizes)
        if self._bytes < needed or self._files < 1:
            raise BusError(
                f"the spool {self.folder} is full ({len(sizes)} messages, {sum(sizes)} B): the message is not kept. "
                "Is the broker up, and the URL right? What waits is published as soon as it answers."
            )


URL_VARIABLE = "NATS_URL"
SPOOL = "trajectory-spool"
AT_ONCE = 256
"""Waiting messages that one call publishes along with its own."""
PAUSE_S = 1.0
"""After an attempt that failed, calls go straight to the spool for so long."""


def publish_trajectory(event: Mapping[str, Any], *, url: str | None = None, spool: Path | str = SPOOL) -> bool:
    """Publish one trajectory, an event `agent.rl.trajectory.v1`. True: it is on the bus; False: it waits in the spool.

    `url` is NATS_URL where it is not given. Secrets of known forms are redacted before anything leaves or is written.
    """
    with Publisher(url, spool=spool) as publisher:
        return publisher.publish(event)


class Publisher(Closing):
    """`publish_trajectory` for many: keeps the connection."""

    def __init__(self, url: str | None = None, *, spool: Path | str = SPOOL, redactor: Redactor | None = None) -> None:
        url = url or os.environ.get(URL_VARIABLE)
        if not url:
            raise BusError(f"no bus: give url=nats://USER:PASSWORD@HOST:4222, or set {URL_VARIABLE}.")
        self._bus = open_bus(url)
        self.spool = Spool(Path(spool))
        self._redactor = Remembering(redactor or PatternRedactor())
        self._again_at = 0.0

    def publish(self, event: Mapping[str, Any]) -> bool:
        """True: it is on the bus; False: it waits in the spool. An EventError says what its contract does not allow.

        A broker that refuses is a BusRefused, and the trajectory is in the spool. With
        `metadata.opt_out` it stays here.
        """
        clean, _ = cleaned(TRAJECTORY.parse(TRAJECTORY.encode(event)), self._redactor)
        if has_opted_out(clean):
            return True
        message = Message(
            subject=TRAJECTORY.subject, id=str(clean["trajectory_id"]), payload=msgspec.json.encode(clean)
        )
        if time.monotonic() < self._again_at:
            self.spool.put(message)
            return False
        try:
            self.flush(AT_ONCE)
            self._bus.publish([message])
        except (BusAway, BusRefused) as error:
            self._again_at = time.monotonic() + PAUSE_S
            self.spool.put(message)
            if isinstance(error, BusRefused):
                raise
            return False
        return True

    def flush(self, most: int | None = None) -> int:
        """Publish what waits in the spool, at most so many; how many. BusAway if nothing can be published now."""
        published = 0
        while (most is None or published < most) and (waiting := self.spool.waiting(AT_ONCE)):
            self._bus.publish([message for _, message in waiting])
            self.spool.drop(file for file, _ in waiting)
            published += len(waiting)
        return published

    def close(self) -> None:
        """Close the connection. The spool stays."""
        self._bus.close()
