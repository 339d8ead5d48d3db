"""Messages in files that wait for the bus: bounded, kept through a kill, and shared by processes."""

import json
import os
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

from loomrl.bus.bus import Message
from loomrl.errors import BusError
from loomrl.files import make_private, private

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
