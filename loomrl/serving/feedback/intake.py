"""Takes feedback in: finds what it is about, checks whose it is, and stores it without secrets."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from secrets import token_bytes
from threading import Lock
from typing import Any

from loomrl.canonical import canonical_json, content_hash
from loomrl.config import HubConfig
from loomrl.errors import IdTaken, LoomError
from loomrl.hub.hub import Hub, Selection
from loomrl.safety.placeholder import drop_numbers
from loomrl.safety.redaction import PatternRedactor, Redaction
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.archive import open_endpoint_hub
from loomrl.serving.door import Caller
from loomrl.serving.feedback.signal import answer_name
from loomrl.serving.feedback.told import AnswerPlace, Told
from loomrl.serving.recording.acts import are_acts
from loomrl.serving.recording.naming import Naming
from loomrl.serving.recording.payload import decode
from loomrl.serving.recording.record import Record
from loomrl.serving.refusal import Cause, Refusal
from loomrl.serving.room import Room
from loomrl.store import LoomDB
from loomrl.store.erasures import erase_late
from loomrl.store.feedback import append_feedback, feedback_of
from loomrl.store.sessions import SESSIONS, opted_out, people_in, read_call
from loomrl.types import Feedback, Trajectory

log = redacted_logger(__name__)
AT_ONCE = 4
"""Judgements that are stored at a time."""
MOST_WAITING = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What came of it. `new` is 0 for a repetition."""

    id: str
    trajectory: str
    call: str
    kind: str
    new: int


@dataclass(frozen=True, slots=True)
class _About:
    """A session on record, or its trajectory, and the answer in it."""

    trajectory: str
    call: str
    since: float
    """When it began."""

    @property
    def name(self) -> str:
        """The call, which is known by itself, or the trajectory."""
        return self.call or self.trajectory


class Intake:
    """Stores feedback in LoomDB. Late by days: once a session is gone, its trajectory in the hub stands for it.

    It belongs to the key that opened the session; to others neither exists. Safe to call from several threads.
    """

    def __init__(
        self,
        db: LoomDB,
        hubs: "Hubs",
        *,
        naming: Naming | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._db = db
        self._hubs = hubs
        self._clock = clock
        self._naming = naming or Naming(db, PatternRedactor(), secret=token_bytes(32))
        self._room = Room(slots=AT_ONCE, queue=MOST_WAITING)

    async def give(self, told: Told, *, caller: Caller, deadline: float) -> Given:
        """`take` off the event loop, a few at a time; a Refusal UNAVAILABLE if LoomDB does not answer."""
        async with self._room.enter(caller.key, deadline=deadline):
            try:
                return await asyncio.to_thread(self.take, told, caller=caller)
            except LoomError as error:
                log.error("feedback could not be stored: %s", error)
                message = "The feedback could not be stored: its database does not answer."
                raise Refusal(Cause.UNAVAILABLE, message, retry_after_s=1.0) from None

    def take(self, told: Told, *, caller: Caller) -> Given:
        """Store a judgement once. A Refusal UNKNOWN, FORBIDDEN, CONFLICT or INVALID."""
        about = self._find(told.place, caller, "")
        other = None if told.over is None else self._find(told.over, caller, "over")
        self._refuse_opted_out({about.trajectory, *([] if other is None else [other.trajectory])})
        if about == other:
            raise Refusal(Cause.INVALID, "it is the same answer: a choice is between two.", where="over")
        first = self._feedback(told, about, other, caller.key)
        rows = [first] if other is None else _choice(first, about, other)
        try:
            new = append_feedback(self._db, rows)
        except IdTaken:
            if not all(map(self._is_stored, rows)):
                name = told.id or first.id
                message = f"the id {name!r} was given with other content, which holds. Send this under a new id."
                raise Refusal(Cause.CONFLICT, message, where="id") from None
            new = 0
        if erase_late(self._db, [row.trajectory for row in rows]):
            raise _unknown(told.place, "")
        return Given(id=first.id, trajectory=about.trajectory, call=about.call, kind=first.kind, new=new)

    def _is_stored(self, row: Feedback) -> bool:
        """True if it is on record but for numbers of placeholders, which a service that was started again counts on."""
        return any(
            one.id == row.id and _unnumbered(replace(one, created_at=row.created_at)) == _unnumbered(row)
            for one in feedback_of(self._db, [row.trajectory])
        )

    def close(self) -> None:
        """Give the hubs back."""
        self._hubs.close()

    def _feedback(self, told: Told, about: _About, other: _About | None, key: str) -> Feedback:
        comment, data = self._naming.redacted(about.trajectory, partial(_words, told))
        now = self._clock()
        at = now
        if told.created_at is not None:  # clocks differ: neither before the session nor after now
            at = min(max(told.created_at, about.since), now)
            data["told_at"] = told.created_at
        said = [about.name, told.kind, told.value, told.comment, dict(told.data), told.created_at]
        content = [*said, "" if other is None else other.name]
        return Feedback(
            id=f"fb-{content_hash([key, told.id or content])[:32]}",
            trajectory=about.trajectory,
            source=told.source,
            kind=told.kind,
            value=told.value,
            comment=comment,
            created_at=at,
            call=about.call,
            data=data,
        )

    def _refuse_opted_out(self, trajectories: Collection[str]) -> None:
        people: set[str] = set().union(*people_in(self._db, sorted(trajectories)).values())
        if people and people & opted_out(self._db):
            raise Refusal(Cause.FORBIDDEN, "This person opted out of being recorded: nothing was stored.")

    # -- what it is about -------------------------------------------------------------------------------------------

    def _find(self, place: AnswerPlace, caller: Caller, where: str) -> _About:
        """The answer, if it is this caller's. What is another's takes the same way as what does not exist."""
        found = self._on_record(place, caller) or self._in_hub(place, caller)
        if found is None:
            raise _unknown(place, where)
        return found

    def _on_record(self, place: AnswerPlace, caller: Caller) -> _About | None:
        call = read_call(self._db, place.call) if place.call else None
        session = place.session or ("" if call is None else call[0])
        stored = SESSIONS.find(self._db, session) if session else None
        if stored is None or not (caller.is_admin or stored.key == caller.key):
            return None
        if not place.call:
            return _About(stored.id, "", stored.opened_at)
        if call is None or call[0] != stored.id or are_acts(call[1]):
            return None
        name = place.call if place.index is None else _answer_in(decode(call[1], None).record, place.index)
        return None if name is None else _About(stored.id, name, stored.opened_at)

    def _in_hub(self, place: AnswerPlace, caller: Caller) -> _About | None:
        if not place.session:
            return None
        for hub in self._hubs.all():
            for _, found in hub.read(selection=Selection(ids=(place.session,))):
                session = found.extra.get("session", {})
                if caller.is_admin or session.get("key") == caller.key:
                    return _in_trajectory(found, session.get("calls", []), place)
        return None


def _unnumbered(row: Feedback) -> str:
    return drop_numbers(canonical_json(asdict(row)).decode())


def _words(told: Told, redaction: Redaction) -> tuple[str, dict[str, Any]]:
    """The comment, and the rest, as they may be stored."""
    data = {name: redaction.text(one) if isinstance(one, str) else one for name, one in told.data.items()}
    return redaction.text(told.comment), data


@dataclass(slots=True)
class Hubs:
    """The hubs of these endpoints, opened when they are first needed."""

    url: str
    endpoints: Collection[str]
    _hubs: dict[str, Hub] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _lock: Lock = field(default_factory=Lock)

    def all(self) -> list[Hub]:
        """All of them."""
        with self._lock:
            for name in self.endpoints:
                if name not in self._hubs:
                    self._hubs[name] = self._stack.enter_context(open_endpoint_hub(self.url, name, HubConfig()))
            return list(self._hubs.values())

    def close(self) -> None:
        """Close those that were opened."""
        self._stack.close()


def _answer_in(record: Record, index: int) -> str | None:
    """The name of one answer of a call; None if it has no such choice."""
    return answer_name(record, index) if index in {words.index for words in record.choices} else None


def _in_trajectory(found: Trajectory, threads: Sequence[Sequence[str]], place: AnswerPlace) -> _About | None:
    """The answer in a trajectory, whose turns are named by call and choice."""
    if not place.call:
        return _About(found.id, "", found.started_at)
    indices = {int(name.rpartition("/")[2]) for names in threads for name in names if name.startswith(f"{place.call}/")}
    if not indices or (place.index is not None and place.index not in indices):
        return None
    is_one = place.index is None or len(indices) == 1
    return _About(found.id, place.call if is_one else f"{place.call}/{place.index}", found.started_at)


def _choice(first: Feedback, about: _About, other: _About) -> list[Feedback]:
    """A row for the answer that was taken and one for the other; each names its counterpart."""
    apart = about.trajectory != other.trajectory
    over = {"over": other.name} | ({"trajectory": other.trajectory} if apart else {})
    under = {"under": about.name} | ({"trajectory": about.trajectory} if apart else {})
    return [
        replace(first, data={**first.data, **over}),
        replace(
            first,
            id=f"{first.id}-under",
            trajectory=other.trajectory,
            call=other.call,
            value=0.0,
            data={**first.data, **under},
        ),
    ]


def _unknown(place: AnswerPlace, where: str) -> Refusal:
    name = "session" if place.session else "call"
    message = f"{place.session or place.call!r:.100} is unknown here."
    return Refusal(Cause.UNKNOWN, message, where=f"{where}.{name}" if where else name)
