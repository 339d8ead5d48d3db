"""The contract of a bus: messages are stored once, and every group of consumers gets each of them at least once."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loomrl.errors import BusError, TooLarge
from loomrl.process import Closing

HOLD_S = 30.0
"""Time for a consumer to acknowledge what it was given; then another consumer gets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A part of the bus: its subjects, and how much of them is kept. `>` at the end stands for any further words."""

    name: str
    subjects: tuple[str, ...]
    days: float
    most: int
    """Messages; the oldest go first."""

    def takes(self, subject: str) -> bool:
        """True for a subject of this stream."""
        return any(subject.startswith(one[:-1]) if one.endswith(".>") else subject == one for one in self.subjects)


INTAKE = "agent.rl.intake.trajectory.v1"
"""Where agents publish what was not redacted yet."""
INTAKE_MINUTES = 15.0
"""A raw message that no sink has taken in by then is gone."""
STREAMS = (
    Stream(name="RL_INTAKE", subjects=("agent.rl.intake.>",), days=INTAKE_MINUTES / 1440, most=100_000),
    Stream(name="RL_TRAJECTORIES", subjects=("agent.rl.trajectory.v1",), days=30, most=1_000_000),
    Stream(name="RL_REWARDS", subjects=("agent.rl.reward.v1",), days=30, most=500_000),
    Stream(name="RL_TRAINING", subjects=("agent.rl.training.>",), days=7, most=10_000),
    Stream(name="RL_MODELS", subjects=("agent.rl.model.deployed.v1",), days=30, most=10_000),
    Stream(name="RL_DEAD", subjects=("agent.rl.dead.>",), days=30, most=100_000),
)
"""Those for trajectories, rewards and training are the contract's; the others are ours."""


def stream_of(subject: str) -> Stream:
    """The stream that takes a subject; a BusError if none does."""
    for stream in STREAMS:
        if stream.takes(subject):
            return stream
    known = ", ".join(one for stream in STREAMS for one in stream.subjects)
    raise BusError(f"subject={subject!r:.100}: no stream takes it. Known: {known}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message to publish. A repeated id is dropped, as long as the bus remembers it."""

    subject: str
    id: str
    payload: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message that a consumer was given."""

    subject: str
    id: str
    """Empty if its publisher gave none."""
    payload: bytes
    headers: Mapping[str, str]
    position: int
    """In its stream."""
    tries: int = 1
    """Deliveries so far, with this one."""
    receipt: Any = None
    """For the bus alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A group of consumers: messages that it has not been given yet, and those that it has not acknowledged."""

    name: str
    waiting: int
    unacked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStats:
    """The content of a stream."""

    name: str
    messages: int
    bytes: int
    last: int
    """Position of the newest message; 0 without any."""
    consumers: tuple[Consumer, ...] = ()


class Subscription(Closing):
    """The messages of a subject for one group of consumers."""

    @abstractmethod
    def fetch(self, most: int, *, wait_s: float) -> list[Delivery]:
        """The next messages, oldest first; waits for `wait_s` if there is none."""

    @abstractmethod
    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """These are done with, and will not be given to the group again."""

    @abstractmethod
    def close(self) -> None:
        """Stop. What was not acknowledged is given to others of the group."""


class Bus(Closing):
    """A bus. Safe to share between threads; BusAway tells that it does not answer now."""

    place: str
    """Where it is, without a password."""

    @abstractmethod
    def publish(self, messages: Sequence[Message]) -> list[bool]:
        """Have them durably on the bus; True for each that is new. After an error publish all of them again."""

    def make_streams(self) -> None:
        """Make the streams that are missing, so that others can subscribe before anything was published.

        Nothing to do where messages of all streams are rows of a table.
        """
        return

    @abstractmethod
    def subscribe(self, subject: str, *, group: str, hold_s: float = HOLD_S) -> Subscription:
        """The messages of a subject, from the oldest that is kept. Members of a group share them.

        `hold_s` counts when the group subscribes for the first time.
        """

    @abstractmethod
    def browse(self, stream: str, *, after: int = 0, most: int = 100) -> list[Delivery]:
        """The next messages of a stream past a position, without consuming any."""

    @abstractmethod
    def remove(self, stream: str, *positions: int) -> None:
        """Delete messages; those that are gone already count as deleted."""

    def answer(self, subject: str, reply: Callable[[bytes], bytes]) -> bool:
        """Answer requests about a subject from now on, one of many who do; False where a bus has no requests."""
        return False

    @abstractmethod
    def stats(self) -> list[StreamStats]:
        """The streams that there are."""

    @abstractmethod
    def close(self) -> None:
        """Give every resource back."""


def publish_fitting(bus: Bus, messages: Sequence[Message]) -> list[TooLarge]:
    """Publish messages without those that are too large for the bus, which are named."""
    refused: list[TooLarge] = []
    while messages:
        try:
            bus.publish(messages)
        except TooLarge as error:
            refused.append(error)
            messages = [one for one in messages if one.id != error.id]
        else:
            break
    return refused
