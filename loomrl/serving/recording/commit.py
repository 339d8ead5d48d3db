"""The writing thread of the durable recorder: many jobs in one transaction, redacted before."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

from loomrl.errors import StoreError
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.recorder import KeepJob, OpenSession, has_ended, no_session
from loomrl.serving.recording.acts import NewActs, encode_acts, together
from loomrl.serving.recording.naming import Draft, Naming
from loomrl.serving.recording.payload import encode, private, private_ending
from loomrl.serving.recording.record import RecordedCall, SessionEnding
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.store import LoomDB
from loomrl.store.sessions import SESSIONS, NewCall, StoredSession, end_session, keep_calls, person_of

log = redacted_logger(__name__)
HEARD = 2
"""Messages before a call's own that may say what in them is secret."""


@dataclass(frozen=True, slots=True)
class FinishJob:
    """A session to end."""

    session: str
    key: str | None
    ending: SessionEnding


class Commit:
    """Writes jobs together and says what became of each."""

    def __init__(self, db: LoomDB, naming: Naming, *, clock: Callable[[], float] = time.time) -> None:
        self._db = db
        self._naming = naming
        self._clock = clock

    def __call__(self, jobs: Sequence[KeepJob | NewActs | FinishJob]) -> list[Any]:
        """The result of each job, or an exception."""
        works: dict[type, Callable[[Any], list[Any]]] = {
            KeepJob: self._keep,
            NewActs: self._keep_acts,
            FinishJob: self._end,
        }
        return [result for kind, alike in groupby(jobs, type) for result in works[kind](list(alike))]

    def _keep(self, jobs: list[KeepJob]) -> list[Any]:
        drafts = [_attempt(partial(self._draft, job)) for job in jobs]
        try:
            named = iter(self._naming.name_drafts([draft for draft in drafts if isinstance(draft, Draft)]))
            new = [
                _attempt(partial(self._new, job, next(named))) if isinstance(draft, Draft) else draft
                for job, draft in zip(jobs, drafts, strict=True)
            ]
            fates = iter(keep_calls(self._db, [call for call in new if isinstance(call, NewCall)]))
        except StoreError as error:
            return [unavailable(error)] * len(jobs)
        return [_answer(next(fates), call.session) if isinstance(call, NewCall) else call for call in new]

    def _keep_acts(self, new: list[NewActs]) -> list[Any]:
        rows = together(new)
        try:
            fates = keep_calls(self._db, [self._row(acts) for acts, _ in rows])
        except StoreError as error:
            return [unavailable(error)] * len(new)
        results: list[Any] = [None] * len(new)
        for (acts, positions), fate in zip(rows, fates, strict=True):
            for position in positions:
                results[position] = _answer(fate, acts.session)
        return results

    def _row(self, new: NewActs) -> NewCall:
        return NewCall(
            id=None,
            session=new.session,
            endpoint=new.endpoint,
            key=new.key,
            payload=encode_acts(new.acts),
            columns=None,
            person=person_of(new.endpoint, new.user),
            created_at=self._clock(),
        )

    def _draft(self, job: KeepJob) -> Draft[RecordedCall]:
        """The call as it may be stored, but for the names of placeholders."""
        call = job.call
        person = person_of(call.endpoint, call.ask.user)
        unnamed = replace(job.record, record=replace(job.record.record, user=person))
        earlier = [one.text for one in call.ask.messages[: job.record.record.begins]]
        return self._naming.draft(call.session, partial(private, unnamed, before=earlier[-HEARD:]))

    def _new(self, job: KeepJob, record: RecordedCall) -> NewCall:
        """The row of a call. Answers after redacted text are stored without ids."""
        if job.parent is not None and job.parent.redacted:
            record = RecordedCall(record=record.record, columns=())
        for one in job.new:
            one.redacted = record.lost
        call = job.call
        payload, columns = encode(record)
        return NewCall(
            id=call.id,
            session=call.session,
            endpoint=call.endpoint,
            key=call.key,
            payload=payload,
            columns=columns,
            person=record.record.user,
            marks=tuple(one.mark for one in record.columns if one.mark),
            created_at=self._clock(),
        )

    def _end(self, jobs: list[FinishJob]) -> list[Any]:
        return [_attempt(partial(self._end_session, job)) for job in jobs]

    def _end_session(self, job: FinishJob) -> tuple[StoredSession, SessionEnding]:
        """The session as it has ended, and the end that was told, as it may be stored."""
        stored = SESSIONS.find(self._db, job.session)
        if stored is None:
            raise no_session(job.session)
        OpenSession(stored.id, stored.key, stored.endpoint).check_owner(job.key)
        ending = self._naming.redact_for(job.session, partial(private_ending, job.ending))
        ended = end_session(self._db, job.session, ending.data(), at=ending.at)
        assert ended is not None, "it was there"
        return ended, ending


def _attempt(work: Callable[[], Any]) -> Any:
    """The result, or the exception that the one who waits is to get."""
    try:
        return work()
    except Refusal as refusal:
        return refusal
    except StoreError as error:
        return unavailable(error)
    except Exception as error:
        log.exception("a job of the recorder failed")
        return Refusal(RefusalCause.INTERNAL, f"The call could not be recorded: {type(error).__name__}.")


def _answer(fate: str, session: str) -> Refusal | None:
    if fate == "foreign":
        return no_session(session)
    return has_ended(session) if fate == "ended" else None


def unavailable(error: StoreError) -> Refusal:
    """The Refusal for a database that does not answer; it is logged."""
    log.error("the recorder's database: %s", error)
    return Refusal(
        RefusalCause.UNAVAILABLE, "The call could not be recorded: its database does not answer.", retry_after_s=1.0
    )


MOST_TOGETHER = 512


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    work: Any
    loop: asyncio.AbstractEventLoop
    result: "asyncio.Future[Any]"
    failed: Callable[[BaseException], None] | None


class Writer:
    """Does jobs in batches: `commit` gives a result or an exception for each. At most `most` wait."""

    def __init__(self, commit: Callable[[list[Any]], list[Any]], *, most: int) -> None:
        self._commit = commit
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._room = asyncio.Semaphore(most)
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()

    async def do(self, work: Any, *, failed: Callable[[BaseException], None] | None = None) -> Any:
        """The result of a job. An accepted job is done even if its caller has stopped waiting.

        `failed` is called in the event loop if it could not be done.
        """
        async with self._room:
            loop = asyncio.get_running_loop()
            job = _Job(work, loop, loop.create_future(), failed)
            with self._changed:
                if self._closing:
                    raise Refusal(RefusalCause.UNAVAILABLE, "The recorder is closed.", retry_after_s=1.0)
                self._jobs.append(job)
                self._changed.notify()
            return await job.result

    def close(self) -> None:
        """Finish all accepted jobs."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            try:
                results = self._commit([job.work for job in batch])
            except Exception:  # the boundary of the thread: it must live on
                log.exception("%d jobs of the recorder failed", len(batch))
                results = [Refusal(RefusalCause.INTERNAL, "The call could not be recorded.")] * len(batch)
            for loop in {job.loop for job in batch}:
                mine = [(job, result) for job, result in zip(batch, results, strict=True) if job.loop is loop]
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_settle, mine)

    def _next(self) -> list[_Job]:
        """The next jobs, as soon as there are any; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closing)
            return [self._jobs.popleft() for _ in range(min(len(self._jobs), MOST_TOGETHER))]


def _settle(jobs: Sequence[tuple[_Job, Any]]) -> None:
    for job, result in jobs:
        if isinstance(result, BaseException):
            if job.failed is not None:
                job.failed(result)
            if not job.result.done():
                job.result.set_exception(result)
        elif not job.result.done():
            job.result.set_result(result)
