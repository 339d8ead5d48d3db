"""The durable recorder: calls in LoomDB, many in one transaction; recent sessions in memory."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from secrets import token_bytes
from typing import Any, TypeVar

from loomrl.errors import StoreError
from loomrl.safety.redaction import PatternRedactor, Redactor, Remembering
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.act import ActAsk
from loomrl.serving.archive import ending_of, trajectory_on_record
from loomrl.serving.call import Ask
from loomrl.serving.recorder import check_id, check_owner, ended_otherwise, has_ended, no_session
from loomrl.serving.recording.acts import NewActs, are_acts
from loomrl.serving.recording.commit import Commit, Finish, Keeping, Writer, unavailable
from loomrl.serving.recording.forms import Forms
from loomrl.serving.recording.naming import Naming
from loomrl.serving.recording.payload import decode
from loomrl.serving.recording.record import Call, kept, spoken, told
from loomrl.serving.refusal import Cause, Refusal
from loomrl.serving.thread import Known, Spoken, Threads, answer_marks
from loomrl.store import LoomDB, open_store
from loomrl.store.sessions import SESSIONS, StoredSession, find_session, list_opted_out, person_of, read_calls
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


@dataclass(slots=True)
class _Recent:
    """A session in memory."""

    key: str
    endpoint: str
    threads: Threads = field(default_factory=Threads)
    after: int = 0
    """Calls of other processes are known up to here."""
    checked_at: float = 0.0
    ended: bool = False


def open_recorder(
    url: str,
    *,
    redactor: Redactor | None = None,
    settings: StoreSettings | None = None,
    clock: Callable[[], float] = time.time,
    secret: bytes | None = None,
) -> "Store":
    """The recorder in the LoomDB behind a URL; `redactor` None is `PatternRedactor`, `secret` None is this process's.

    Recorders with the same secret give a value of a session the same placeholder.
    """
    naming = Naming(db := open_store(url), redactor or Remembering(PatternRedactor()), secret=secret or token_bytes(32))
    return Store(db, naming=naming, settings=settings, clock=clock)


class Store:
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
        self._forms = Forms(partial(self._read, read_calls, db), most=self._settings.most_sessions)
        self._marks: dict[tuple[str, bytes], str] = {}
        self._size = 0
        self._out: frozenset[str] = frozenset()
        self._out_at = float("-inf")
        self._writer = Writer(Commit(db, naming, clock=clock), most=self._settings.most_waiting)

    async def takes(self, endpoint: str, ask: Ask | ActAsk) -> bool:
        """As of `Recorder`."""
        if not ask.store:
            return False
        if not ask.user:
            return True
        if self._clock() - self._out_at > self._settings.opt_out_s:
            self._out_at = self._clock()
            self._out = await self._read(list_opted_out, self._db)
        return person_of(endpoint, ask.user) not in self._out

    async def session_of(self, key: str, ask: Ask) -> str | None:
        """As of `Recorder`."""
        marks = answer_marks(ask)
        if not marks:
            return None
        name = self._marks.get((key, marks[0]))
        if name is not None and (recent := await self._session(name)) is not None and not recent.ended:
            return name
        return await self._read(find_session, self._db, key, marks)

    async def known(self, session: str, ask: Ask, *, key: str | None = None) -> Known | None:
        """As of `Recorder`."""
        check_id(session)
        recent = await self._session(session)
        if recent is None:
            return None
        check_owner(session, recent.key, key)
        if recent.ended:
            raise has_ended(session)
        found = recent.threads.longest(ask)
        if not recent.threads.is_newest(ask, found):
            recent = await self._load(session) or recent
            found = recent.threads.longest(ask)
        return None if found is None else found.known()

    async def keep(self, call: Call) -> None:
        """As of `Recorder`."""
        name = call.session
        check_id(name)
        if not await self.takes(call.endpoint, call.ask):
            return
        recent = self._recent.get(name)
        if call.parent and (recent is None or call.parent not in recent.threads.named):
            recent = await self._load(name)
        recent = recent or self._remember(name, _Recent(call.key, call.endpoint))
        if (recent.key, recent.endpoint) != (call.key, call.endpoint):
            raise no_session(name)
        parent = recent.threads.named.get(call.parent)
        record = kept(call, parent)
        new = [one for one in spoken(record, parent) if one.name not in recent.threads.named]
        self._add(name, recent, new)
        await self._writer.do(Keeping(call, record, parent, new), failed=partial(self._failed, name, recent, new))

    async def keep_acts(self, new: NewActs) -> None:
        """As of `Recorder`."""
        check_id(new.session)
        await self._forms.check(new)
        await self._writer.do(new)

    async def complete(
        self,
        session: str,
        *,
        key: str | None = None,
        reward: float | None = None,
        success: float | None = None,
        outcome: Mapping[str, Any] | None = None,
    ) -> Trajectory:
        """As of `Recorder`."""
        check_id(session)
        new = told(reward, success, outcome, at=self._clock())
        if (recent := self._recent.get(session)) is not None:
            check_owner(session, recent.key, key)
        stored: StoredSession
        stored, ending = await self._writer.do(Finish(session, key, new))
        if recent is not None:
            recent.ended = True
        if not ending.agrees(ending_of(stored)):
            raise ended_otherwise(session)
        try:
            return await self._read(trajectory_on_record, self._db, stored)
        except ValueError as error:  # steps of two forms that were kept at once by two gateways
            message = f"session {session!r:.100} has ended, and becomes no trajectory: {error}."
            raise Refusal(Cause.CONFLICT, message) from None

    async def close(self) -> None:
        """As of `Recorder`; closes the database too."""
        await asyncio.to_thread(self._writer.close)
        self._db.close()

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
            recent = self._remember(session, _Recent(stored.key, stored.endpoint))
        self._update(recent, stored)
        for row in rows:
            recent.after = max(recent.after, row.position)
            if are_acts(row.payload):
                continue
            record = decode(row.payload, row.columns)
            parent = recent.threads.named.get(record.record.parent)
            self._add(session, recent, [one for one in spoken(record, parent) if one.name not in recent.threads.named])
        return recent

    def _update(self, recent: _Recent, stored: StoredSession) -> None:
        recent.key = stored.key
        recent.endpoint = stored.endpoint
        recent.ended = stored.state != "open"
        recent.checked_at = self._clock()

    def _remember(self, session: str, recent: _Recent) -> _Recent:
        self._recent[session] = recent
        recent.checked_at = self._clock()
        return recent

    def _add(self, session: str, recent: _Recent, new: Sequence[Spoken]) -> None:
        """Remember answers; the sessions that were used least recently make room."""
        before = recent.threads.size
        for one in new:
            recent.threads.add(one)
            if one.mark:
                self._marks[recent.key, one.mark] = session
        self._size += recent.threads.size - before
        while len(self._recent) > 1 and (
            self._size > self._settings.most_bytes or len(self._recent) > self._settings.most_sessions
        ):
            self._forget(next(name for name in self._recent if name != session))

    def _forget(self, session: str) -> None:
        recent = self._recent.pop(session)
        self._size -= recent.threads.size
        for mark in recent.threads.marked:
            if self._marks.get((recent.key, mark)) == session:
                del self._marks[recent.key, mark]

    def _failed(self, session: str, recent: _Recent, new: Sequence[Spoken], error: BaseException) -> None:
        """Forget answers that are not on record; a session that is not ours, or has ended, is read again."""
        if self._recent.get(session) is not recent:
            return
        if isinstance(error, Refusal) and error.cause in (Cause.UNKNOWN, Cause.CONFLICT):
            self._forget(session)
            return
        before = recent.threads.size
        for one in new:
            recent.threads.remove(one.name)
        self._size += recent.threads.size - before

    async def _read(self, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        try:
            return await asyncio.to_thread(work, *arguments, **named)
        except StoreError as error:
            raise unavailable(error) from None
