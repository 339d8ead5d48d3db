"""The recorder: calls are recorded by session, and a session becomes one trajectory.

`MemoryRecorder` keeps everything in this process, `loomrl.serving.durable.StoreRecorder` in LoomDB. The rules of
sessions are in `OpenSession`, for both.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from typing_extensions import override

from loomrl.serving.call import ChatRequest
from loomrl.serving.policy import ActAsk
from loomrl.serving.recording.acts import NewActs, RecordedActs, check_form, form_of
from loomrl.serving.recording.record import (
    CallToRecord,
    RecordedCall,
    SessionEnding,
    make_answers,
    make_ending,
    make_recorded,
)
from loomrl.serving.recording.trajectory import EndedSession, trajectory_of
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.thread import KnownBeginning, RecalledConversation, RecordedAnswer, SessionThreads, answer_marks
from loomrl.types import Source, Trajectory

T = TypeVar("T")
LONGEST_ID = 200
REMEMBERED = 256
"""Ended sessions whose trajectory `MemoryRecorder` gives again."""
TOMBSTONES = 100_000
"""Ended sessions that `MemoryRecorder` refuses to begin again."""


class Recorder(Protocol):
    """Keeps calls. A session belongs to the key and the endpoint that opened it; to others it is unknown."""

    async def find_beginning(self, session: str, ask: ChatRequest, *, key: str | None = None) -> KnownBeginning | None:
        """The longest beginning of the conversation that is on record in this session.

        Refusal UNKNOWN for the session of another key (None does not check), CONFLICT for one that has ended.
        """

    async def recall(self, call: str, *, key: str) -> RecalledConversation | None:
        """The conversation up to the first answer of a call of this key; None if it is not on record whole."""

    async def takes(self, endpoint: str, ask: ChatRequest | ActAsk) -> bool:
        """True if the call would be recorded: not if its caller or its user opted out. `keep` ignores such calls."""

    async def session_of(self, key: str, ask: ChatRequest) -> str | None:
        """The open session of this key that the conversation continues, for callers who name none."""

    async def keep(self, call: CallToRecord) -> None:
        """Keep a call, once by its id: durable when it returns. It opens its session. Refusals as above."""

    async def keep_acts(self, new: NewActs) -> None:
        """Keep acts of a control policy; else as `keep`. Refusal INVALID if they differ in form from its first."""

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
        """End a session; repeated with the same data, the same trajectory.

        Refusal CONFLICT if it ended with other data, UNKNOWN if it has no call or another key.
        """

    async def close(self) -> None:
        """Finish what is being written."""


@dataclass(frozen=True, slots=True, eq=False)
class KeepJob:
    """A call to keep, the answer that it continues, and its own answers."""

    call: CallToRecord
    record: RecordedCall
    parent: RecordedAnswer | None
    new: Sequence[RecordedAnswer]


@dataclass(slots=True, eq=False)
class OpenSession:
    """A session in memory: its owner, and the answers that a conversation may continue."""

    id: str
    key: str
    endpoint: str
    threads: SessionThreads = field(default_factory=SessionThreads)
    has_ended: bool = False

    def check_owner(self, key: str | None, endpoint: str | None = None) -> None:
        """Refusal UNKNOWN for the session of another key or endpoint; None does not check."""
        # one refusal for both, so that sessions of others cannot be found by trying names
        if key not in (None, self.key) or endpoint not in (None, self.endpoint):
            raise no_session(self.id)

    def recall(self, call: str, key: str) -> RecalledConversation | None:
        """The conversation up to the first answer of a call, for the session's own key."""
        found = self.threads.named.get(f"{call}/0")
        return None if found is None or key != self.key else found.recalled()

    def check_open(self) -> None:
        """Refusal CONFLICT for a session that has ended."""
        if self.has_ended:
            raise has_ended(self.id)

    def extend(self, call: CallToRecord) -> KeepJob:
        """The call as it is kept; its answers are yet to be added to the threads."""
        parent = self.threads.named.get(call.parent)
        record = make_recorded(call, parent)
        return KeepJob(call, record, parent, self.new_answers(record, parent))

    def new_answers(self, record: RecordedCall, parent: RecordedAnswer | None) -> list[RecordedAnswer]:
        """The answers of a call that are not in the threads."""
        return [one for one in make_answers(record, parent) if one.name not in self.threads.named]


def check_id(session: str) -> None:
    """A Refusal for a text that cannot be the id of a session."""
    if not session or len(session) > LONGEST_ID or not session.isprintable():
        form = f"1 to {LONGEST_ID} printable characters"
        raise Refusal(RefusalCause.INVALID, f"session {session!r:.100}: its id must be {form}.", where="session")


def no_session(session: str) -> Refusal:
    """The Refusal for a session that does not exist, or is another caller's."""
    return Refusal(RefusalCause.UNKNOWN, f"session {session!r:.100} is unknown. A call under its id opens it.")


def has_ended(session: str) -> Refusal:
    """The Refusal for a session that has ended."""
    return Refusal(RefusalCause.CONFLICT, f"session {session!r:.100} has ended. Begin another one under a new id.")


def check_same(session: str, first: SessionEnding, again: SessionEnding) -> None:
    """Refusal CONFLICT for a session that was completed with other data."""
    if not first.agrees(again):
        raise Refusal(
            RefusalCause.CONFLICT, f"session {session!r:.100} was already completed with other data, which stays."
        )


@dataclass(slots=True, eq=False)
class _InMemory(OpenSession):
    calls: dict[str, RecordedCall] = field(default_factory=dict)
    acts: list[RecordedActs] = field(default_factory=list)


class MemoryRecorder(Recorder):
    """Sessions in this process, such as those of agents in a rollout."""

    def __init__(self, *, source: Source = Source.ROLLOUT, clock: Callable[[], float] = time.time) -> None:
        self._source = source
        self._clock = clock
        self._open: dict[str, _InMemory] = {}
        self._ended: OrderedDict[str, tuple[OpenSession, SessionEnding]] = OrderedDict()
        self._made: OrderedDict[str, Trajectory] = OrderedDict()

    @override
    async def find_beginning(self, session: str, ask: ChatRequest, *, key: str | None = None) -> KnownBeginning | None:
        there = self._find(session, key)
        found = there.threads.longest(ask) if there else None
        return None if found is None else found.beginning()

    @override
    async def recall(self, call: str, *, key: str) -> RecalledConversation | None:
        found = (there.recall(call, key) for there in self._open.values())
        return next((one for one in found if one is not None), None)

    @override
    async def takes(self, endpoint: str, ask: ChatRequest | ActAsk) -> bool:
        # `store` is about what production keeps: an agent that is trained is learnt from, whatever its client sets
        return ask.store or self._source is Source.ROLLOUT

    @override
    async def session_of(self, key: str, ask: ChatRequest) -> str | None:
        for mark in answer_marks(ask):
            for session, there in self._open.items():
                if there.key == key and mark in there.threads.marked:
                    return session
        return None

    @override
    async def keep(self, call: CallToRecord) -> None:
        if not await self.takes(call.endpoint, call.ask):
            return
        there = self._find_or_open(call)
        if call.id not in there.calls:
            keeping = there.extend(call)
            there.calls[call.id] = keeping.record
            for answer in keeping.new:
                there.threads.add(answer)

    @override
    async def keep_acts(self, new: NewActs) -> None:
        there = self._find_or_open(new)
        if there.acts:
            check_form(new.session, form_of(there.acts[0].steps), new.acts.steps)
        there.acts.append(new.acts)

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
        ending = make_ending(reward, success, outcome, correct=correct, at=self._clock())
        if session in self._ended:
            ended, first = self._ended[session]
            ended.check_owner(key)
            check_same(session, first, ending)
            if session not in self._made:
                raise has_ended(session)
            return self._made[session]
        there = self._find(session, key)
        if there is None:
            raise no_session(session)
        about = EndedSession(id=session, endpoint=there.endpoint, key=there.key, ending=ending)
        made = trajectory_of(about, list(there.calls.values()), there.acts, source=self._source)
        del self._open[session]
        _store_bounded(
            self._ended, session, (OpenSession(session, there.key, there.endpoint, has_ended=True), ending), TOMBSTONES
        )
        _store_bounded(self._made, session, made, REMEMBERED)
        return made

    @override
    async def close(self) -> None:
        pass

    def _find_or_open(self, new: CallToRecord | NewActs) -> _InMemory:
        there = self._find(new.session, new.key) or _InMemory(new.session, new.key, new.endpoint)
        there.check_owner(new.key, new.endpoint)
        self._open[new.session] = there
        return there

    def _find(self, session: str, key: str | None) -> _InMemory | None:
        ended, _ = self._ended.get(session, (None, None))
        there = self._open.get(session)
        for each in (ended, there):
            if each is not None:
                each.check_owner(key)
                each.check_open()
        return there


def _store_bounded(held: OrderedDict[str, T], name: str, value: T, most: int) -> None:
    held[name] = value
    if len(held) > most:
        held.popitem(last=False)
