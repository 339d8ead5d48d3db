"""The sink: takes in the trajectories of other people's agents, each once, and puts aside what cannot be.

A window is durable in its agents' hubs, and its dead letters on the bus, before any of it is acknowledged. Whatever a
kill interrupts is done again, to the same effect.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from loomrl.bus.agent import known_agents, open_agent_hub, record_agent
from loomrl.bus.bus import Bus, Delivery, Message, Subscription
from loomrl.bus.clean import cleaned
from loomrl.bus.dead import Cause, letter_from
from loomrl.bus.event import TRAJECTORY
from loomrl.bus.foreign import trajectory_from
from loomrl.bus.origin import STORE, origin_of
from loomrl.config import HubConfig
from loomrl.errors import Conflict, EventError, HubError
from loomrl.hub.hub import Hub
from loomrl.hub.intake import check_name
from loomrl.safety.redaction import PatternRedactor, Redactor, Remembering
from loomrl.store import LoomDB
from loomrl.store.events import Event, append_events
from loomrl.types import Trajectory

REJECTED = "bus.rejected"
"""Kind of the event that counts dead letters."""
WINDOW = 512
MOST_TRIES = 20
"""A message that was given out more often has ended whoever took it."""
OPEN_HUBS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the sink takes in, and for whom."""

    group: str = ""
    """Sinks of one group share the messages; empty: the sinks of this LoomDB."""
    agents: int = 1000
    """Agents whose trajectories are taken in; each has a hub."""
    window: int = WINDOW
    hub: HubConfig = field(default_factory=HubConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One window: trajectories stored (or stored before), dead letters by cause, and events of our own, left out."""

    stored: int = 0
    dead: dict[Cause, int] = field(default_factory=dict)
    own: int = 0

    @property
    def total(self) -> int:
        """Messages that were acknowledged."""
        return self.stored + sum(self.dead.values()) + self.own


@dataclass(frozen=True, slots=True)
class _Dead:
    given: Delivery
    cause: Cause
    reason: str


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
        self._db, self._url, self._bus, self._clock = db, url, bus, clock
        self._terms = terms or Terms()
        self._redactor = Remembering(redactor or PatternRedactor())
        self._origin = origin_of(db)
        self._agents = set(known_agents(db))
        self._hubs: dict[str, Hub] = {}
        self._subscription: Subscription | None = None
        self._window: list[Delivery] = []
        """Given to us and not acknowledged: what failed is tried again."""
        self._uncounted: Counter[str] = Counter()
        """Dead letters that are on the bus, and not on record yet."""

    def step(self, *, wait_s: float = 1.0) -> Taken:
        """Take in the next window; with nothing there, wait so long for something."""
        if self._subscription is None:
            group = self._terms.group or f"loomrl-{self._origin[:12]}"
            self._subscription = self._bus.subscribe(TRAJECTORY.subject, group=group)
        if not self._window:
            self._window = self._subscription.fetch(self._terms.window, wait_s=wait_s)
        if not self._window:
            return Taken()
        taken = self._take(self._window)
        self._subscription.ack(self._window)
        self._window = []
        return taken

    def close(self) -> None:
        """Close the hubs. The bus and LoomDB are others'."""
        if self._subscription is not None:
            self._subscription.close()
        for hub in self._hubs.values():
            hub.close()

    def _take(self, window: Sequence[Delivery]) -> Taken:
        dead: list[_Dead] = []
        good: dict[str, list[tuple[Delivery, Trajectory]]] = {}
        own = 0
        for given in window:
            if given.headers.get(STORE) == self._origin:
                own += 1
                continue
            made = self._made(given)
            if isinstance(made, _Dead):
                dead.append(made)
            else:
                good.setdefault(made.task.environment, []).append((given, made))
        for agent, arrived in good.items():
            dead += self._store(agent, arrived)
        self._bury(dead)
        return Taken(stored=len(window) - own - len(dead), dead=dict(Counter(one.cause for one in dead)), own=own)

    def _made(self, given: Delivery) -> Trajectory | _Dead:
        """The trajectory in a message, redacted."""
        if given.tries > MOST_TRIES:
            return _Dead(given, Cause.TRIES, f"given out {given.tries} times and never acknowledged")
        try:
            event, _ = cleaned(TRAJECTORY.parse(given.payload), self._redactor)
            made = trajectory_from(event)
            check_name("agent_id", made.task.environment)
            return made
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
            append_events(self._db, [event])
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
