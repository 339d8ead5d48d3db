"""The recorder: calls are recorded by session, and a session becomes one trajectory.

`Memory` keeps everything in this process; `loomrl.serving.durable.Store` keeps it in LoomDB.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from loomrl.serving.act import ActAsk
from loomrl.serving.call import Ask
from loomrl.serving.recording.acts import Acts, NewActs, check_form, form_of
from loomrl.serving.recording.record import Call, Ending, Kept, SpokenChoice, kept, spoken, told
from loomrl.serving.recording.trajectory import Session, trajectory_of
from loomrl.serving.refusal import Cause, Refusal
from loomrl.serving.thread import Known, Threads, answer_marks, continuation
from loomrl.types import Source, Trajectory

__all__ = ["Call", "Known", "Memory", "Recorder", "SpokenChoice", "continuation"]

T = TypeVar("T")
LONGEST_ID = 200
REMEMBERED = 256
"""Ended sessions whose trajectory `Memory` gives again."""
TOMBSTONES = 100_000
"""Ended sessions that `Memory` refuses to begin again."""


class Recorder(Protocol):
    """Keeps calls. A session belongs to the key and the endpoint that opened it; to others it is unknown."""

    async def known(self, session: str, ask: Ask, *, key: str | None = None) -> Known | None:
        """The longest beginning of the conversation that is on record in this session.

        Refusal UNKNOWN for the session of another key (None does not check), CONFLICT for one that has ended.
        """

    async def takes(self, endpoint: str, ask: Ask | ActAsk) -> bool:
        """True if the call would be recorded: not if its caller or its user opted out. `keep` ignores such calls."""

    async def session_of(self, key: str, ask: Ask) -> str | None:
        """The open session of this key that the conversation continues, for callers who name none."""

    async def keep(self, call: Call) -> None:
        """Keep a call, once by its id: durable when it returns. It opens its session. Refusals as of `known`."""

    async def keep_acts(self, new: NewActs) -> None:
        """Keep acts of a control policy; else as `keep`. Refusal INVALID if they differ in form from its first."""

    async def complete(
        self,
        session: str,
        *,
        key: str | None = None,
        reward: float | None = None,
        success: float | None = None,
        outcome: Mapping[str, Any] | None = None,
    ) -> Trajectory:
        """End a session; repeated with the same data, the same trajectory.

        Refusal CONFLICT if it ended with other data, UNKNOWN if it has no call or another key.
        """

    async def close(self) -> None:
        """Finish what is being written."""


def check_id(session: str) -> None:
    """A Refusal for what is no id of a session."""
    if not session or len(session) > LONGEST_ID or not session.isprintable():
        form = f"1 to {LONGEST_ID} printable characters"
        raise Refusal(Cause.INVALID, f"session {session!r:.100}: its id must be {form}.", where="session")


def check_owner(session: str, owner: str, key: str | None) -> None:
    """Refusal UNKNOWN for the session of another key."""
    if key is not None and key != owner:
        raise no_session(session)


def no_session(session: str) -> Refusal:
    """The Refusal for a session that does not exist, or is another caller's."""
    return Refusal(Cause.UNKNOWN, f"session {session!r:.100} is unknown. A call under its id opens it.")


def has_ended(session: str) -> Refusal:
    """The Refusal for a session that has ended."""
    return Refusal(Cause.CONFLICT, f"session {session!r:.100} has ended. Begin another one under a new id.")


def ended_otherwise(session: str) -> Refusal:
    """The Refusal for a session that was completed with other data."""
    return Refusal(Cause.CONFLICT, f"session {session!r:.100} was already completed with other data, which stays.")


@dataclass(slots=True)
class _Open:
    """A session that goes on."""

    key: str
    endpoint: str
    threads: Threads = field(default_factory=Threads)
    calls: dict[str, Kept] = field(default_factory=dict)
    acts: list[Acts] = field(default_factory=list)


class Memory:
    """Sessions in this process, such as those of agents in a rollout."""

    def __init__(self, *, source: Source = Source.ROLLOUT, clock: Callable[[], float] = time.time) -> None:
        self._source = source
        self._clock = clock
        self._open: dict[str, _Open] = {}
        self._ended: OrderedDict[str, tuple[str, Ending]] = OrderedDict()
        self._made: OrderedDict[str, Trajectory] = OrderedDict()

    async def known(self, session: str, ask: Ask, *, key: str | None = None) -> Known | None:
        """As of `Recorder`."""
        there = self._find(session, key)
        found = there.threads.longest(ask) if there else None
        return None if found is None else found.known()

    async def takes(self, endpoint: str, ask: Ask | ActAsk) -> bool:
        """As of `Recorder`."""
        return ask.store

    async def session_of(self, key: str, ask: Ask) -> str | None:
        """As of `Recorder`."""
        for mark in answer_marks(ask):
            for session, there in self._open.items():
                if there.key == key and mark in there.threads.marked:
                    return session
        return None

    async def keep(self, call: Call) -> None:
        """As of `Recorder`; durable as this process is."""
        if not await self.takes(call.endpoint, call.ask):
            return
        there = self._opened(call)
        if call.id in there.calls:
            return
        parent = there.threads.named.get(call.parent)
        there.calls[call.id] = record = kept(call, parent)
        for answer in spoken(record, parent):
            there.threads.add(answer)

    async def keep_acts(self, new: NewActs) -> None:
        """As of `Recorder`; durable as this process is."""
        there = self._opened(new)
        if there.acts:
            check_form(new.session, form_of(there.acts[0].steps), new.acts.steps)
        there.acts.append(new.acts)

    async def complete(
        self,
        session: str,
        *,
        key: str | None = None,
        reward: float | None = None,
        success: float | None = None,
        outcome: Mapping[str, Any] | None = None,
    ) -> Trajectory:
        """As of `Recorder`; the trajectory is given again for the last sessions only."""
        ending = told(reward, success, outcome, at=self._clock())
        if session in self._ended:
            return self._again(session, key, ending)
        there = self._find(session, key)
        if there is None:
            raise no_session(session)
        about = Session(id=session, endpoint=there.endpoint, key=there.key, ending=ending)
        made = trajectory_of(about, list(there.calls.values()), there.acts, source=self._source)
        del self._open[session]
        _put(self._ended, session, (there.key, ending), TOMBSTONES)
        _put(self._made, session, made, REMEMBERED)
        return made

    async def close(self) -> None:
        """As of `Recorder`."""

    def _opened(self, new: Call | NewActs) -> _Open:
        there = self._find(new.session, new.key) or _Open(new.key, new.endpoint)
        if there.endpoint != new.endpoint:
            raise no_session(new.session)
        self._open[new.session] = there
        return there

    def _find(self, session: str, key: str | None) -> _Open | None:
        if session in self._ended:
            check_owner(session, self._ended[session][0], key)
            raise has_ended(session)
        there = self._open.get(session)
        if there is not None:
            check_owner(session, there.key, key)
        return there

    def _again(self, session: str, key: str | None, ending: Ending) -> Trajectory:
        owner, first = self._ended[session]
        check_owner(session, owner, key)
        if session not in self._made or not first.agrees(ending):
            raise ended_otherwise(session)
        return self._made[session]


def _put(held: OrderedDict[str, T], name: str, value: T, most: int) -> None:
    held[name] = value
    if len(held) > most:
        held.popitem(last=False)
