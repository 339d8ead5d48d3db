"""Takes feedback in: finds what it is about, checks whose it is, and stores it without secrets."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from secrets import token_bytes
from threading import Lock
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from loomrl.canonical import canonical_json, content_hash
from loomrl.config import HubConfig
from loomrl.errors import IdTaken, LoomError
from loomrl.hub.hub import Hub, Selection
from loomrl.hub.open import open_endpoint_hub
from loomrl.safety.placeholder import drop_numbers
from loomrl.safety.redaction import PatternRedactor, Redaction
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.body import LONGEST_NAME, Body, Label, invalid, read_body
from loomrl.serving.feedback.signal import answer_name
from loomrl.serving.recording.acts import are_acts
from loomrl.serving.recording.naming import Naming
from loomrl.serving.recording.payload import decode
from loomrl.serving.recording.record import CallRecord
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.request import Caller
from loomrl.serving.room import Room
from loomrl.store import LoomDB
from loomrl.store.erasures import erase_late
from loomrl.store.feedback import append_feedback, feedback_of
from loomrl.store.sessions import SESSIONS, list_opted_out, people_in, read_call
from loomrl.types import Feedback, Trajectory

log = redacted_logger(__name__)
AT_ONCE = 4
"""Judgements that are stored at a time."""
MOST_WAITING = 1024
LONGEST_COMMENT = 8_192
LONGEST_CORRECTION = 32_768
"""Characters."""
LATEST = 1e11
"""The last second of `created_at` that is a time at all: the year 5138."""
MOST_STARS = 5
CORRECTED = 0.2
NO_OPINION = 0.5
THUMBS = {"up": 1.0, "down": 0.0}
PREFIXES = ("chatcmpl-", "cmpl-", "resp_", "msg_")
"""Prefixes of the ids that dialects give to answers."""
WAYS = ("thumb", "stars", "correction", "over", "abandoned", "outcome")
"""One of these is given; or nothing but a comment."""


def _check_text(text: str) -> str:
    if "\0" in text:
        raise ValueError("NUL cannot be stored.")
    return text


def _as_number(value: Any) -> Any:
    return float(value) if isinstance(value, bool) else value


NoNul = AfterValidator(_check_text)


class RefBody(Body):
    """An answer, by its session or `trajectory` (the same id), its call, or both."""

    session: Label = ""
    trajectory: Label = ""
    call: Label = ""


class OutcomeBody(Body):
    """Facts that only the caller knows."""

    success: Annotated[float, BeforeValidator(_as_number), Field(ge=0, le=1)] | None = None
    correct: Annotated[float, BeforeValidator(_as_number), Field(ge=0, le=1)] | None = None
    """Success by a second check."""
    reward: float | None = None


class FeedbackBody(RefBody):
    """A judgement of an answer: one of `WAYS`, or a comment alone, which may also stand beside another."""

    thumb: Literal["up", "down"] | None = None
    stars: Annotated[float, Field(ge=0, le=MOST_STARS)] | None = None
    correction: Annotated[str, Field(max_length=LONGEST_CORRECTION), NoNul] | None = None
    over: RefBody | None = None
    abandoned: Literal[True] | None = None
    outcome: OutcomeBody | None = None
    comment: Annotated[str, Field(max_length=LONGEST_COMMENT), NoNul] = ""
    id: Label = ""
    """The caller's own; a repeated one stores nothing more."""
    created_at: Annotated[float, Field(ge=0, le=LATEST)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRef:
    """The answer that is meant: a call, or all of a session."""

    session: str = ""
    call: str = ""
    index: int | None = None
    """The choice of the call, if one is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackEntry:
    """One judgement."""

    place: AnswerRef
    kind: str
    source: str = "human"
    value: float
    comment: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    over: AnswerRef | None = None
    """The answer that was not taken, for a choice between two."""
    id: str = ""
    created_at: float | None = None


def read_feedback_body(raw: Mapping[str, Any], *, session: str = "", key: str = "") -> FeedbackEntry:
    """The judgement in a request's body. `session` and `key` (of idempotency) come from its path and headers."""
    body = read_body(FeedbackBody, raw)
    if body.id and key and body.id != key:
        raise invalid("id", "it differs from the header Idempotency-Key: give one of them.")
    if len(key) > LONGEST_NAME or not key.isprintable():
        raise invalid("Idempotency-Key", f"{key[:40]!r} is not a name: at most {LONGEST_NAME} printable characters.")
    ways = [name for name in WAYS if getattr(body, name) is not None]
    if len(ways) > 1:
        raise invalid(ways[1], f"it stands beside {ways[0]!r}: send one judgement at a time.")
    return FeedbackEntry(
        place=_read_ref(body, session),
        comment=body.comment,
        id=body.id or key,
        created_at=body.created_at,
        **_judge(body),
    )


def _judge(body: FeedbackBody) -> dict[str, Any]:
    """Kind, value, and what else the judgement has."""
    if body.thumb is not None:
        return {"kind": "thumb", "value": THUMBS[body.thumb]}
    if body.stars is not None:
        return {"kind": "stars", "value": body.stars / MOST_STARS}
    if body.correction is not None:
        if not body.correction.strip():
            raise invalid("correction", "it is empty: give the answer that would have been right.")
        return {"kind": "correction", "value": CORRECTED, "data": {"text": body.correction}}
    if body.over is not None:
        return {"kind": "choice", "value": 1.0, "over": _read_ref(body.over, "", "over.")}
    if body.abandoned is not None:
        return {"kind": "abandoned", "value": 0.0, "source": "caller"}
    if body.outcome is not None:
        return _judge_outcome(body.outcome)
    if not body.comment.strip():
        raise invalid("", f"nothing is said of the answer. Give one of {', '.join(WAYS)}, comment.")
    return {"kind": "comment", "value": NO_OPINION}


def _judge_outcome(outcome: OutcomeBody) -> dict[str, Any]:
    """The value is the success, else what a second check says, else the reward as far as it lies within 0..1."""
    data = outcome.model_dump(exclude_none=True)
    if not data:
        raise invalid("outcome", "it says nothing: give reward, success, or correct.")
    told = data.get("success", data.get("correct"))
    value = min(1.0, max(0.0, data["reward"])) if told is None else told
    return {"kind": "outcome", "value": value, "source": "caller", "data": data}


def _read_ref(body: RefBody, session: str, where: str = "") -> AnswerRef:
    """`session` is the one that path or header name."""
    names = sorted({name for name in (body.session, body.trajectory, session) if name})
    if len(names) > 1:
        field = "trajectory" if body.trajectory else "session"
        raise invalid(f"{where}{field}", f"two sessions are named, {names[0]!r} and {names[1]!r}: give one.")
    if not names and not body.call:
        raise invalid(f"{where}session", "the field is missing: name a session, a trajectory or a call.")
    call, index = _read_call(body.call, f"{where}call")
    return AnswerRef(session=names[0] if names else "", call=call, index=index)


def _read_call(name: str, where: str) -> tuple[str, int | None]:
    """The id of a call, as an answer shows it, and the choice behind a slash."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    call, slash, index = name.partition("/")
    if slash and not (index.isdecimal() and index.isascii() and len(index) < 4):
        raise invalid(where, f"{name[:60]!r}: a choice is named by its number, as in CALL/1.")
    return call, int(index) if slash else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFeedback:
    """The feedback as it was stored; `new` is 0 for a repetition."""

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


class FeedbackIntake:
    """Stores feedback in LoomDB. Late by days: once a session is gone, its trajectory in the hub stands for it.

    It belongs to the key that opened the session; to others neither exists. Safe to call from several threads.
    """

    def __init__(
        self,
        db: LoomDB,
        hubs: "EndpointHubs",
        *,
        naming: Naming | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._db = db
        self._hubs = hubs
        self._clock = clock
        self._naming = naming or Naming(db, PatternRedactor(), secret=token_bytes(32))
        self._room = Room(slots=AT_ONCE, queue=MOST_WAITING)

    async def give(self, entry: FeedbackEntry, *, caller: Caller, deadline: float) -> StoredFeedback:
        """`take` off the event loop, a few at a time; a Refusal UNAVAILABLE if LoomDB does not answer."""
        async with self._room.enter(caller.key, deadline=deadline):
            try:
                return await asyncio.to_thread(self.take, entry, caller=caller)
            except LoomError as error:
                log.error("feedback could not be stored: %s", error)
                message = "The feedback could not be stored: its database does not answer."
                raise Refusal(RefusalCause.UNAVAILABLE, message, retry_after_s=1.0) from None

    def take(self, entry: FeedbackEntry, *, caller: Caller) -> StoredFeedback:
        """Store a judgement once. A Refusal UNKNOWN, FORBIDDEN, CONFLICT or INVALID."""
        about = self._find(entry.place, caller, "")
        other = None if entry.over is None else self._find(entry.over, caller, "over")
        self._refuse_opted_out({about.trajectory, *([] if other is None else [other.trajectory])})
        if about == other:
            raise Refusal(RefusalCause.INVALID, "it is the same answer: a choice is between two.", where="over")
        first = self._feedback(entry, about, other, caller.key)
        rows = [first] if other is None else _choice(first, about, other)
        try:
            new = append_feedback(self._db, rows)
        except IdTaken:
            if not all(map(self._is_stored, rows)):
                name = entry.id or first.id
                message = f"the id {name!r} was given with other content, which holds. Send this under a new id."
                raise Refusal(RefusalCause.CONFLICT, message, where="id") from None
            new = 0
        if erase_late(self._db, [row.trajectory for row in rows]):
            raise _unknown(entry.place, "")
        return StoredFeedback(id=first.id, trajectory=about.trajectory, call=about.call, kind=first.kind, new=new)

    def _is_stored(self, row: Feedback) -> bool:
        """True if it is on record but for numbers of placeholders, which a service that was started again counts on."""
        return any(
            one.id == row.id and _drop_numbers(replace(one, created_at=row.created_at)) == _drop_numbers(row)
            for one in feedback_of(self._db, [row.trajectory])
        )

    def close(self) -> None:
        """Give the hubs back."""
        self._hubs.close()

    def _feedback(self, entry: FeedbackEntry, about: _About, other: _About | None, key: str) -> Feedback:
        comment, data = self._naming.redact_for(about.trajectory, partial(_words, entry))
        now = self._clock()
        at = now
        if entry.created_at is not None:  # clocks differ: neither before the session nor after now
            at = min(max(entry.created_at, about.since), now)
            data["told_at"] = entry.created_at
        said = [about.name, entry.kind, entry.value, entry.comment, dict(entry.data), entry.created_at]
        content = [*said, "" if other is None else other.name]
        return Feedback(
            id=f"fb-{content_hash([key, entry.id or content])[:32]}",
            trajectory=about.trajectory,
            source=entry.source,
            kind=entry.kind,
            value=entry.value,
            comment=comment,
            created_at=at,
            call=about.call,
            data=data,
        )

    def _refuse_opted_out(self, trajectories: Collection[str]) -> None:
        people: set[str] = set().union(*people_in(self._db, sorted(trajectories)).values())
        if people and people & list_opted_out(self._db):
            raise Refusal(RefusalCause.FORBIDDEN, "This person opted out of being recorded: nothing was stored.")

    # -- what it is about -------------------------------------------------------------------------------------------

    def _find(self, place: AnswerRef, caller: Caller, where: str) -> _About:
        """The answer, if it is this caller's. What is another's takes the same way as what does not exist."""
        found = self._on_record(place, caller) or self._in_hub(place, caller)
        if found is None:
            raise _unknown(place, where)
        return found

    def _on_record(self, place: AnswerRef, caller: Caller) -> _About | None:
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

    def _in_hub(self, place: AnswerRef, caller: Caller) -> _About | None:
        if not place.session:
            return None
        for hub in self._hubs.all():
            for _, found in hub.read(selection=Selection(ids=(place.session,))):
                session = found.extra.get("session", {})
                if caller.is_admin or session.get("key") == caller.key:
                    return _in_trajectory(found, session.get("calls", []), place)
        return None


def _drop_numbers(row: Feedback) -> str:
    return drop_numbers(canonical_json(asdict(row)).decode())


def _words(entry: FeedbackEntry, redaction: Redaction) -> tuple[str, dict[str, Any]]:
    """The comment, and the rest, as they may be stored."""
    data = {name: redaction.text(one) if isinstance(one, str) else one for name, one in entry.data.items()}
    return redaction.text(entry.comment), data


@dataclass(slots=True)
class EndpointHubs:
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


def _answer_in(record: CallRecord, index: int) -> str | None:
    """The name of one answer of a call; None if it has no such choice."""
    return answer_name(record, index) if index in {words.index for words in record.choices} else None


def _in_trajectory(found: Trajectory, threads: Sequence[Sequence[str]], place: AnswerRef) -> _About | None:
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


def _unknown(place: AnswerRef, where: str) -> Refusal:
    name = "session" if place.session else "call"
    message = f"{place.session or place.call!r:.100} is unknown here."
    return Refusal(RefusalCause.UNKNOWN, message, where=f"{where}.{name}" if where else name)
