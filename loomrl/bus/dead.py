"""Dead letters: messages that cannot be taken in, with the reason, redacted."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from loomrl.bus.bus import Bus, Delivery, Message
from loomrl.bus.clean import redact_text
from loomrl.errors import BusError
from loomrl.safety.redaction import Redactor

STREAM = "RL_DEAD"
PREFIX = "agent.rl.dead."
MOST_BYTES = 900_000
"""Longest letter."""
LONGEST = 100_000
"""Characters of a payload that are kept where all of it is too much."""
PAGE = 100


class Cause(StrEnum):
    """The reason why a message cannot be taken in."""

    CONTRACT = "contract"
    """Its contract does not allow it, or it is not even JSON."""
    REUSED = "reused"
    """Its id is stored with other content."""
    REFUSED = "refused"
    """The store cannot hold it."""
    AGENTS = "agents"
    """There are too many agents already."""
    TRIES = "tries"
    """It was delivered many times and never acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead letter."""

    id: str
    position: int
    cause: Cause
    reason: str
    subject: str
    """The message's subject."""
    message: str
    """Its id."""
    payload: str
    is_whole: bool
    at: float


def letter_from(given: Delivery, cause: Cause, reason: str, *, redactor: Redactor, at: float) -> Message:
    """The dead letter about a message. Writing it twice is harmless."""
    text = redact_text(given.payload.decode(errors="replace"), redactor)
    content = {
        "cause": cause.value,
        "reason": redactor.redact(reason).text[:2000],
        "subject": given.subject,
        "id": redactor.redact(given.id).text[:500],
        "payload": text,
        "is_whole": True,
        "at": at,
    }
    payload = msgspec.json.encode(content)
    if len(payload) > MOST_BYTES:
        payload = msgspec.json.encode(content | {"payload": text[:LONGEST], "is_whole": False})
    digest = hashlib.sha256(f"{given.subject}\0{given.position}\0{given.id}\0".encode() + given.payload).hexdigest()
    return Message(subject=f"{PREFIX}{cause.value}", id=digest[:32], payload=payload)


def letters(bus: Bus, *, cause: str | None = None) -> Iterator[Letter]:
    """The dead letters, oldest first."""
    after = 0
    while page := bus.browse(STREAM, after=after, most=PAGE):
        after = page[-1].position
        found = map(_letter, page)
        yield from (letter for letter in found if cause is None or letter.cause == cause)


def replay(bus: Bus, letter: Letter) -> None:
    """Put a dead letter's message on the bus again, and the letter away. What is still wrong comes back as another."""
    if not letter.is_whole:
        raise BusError(
            f"letter {letter.id}: only its first {LONGEST} characters were kept. Publish it from its source."
        )
    id = f"replay-{letter.position}-{letter.id}"
    bus.publish([Message(subject=letter.subject, id=id, payload=letter.payload.encode())])
    bus.remove(STREAM, letter.position)


def _letter(given: Delivery) -> Letter:
    content: dict[str, Any] = msgspec.json.decode(given.payload)
    return Letter(
        id=given.id,
        position=given.position,
        cause=Cause(content["cause"]),
        reason=content["reason"],
        subject=content["subject"],
        message=content["id"],
        payload=content["payload"],
        is_whole=content["is_whole"],
        at=content["at"],
    )
