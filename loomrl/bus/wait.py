"""What waits for a broker's answers: a batch of messages, or one command."""

import asyncio
from collections.abc import Iterable, Sequence

import msgspec
from nats.aio.msg import Msg

from loomrl.bus.bus import Message
from loomrl.errors import BusError

ID = "Nats-Msg-Id"
STATUS = "Status"
DESCRIPTION = "Description"
NO_RESPONDERS = "503"


class NotThere(BusError):
    """A stream or a consumer that does not exist."""


class Wait:
    """Something that waits for the broker's answers about some subjects. It may fail before they come."""

    def __init__(self, about: Iterable[str]) -> None:
        self.about = {subject.lower() for subject in about}
        self.signs = 0
        """Answers so far."""
        self.changed = asyncio.Event()
        self.error: BusError | None = None

    def fail(self, error: BusError) -> None:
        """Wait no longer."""
        self.error = self.error or error
        self.changed.set()


class Batch(Wait):
    """Messages on their way."""

    def __init__(self, messages: Sequence[Message]) -> None:
        super().__init__({message.subject for message in messages})
        self.is_new = [False] * len(messages)
        self.open = 0
        self.target = 0
        """`changed` is set once no more than this are open."""
        self.tokens: set[str] = set()

    def take(self, place: int, answer: Msg, subject: str) -> None:
        """The broker's answer about one of them."""
        self.signs += 1
        self.open -= 1
        if answer.headers and answer.headers.get(STATUS) == NO_RESPONDERS:
            return self.fail(NotThere(f"no stream takes subject {subject!r}"))
        said = msgspec.json.decode(answer.data)
        if "error" in said:
            return self.fail(BusError(f"{subject}: the broker refused a message: {said['error'].get('description')}."))
        self.is_new[place] = not said.get("duplicate", False)
        if self.open <= self.target:
            self.changed.set()
        return None
