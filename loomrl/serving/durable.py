"""The durable recorder: calls in LoomDB, many in one transaction; recent sessions in memory."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from secrets import token_bytes
from typing import Any, TypeVar

from typing_extensions import override

from loomrl.errors import StoreError
from loomrl.safety.redaction import PatternRedactor, Redactor, Remembering
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.call import ChatRequest
from loomrl.serving.policy import ActAsk
from loomrl.serving.recorder import OpenSession, Recorder, check_id, check_same
from loomrl.serving.recording.acts import Form, NewActs, are_acts, check_form, decode_acts, form_of
from loomrl.serving.recording.commit import Commit, FinishJob, Writer, unavailable
from loomrl.serving.recording.naming import Naming
from loomrl.serving.recording.payload import decode
from loomrl.serving.recording.record import CallToRecord, make_ending
from loomrl.serving.recording.trajectory import ending_of, trajectory_on_record
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.thread import KnownBeginning, RecalledConversation, RecordedAnswer, answer_marks
from loomrl.store import LoomDB, open_store
from loomrl.store.sessions import (
    SESSIONS,
    StoredSession,
    find_session,
    list_opted_out,
    person_of,
    read_call,
    read_calls,
)
from loomrl.types import Trajectory

log = redacted_logger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Limits of a recorder."""

    most_bytes: int = 256 << 20
    """Memory for recent sessions; the least recently used are forgotten, and read again when needed."""
    most_sessions: int = 50_000
    most_waiting: int = 4096
    """Calls that wait for their commit; further ones wait before they are taken in."""
    fresh_s: float = 10.0
    """The time for which a session in memory is taken as open without a look at LoomDB."""
    opt_out_s: float = 5.0
    """The age at which the list of people who opted out is read again."""


@dataclass(slots=True, eq=False)
class _Recent(OpenSession):
    after: int = 0
    """Calls of other processes are known up to here."""
    checked_at: float = 0.0
    written: bool = False
    """It is on record, unless it was deleted there."""


def open_recorder(
    url: str,
    *,
    redactor: Redactor | None = None,
    settings: StoreSettings | None = None,
    clock: Callable[[], float] = time.time,
    secret: bytes | None = None,
) -> "StoreRecorder":
    """The recorder in the LoomDB behind a URL; `redactor` None is `PatternRedactor`, `secret` None is this process's.

    Recorders with the same secret give a value of a session the same placeholder.
    """
    naming = Naming(db := open_store(url), redactor or Remembering(PatternRedactor()), secret=secret or token_bytes(32))
    return StoreRecorder(db, naming=naming, settings=settings, clock=clock)


class StoreRecorder(Recorder):
    """A Recorder in LoomDB. Any number of processes may share the database; one event loop uses one Store."""

    def __init__(
        self,
        db: LoomDB,
        *,
        naming: Naming,
        settings: StoreSettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._db = db
        self._clock = clock
        self._settings = settings or StoreSettings()
        self._recent: OrderedDict[str, _Recent] = OrderedDict()
        self._forms: OrderedDict[tuple[str, str, str], Form] = OrderedDict()
        """Forms of the first steps of the sessions that were used last."""
        self._marks: dict[tuple[str, bytes], str] = {}
        self._calls: dict[str, str] = {}
        """Call → session, of the sessions in memory."""
        self._size = 0
        self._out: frozenset[str] = frozenset()
        self._out_at = float("-inf")
        self._writer = Writer(Commit(db, naming, clock=clock), most=self._settings.most_waiting)

    @override
    async def takes(self, endpoint: str, ask: ChatRequest | ActAsk) -> bool:
        if not ask.store:
            return False
        if not ask.user:
            return True
        if self._clock() - self._out_at > self._settings.opt_out_s:
            self._out_at = self._clock()
            self._out = await self._read(list_opted_out, self._db)
        return person_of(endpoint, ask.user) not in self._out

    @override
    async def session_of(self, key: str, ask: ChatRequest) -> str | None:
        marks = answer_marks(ask)
        if not marks:
            return None
        name = self._marks.get((key, marks[0]))
        if name is not None and (recent := await self._session(name)) is not None and not recent.has_ended:
            return name
        return await self._read(find_session, self._db, key, marks)

    @override
    async def find_beginning(self, session: str, ask: ChatRequest, *, key: str | None = None) -> KnownBeginning | None:
        check_id(session)
        recent = await self._session(session)
        if recent is None:
            return None
        recent.check_owner(key)
        recent.check_open()
        found = recent.threads.longest(ask)
        if not recent.threads.is_newest(ask, found):
            recent = await self._load(session) or recent
            found = recent.threads.longest(ask)
        return None if found is None else found.beginning()

    @override
    async def recall(self, call: str, *, key: str) -> RecalledConversation | None:
        session = self._calls.get(call)
        if session is None:
            found = await self._read(read_call, self._db, call)
            if found is None:
                return None
            session = found[0]
        recent = await self._session(session)
        if recent is not None and f"{call}/0" not in recent.threads.named:
            recent = await self._load(session) or recent
        return None if recent is None else recent.recall(call, key)

    @override
    async def keep(self, call: CallToRecord) -> None:
        name = call.session
        check_id(name)
        if not await self.takes(call.endpoint, call.ask):
            return
        recent = self._recent.get(name)
        if call.parent and (recent is None or call.parent not in recent.threads.named):
            recent = await self._load(name)
        recent = recent or self._remember(_Recent(name, call.key, call.endpoint))
        # no check_open: a call that is on record may be repeated after the session has ended
        recent.check_owner(call.key, call.endpoint)
        keeping = recent.extend(call)
        self._add(recent, keeping.new)
        await self._writer.do(keeping, failed=partial(self._forget_unwritten, recent, keeping.new))
        recent.written = True

    @override
    async def keep_acts(self, new: NewActs) -> None:
        check_id(new.session)
        await self._check_form(new)
        await self._writer.do(new)

    @override
    async def complete(
        self,
        session: str,
        *,
        key: str | None = None,
        reward: float | None = None,
        success: float | None = None,
        correct: float | None = None,
        outcome: Mapping[str, Any] | None = None,
    ) -> Trajectory:
        check_id(session)
        new = make_ending(reward, success, outcome, correct=correct, at=self._clock())
        if (recent := self._recent.get(session)) is not None:
            recent.check_owner(key)
        stored: StoredSession
        stored, ending = await self._writer.do(FinishJob(session, key, new))
        if recent is not None:
            recent.has_ended = True
        check_same(session, ending_of(stored), ending)
        try:
            return await self._read(trajectory_on_record, self._db, stored)
        except ValueError as error:  # steps of two forms that were kept at once by two gateways
            message = f"session {session!r:.100} has ended, and becomes no trajectory: {error}."
            raise Refusal(RefusalCause.CONFLICT, message) from None

    @override
    async def close(self) -> None:
        await asyncio.to_thread(self._writer.close)
        self._db.close()

    async def _check_form(self, new: NewActs) -> None:
        """A Refusal INVALID for acts of another form than the session's first."""
        place = (new.session, new.key, new.endpoint)
        if place not in self._forms:
            stored, rows = await self._read(read_calls, self._db, new.session)
            if stored is not None and (stored.key, stored.endpoint) != place[1:]:
                return  # it is another's: the commit refuses it
            first = next((row.payload for row in rows if are_acts(row.payload)), None)
            self._forms.setdefault(place, form_of(new.acts.steps if first is None else decode_acts(first).steps))
        self._forms.move_to_end(place)
        check_form(new.session, self._forms[place], new.acts.steps)
        if len(self._forms) > self._settings.most_sessions:
            self._forms.popitem(last=False)

    # -- memory -----------------------------------------------------------------------------------------------------

    async def _session(self, session: str) -> _Recent | None:
        """The session, from memory if it is there and was looked at lately."""
        recent = self._recent.get(session)
        if recent is None:
            return await self._load(session)
        self._recent.move_to_end(session)
        if self._clock() - recent.checked_at > self._settings.fresh_s:
            recent.checked_at = self._clock()
            stored = await self._read(SESSIONS.find, self._db, session)
            if stored is not None:
                self._update(recent, stored)
            elif recent.written and self._recent.get(session) is recent:
                self._forget(session)  # a person whose data was deleted is not remembered here
                return None
        return recent

    async def _load(self, session: str) -> _Recent | None:
        """Read what is on record and not in memory yet."""
        there = self._recent.get(session)
        stored, rows = await self._read(read_calls, self._db, session, after=0 if there is None else there.after)
        recent = self._recent.get(session)  # meanwhile others may have read it, or it was forgotten
        if stored is None:
            return recent
        if recent is None and there is not None:
            return await self._load(session)
        if recent is None:
            recent = self._remember(_Recent(session, stored.key, stored.endpoint))
        self._update(recent, stored)
        for row in rows:
            recent.after = max(recent.after, row.position)
            if are_acts(row.payload):
                continue
            record = decode(row.payload, row.columns)
            parent = recent.threads.named.get(record.record.parent)
            self._add(recent, recent.new_answers(record, parent))
        return recent

    def _update(self, recent: _Recent, stored: StoredSession) -> None:
        recent.key = stored.key
        recent.endpoint = stored.endpoint
        recent.has_ended = stored.state != "open"
        recent.checked_at = self._clock()
        recent.written = True

    def _remember(self, recent: _Recent) -> _Recent:
        self._recent[recent.id] = recent
        recent.checked_at = self._clock()
        return recent

    def _add(self, recent: _Recent, new: Sequence[RecordedAnswer]) -> None:
        """Remember answers; the sessions that were used least recently make room."""
        before = recent.threads.size
        for one in new:
            recent.threads.add(one)
            self._calls[one.call] = recent.id
            if one.mark:
                self._marks[recent.key, one.mark] = recent.id
        self._size += recent.threads.size - before
        while len(self._recent) > 1 and (
            self._size > self._settings.most_bytes or len(self._recent) > self._settings.most_sessions
        ):
            self._forget(next(name for name in self._recent if name != recent.id))

    def _forget(self, session: str) -> None:
        recent = self._recent.pop(session)
        self._size -= recent.threads.size
        for answer in recent.threads.named.values():
            self._calls.pop(answer.call, None)
        for mark in recent.threads.marked:
            if self._marks.get((recent.key, mark)) == session:
                del self._marks[recent.key, mark]

    def _forget_unwritten(self, recent: _Recent, new: Sequence[RecordedAnswer], error: BaseException) -> None:
        """Forget answers that are not on record; a session that is not ours, or has ended, is read again."""
        if self._recent.get(recent.id) is not recent:
            return
        if isinstance(error, Refusal) and error.cause in (RefusalCause.UNKNOWN, RefusalCause.CONFLICT):
            self._forget(recent.id)
            return
        before = recent.threads.size
        for one in new:
            recent.threads.remove(one.name)
            self._calls.pop(one.call, None)
        self._size += recent.threads.size - before

    async def _read(self, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        try:
            return await asyncio.to_thread(work, *arguments, **named)
        except StoreError as error:
            raise unavailable(error) from None
