"""The sink: takes in the trajectories of other people's agents, each once, and puts aside what cannot be.

A window is durable in its agents' hubs, and its dead letters on the bus, before any of it is acknowledged. What a
kill interrupts is done again, to the same effect. What came raw is on the bus as it was redacted, and gone as it came.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from loomrl.bus.agent import STORE, list_agents, open_agent_hub, origin_of, record_agent
from loomrl.bus.bus import INTAKE, Bus, Delivery, Message, Subscription, publish_fitting, stream_of
from loomrl.bus.clean import cleaned, has_opted_out, redact_text
from loomrl.bus.contract import TrajectoryEvent
from loomrl.bus.dead import Cause, letter_from
from loomrl.bus.event import TRAJECTORY
from loomrl.bus.foreign import trajectory_from
from loomrl.config import HubConfig
from loomrl.errors import Conflict, EventError, HubError
from loomrl.hub.hub import Hub
from loomrl.hub.intake import check_name
from loomrl.safety.redaction import PatternRedactor, Redactor, Remembering
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS, Event
from loomrl.types import Trajectory

INTAKERS = "loomrl-intake"
"""The group of all sinks at the intake: one of them takes a raw message, and all others hear what is left of it."""
REJECTED = "bus.rejected"
"""Kind of the event that counts dead letters."""
WINDOW = 512
MOST_TRIES = 20
"""A message that was delivered more often has crashed every consumer."""
OPEN_HUBS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Limits of the sink, and the group that it shares messages with."""

    group: str = ""
    """Sinks of one group share the messages; empty: the sinks of this LoomDB."""
    agents: int = 1000
    """Agents whose trajectories are taken in; each has a hub."""
    window: int = WINDOW
    hub: HubConfig = field(default_factory=HubConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One window: trajectories stored (or stored before), dead letters by cause, and what was left out: events of our
    own, and trajectories that are not to be recorded."""

    stored: int = 0
    dead: dict[Cause, int] = field(default_factory=dict)
    own: int = 0
    opted_out: int = 0

    @property
    def total(self) -> int:
        """Messages that were acknowledged."""
        return self.stored + sum(self.dead.values()) + self.own + self.opted_out


@dataclass(frozen=True, slots=True)
class _Dead:
    given: Delivery
    cause: Cause
    reason: str


@dataclass(frozen=True, slots=True)
class _Read:
    """A message that the contract allows."""

    given: Delivery
    event: TrajectoryEvent
    """Redacted."""
    is_changed: bool
    """True if something was found in it."""
    trajectory: Trajectory | None
    """None: its agent wants no record of it."""


class Sink:
    """Takes in trajectories from a bus. Any number of them may run at once, and any may die at any instant."""

    def __init__(
        self,
        db: LoomDB,
        url: str,
        bus: Bus,
        *,
        terms: Terms | None = None,
        redactor: Redactor | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._db = db
        self._url = url
        self._bus = bus
        self._clock = clock
        self._terms = terms or Terms()
        self._redactor = Remembering(redactor or PatternRedactor())
        self._origin = origin_of(db)
        self._agents = set(list_agents(db))
        self._hubs: dict[str, Hub] = {}
        self._subscriptions: dict[str, Subscription] = {}
        """By subject."""
        self._window: list[Delivery] = []
        """Given to us and not acknowledged: what failed is tried again."""
        self._uncounted: Counter[str] = Counter()
        """Dead letters that are on the bus, and not on record yet."""

    def step(self, *, wait_s: float = 1.0) -> Taken:
        """Take in the next window; with nothing there, wait so long for something."""
        if not self._window:
            self._window = self._fetch(wait_s)
        if not self._window:
            return Taken()
        taken = self._take(self._window)
        for subject, subscription in self._subscriptions.items():
            subscription.ack([given for given in self._window if given.subject == subject])
        self._window = []
        return taken

    def close(self) -> None:
        """Close the hubs. The bus and LoomDB are others'."""
        for subscription in self._subscriptions.values():
            subscription.close()
        for hub in self._hubs.values():
            hub.close()

    def _fetch(self, wait_s: float) -> list[Delivery]:
        """The next messages, raw ones first."""
        if not self._subscriptions:
            group = self._terms.group or f"loomrl-{self._origin[:12]}"
            self._subscriptions[INTAKE] = self._bus.subscribe(INTAKE, group=INTAKERS)
            self._subscriptions[TRAJECTORY.subject] = self._bus.subscribe(TRAJECTORY.subject, group=group)
        most = self._terms.window
        found: list[Delivery] = []
        for pause_s in (0.0, wait_s / 2):
            for subscription in self._subscriptions.values():
                if len(found) < most:
                    found += subscription.fetch(most - len(found), wait_s=0.0 if found else pause_s)
            if found:
                break
        return found

    def _take(self, window: Sequence[Delivery]) -> Taken:
        dead: list[_Dead] = []
        read: list[_Read] = []
        good: dict[str, list[tuple[Delivery, Trajectory]]] = {}
        own = 0
        for given in window:
            if given.headers.get(STORE) == self._origin:
                own += 1
                continue
            made = self._read(given)
            if isinstance(made, _Dead):
                dead.append(made)
                continue
            read.append(made)
            if made.trajectory is not None:
                good.setdefault(made.trajectory.task.environment, []).append((given, made.trajectory))
        for agent, arrived in good.items():
            dead += self._store(agent, arrived)
        self._bury(dead)
        self._clear(read, dead)
        out = sum(one.trajectory is None for one in read)
        stored = len(window) - own - out - len(dead)
        return Taken(stored=stored, dead=dict(Counter(one.cause for one in dead)), own=own, opted_out=out)

    def _clear(self, read: Sequence[_Read], dead: Sequence[_Dead]) -> None:
        """Publish what came raw as it was redacted, and delete it as it came."""
        refused = {(one.given.subject, one.given.position) for one in dead if one.cause is not Cause.AGENTS}
        raw = [one for one in read if one.is_changed or one.trajectory is None or one.given.subject == INTAKE]
        kept = [one for one in raw if (one.given.subject, one.given.position) not in refused]
        # What is too large with its placeholders is in its hub alone.
        publish_fitting(self._bus, [self._redact(one) for one in kept if one.trajectory is not None])
        gone = [one.given for one in raw]
        gone += [one.given for one in dead if one.given.subject == INTAKE or self._is_raw(one.given)]
        for subject in dict.fromkeys(given.subject for given in gone):
            positions = {given.position for given in gone if given.subject == subject}
            self._bus.remove(stream_of(subject).name, *sorted(positions))

    def _redact(self, one: _Read) -> Message:
        """The redacted copy of a raw message for the durable stream."""
        id = str(one.event["trajectory_id"])
        return Message(
            subject=TRAJECTORY.subject,
            id=id if one.given.subject == INTAKE else f"redacted-{id}",
            payload=msgspec.json.encode(one.event),
            headers={STORE: self._origin},
        )

    def _is_raw(self, given: Delivery) -> bool:
        text = given.payload.decode(errors="replace")
        return redact_text(text, self._redactor) != text

    def _read(self, given: Delivery) -> _Read | _Dead:
        """A message, redacted, and the trajectory in it."""
        if given.tries > MOST_TRIES:
            return _Dead(given, Cause.TRIES, f"given out {given.tries} times and never acknowledged")
        try:
            event, kinds = cleaned(TRAJECTORY.parse(given.payload), self._redactor)
            if has_opted_out(event):
                return _Read(given, event, is_changed=True, trajectory=None)
            made = trajectory_from(event)
            check_name("agent_id", made.task.environment)
            return _Read(given, event, is_changed=bool(kinds), trajectory=made)
        except EventError as error:
            return _Dead(given, Cause.CONTRACT, str(error))
        except (HubError, ValueError, OverflowError, RecursionError) as error:
            return _Dead(given, Cause.REFUSED, f"{type(error).__name__}: {error}")

    def _store(self, agent: str, arrived: Sequence[tuple[Delivery, Trajectory]]) -> list[_Dead]:
        if agent not in self._agents:
            if len(self._agents) >= self._terms.agents:
                reason = f"{self._terms.agents} agents are known, and {agent!r:.100} is none of them"
                return [_Dead(given, Cause.AGENTS, reason) for given, _ in arrived]
            record_agent(self._db, agent, at=self._clock())
            self._agents.add(agent)
        return _append(self._hub(agent), arrived)

    def _hub(self, agent: str) -> Hub:
        """The hub of an agent; those that were not used for longest are closed."""
        hub = self._hubs.pop(agent, None) or open_agent_hub(self._url, agent, self._terms.hub)
        self._hubs[agent] = hub
        while len(self._hubs) > OPEN_HUBS:
            self._hubs.pop(next(iter(self._hubs))).close()
        return hub

    def _bury(self, dead: Sequence[_Dead]) -> None:
        """Put dead letters on the bus, and then the number of new ones on record."""
        if not dead:
            return
        now = self._clock()
        made: list[Message] = [
            letter_from(one.given, one.cause, one.reason, redactor=self._redactor, at=now) for one in dead
        ]
        is_new = self._bus.publish(made)
        self._uncounted.update(one.cause.value for one, new in zip(dead, is_new, strict=True) if new)
        if self._uncounted:
            event = Event(kind=REJECTED, subject=TRAJECTORY.subject, data=dict(self._uncounted), created_at=now)
            EVENTS.append(self._db, [event])
            self._uncounted.clear()


def _append(hub: Hub, arrived: Sequence[tuple[Delivery, Trajectory]]) -> list[_Dead]:
    """Store trajectories in one transaction; where one is refused, each half by itself, down to the refused one."""
    try:
        hub.append([trajectory for _, trajectory in arrived])
    except HubError as error:
        if len(arrived) > 1:
            half = len(arrived) // 2
            return _append(hub, arrived[:half]) + _append(hub, arrived[half:])
        cause = Cause.REUSED if isinstance(error, Conflict) else Cause.REFUSED
        return [_Dead(arrived[0][0], cause, str(error))]
    return []
