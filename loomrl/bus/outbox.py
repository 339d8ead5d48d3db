"""The outbox: our records become events on the bus, in order, by cursors that are on record.

LoomDB's event log and the endpoints' hubs are the spool: while the bus is away nothing is lost, since nothing else has
been written for it. What is published twice, the bus drops by its id.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from loomrl.bus.agent import STORE, origin_of
from loomrl.bus.bus import Bus, Message, publish_fitting, stream_of
from loomrl.bus.event import MODEL_DEPLOYED, REWARD, TRAINING_REQUEST, TRAINING_STATUS, TRAJECTORY, Contract
from loomrl.bus.outgoing import (
    Data,
    deployment_event,
    deployment_on_record,
    is_told,
    request_event,
    status_event,
    trajectory_event,
)
from loomrl.canonical import as_uuid
from loomrl.config import HubConfig
from loomrl.errors import EventError
from loomrl.feedback.reward.pipeline import as_event
from loomrl.hub.hub import Hub, Selection
from loomrl.hub.open import open_endpoint_hub
from loomrl.store import LoomDB
from loomrl.store.endpoints import list_endpoints
from loomrl.store.events import EVENTS, Event
from loomrl.store.notes import find_note, list_notes, put_note
from loomrl.store.rewards import StoredReward, find_rewards
from loomrl.types import Source

CURSORS = "outbox/"
SKIPPED = "bus.skipped"
"""Kind of the event about a record that cannot be published."""
EVENTS_AT_ONCE = 1000
TRAJECTORIES = 64
"""Records in a page."""
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Records past a cursor as messages; `cursor` is behind the last of them."""

    cursor: int
    messages: list[Message] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """Records that no contract allows, and why."""

    def add(self, contract: Contract[Any], id: str, event: Data | None, *, at: float, now: float) -> None:
        """Add a record as an event, unless there is none, or the bus would not keep it any more."""
        if event is None or at < now - stream_of(contract.subject).days * DAY_S:
            return
        try:
            self.messages.append(Message(subject=contract.subject, id=id, payload=contract.encode(event)))
        except EventError as error:
            self.skipped.append((id, str(error)))


class Feed(Protocol):
    """A log of records that is read by cursor."""

    name: str

    def read(self, after: int, *, now: float) -> Page:
        """The next records."""


class EventFeed:
    """LoomDB's event log."""

    name = "events"

    def __init__(self, db: LoomDB, origin: str) -> None:
        self._db = db
        self._origin = origin

    def read(self, after: int, *, now: float) -> Page:
        """The next events that have a contract."""
        events = EVENTS.read(self._db, after=after, limit=EVENTS_AT_ONCE)
        page = Page(cursor=events[-1][0] if events else after)
        rewards = find_rewards(self._db, [event.subject for _, event in events if event.kind == "reward.made"])
        for position, event in events:
            id = f"{self._origin}-{position}"
            try:
                found = self._encode_event(event, rewards)
            except (KeyError, TypeError, ValueError, AttributeError) as error:  # the record lacks something
                page.skipped.append((id, f"{event.kind} {event.subject}: {type(error).__name__}: {error}"))
                continue
            if found is not None:
                contract, told = found
                page.add(contract, id, told, at=event.created_at, now=now)
        return page

    def _encode_event(self, event: Event, rewards: Mapping[str, StoredReward]) -> tuple[Contract[Any], Data] | None:
        subject = event.subject
        data = event.data
        at = event.created_at
        match event.kind:
            case "reward.made":
                reward = rewards.get(subject)  # none: deleted with its trajectory
                return None if reward is None else (REWARD, as_event(reward))
            case "training.requested":
                return TRAINING_REQUEST, request_event(subject, data, at=at)
            case "training.moved":
                return TRAINING_STATUS, status_event(subject, data, at=at)
            case "deployment.made" if is_told(data):
                return MODEL_DEPLOYED, deployment_event(**deployment_on_record(self._db, event))
        return None


class HubFeed:
    """The sessions that an endpoint has served, from its hub."""

    def __init__(self, hub: Hub, endpoint: str) -> None:
        self.name = f"hub/{endpoint}"
        self._hub = hub

    def read(self, after: int, *, now: float) -> Page:
        """The next sessions that became trajectories."""
        found = self._hub.read(after, limit=TRAJECTORIES, selection=Selection(source=Source.PRODUCTION))
        page = Page(cursor=found[-1][0] if found else after)
        for _, trajectory in found:
            told = trajectory_event(trajectory)
            page.add(TRAJECTORY, as_uuid(trajectory.id), told, at=trajectory.finished_at, now=now)
        return page

    def close(self) -> None:
        """Close the hub."""
        self._hub.close()


class Outbox:
    """Publishes a LoomDB's records on a bus. Every bus has cursors of its own, by its place."""

    def __init__(self, db: LoomDB, url: str, bus: Bus, *, clock: Callable[[], float] = time.time) -> None:
        self._db = db
        self._url = url
        self._bus = bus
        self._clock = clock
        self._origin = origin_of(db)
        self._events = EventFeed(db, self._origin)
        self._hubs: dict[str, HubFeed] = {}

    def step(self) -> int:
        """Publish the next page of each feed; how many messages. 0: there was nothing."""
        return sum(self._forward(feed) for feed in self._feeds())

    def cursors(self) -> dict[str, int]:
        """How far each feed is published."""
        with self._db.read() as connection:
            return {feed.name: int(find_note(connection, self._key(feed.name)) or 0) for feed in self._feeds()}

    def close(self) -> None:
        """Close the hubs. The bus and LoomDB are others'."""
        for feed in self._hubs.values():
            feed.close()

    def _feeds(self) -> Iterator[Feed]:
        yield self._events
        for endpoint in list_endpoints(self._db):
            if endpoint.name not in self._hubs:
                hub = open_endpoint_hub(self._url, endpoint.name, HubConfig())
                self._hubs[endpoint.name] = HubFeed(hub, endpoint.name)
            yield self._hubs[endpoint.name]

    def _forward(self, feed: Feed) -> int:
        key = self._key(feed.name)
        with self._db.read() as connection:
            after = int(find_note(connection, key) or 0)
        page = feed.read(after, now=self._clock())
        if page.cursor == after:
            return 0
        published = self._publish(page)
        self._record_skipped(page)
        with self._db.write() as connection:
            if int(find_note(connection, key) or 0) < page.cursor:  # another outbox may be further
                put_note(connection, key, str(page.cursor))
        return published

    def _publish(self, page: Page) -> int:
        """Publish a page, without what the bus cannot take."""
        messages = [replace(one, headers={STORE: self._origin}) for one in page.messages]
        refused = publish_fitting(self._bus, messages)
        page.skipped.extend((error.id, str(error)) for error in refused)
        return len(messages) - len(refused)

    def _record_skipped(self, page: Page) -> None:
        now = self._clock()
        EVENTS.append(
            self._db,
            [Event(kind=SKIPPED, subject=id, data={"reason": why}, created_at=now) for id, why in page.skipped],
        )

    def _key(self, feed: str) -> str:
        return f"{CURSORS}{self._bus.place}/{feed}"


def published(db: LoomDB) -> dict[str, int]:
    """How far LoomDB's events are published, by the place of each bus that they ever went to."""
    end = f"/{EventFeed.name}"
    notes = list_notes(db, CURSORS)
    return {key.removeprefix(CURSORS).removesuffix(end): int(text) for key, text in notes.items() if key.endswith(end)}
