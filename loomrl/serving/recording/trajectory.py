"""A session as one trajectory: its calls become threads, in which every sampled token is learnt once.

The first continuation of an answer extends its thread. Later ones, and further choices of a call, fork it: they begin
with the same ids, none of them to be learnt again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loomrl.gym.base import CORRECT
from loomrl.serving.call import ChatMessage, Drawing
from loomrl.serving.recording.acts import RecordedActs, are_acts, decode_acts, join_steps
from loomrl.serving.recording.payload import decode
from loomrl.serving.recording.record import RecordedCall, SessionEnding, Words
from loomrl.serving.wording import to_messages
from loomrl.store import LoomDB
from loomrl.store.sessions import StoredSession, read_calls
from loomrl.types import NO_VERSION, End, Message, Reward, Source, Task, Tokens, Trajectory, Turn

Ids = NDArray[np.int32]
FAMILY = "session"
NOTHING = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedSession:
    """A session that has ended."""

    id: str
    endpoint: str
    key: str = ""
    ending: SessionEnding


@dataclass(slots=True, eq=False)
class _TurnThread:
    turns: list[Turn] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class _Tip:
    """An answer, the thread that it is in, and all before it: messages, and ids unless they are lost."""

    thread: _TurnThread
    number: int
    """The answer's turn in its thread."""
    messages: tuple[Message, ...]
    ids_T: Ids | None

    @property
    def is_last(self) -> bool:
        """True if nothing continues it in its thread."""
        return self.number == len(self.thread.turns) - 1


def trajectory_of(
    session: EndedSession,
    calls: Sequence[RecordedCall],
    acts: Sequence[RecordedActs] = (),
    *,
    source: Source = Source.PRODUCTION,
) -> Trajectory:
    """The trajectory of an ended session from its calls and acts, as they were kept; at least one."""
    if not acts:
        return _trajectory_of_calls(session, calls, source)
    acted = _trajectory_of_acts(session, acts, source)
    return replace(_trajectory_of_calls(session, calls, source), steps=acted.steps) if calls else acted


def _trajectory_of_acts(session: EndedSession, acts: Sequence[RecordedActs], source: Source) -> Trajectory:
    """The trajectory of a session in which a control policy acted; ValueError if its steps are no one sequence."""
    ending = session.ending
    steps = join_steps([one.steps for one in acts])
    arms, versions = ([getattr(one, name) for one in acts] for name in ("arm", "version"))
    return Trajectory(
        id=session.id,
        task=Task(session.endpoint, versions[0], FAMILY, 1, 0),
        turns=(),
        end=_end(ending),
        reward=_reward(ending),
        group=session.id,
        first_version=int(steps.versions_T.min()),
        last_version=int(steps.versions_T.max()),
        source=source,
        started_at=float(steps.times_T[0]),
        finished_at=float(steps.times_T[-1]),
        extra=_extra(session, arms, versions, {}),
        steps=steps,
    )


def _trajectory_of_calls(session: EndedSession, calls: Sequence[RecordedCall], source: Source) -> Trajectory:
    threads = _threads(calls)
    ending = session.ending
    reward = _reward(ending)
    first, *further = [tuple(thread.turns) for thread in threads]
    first = (*first[:-1], replace(first[-1], reward=reward))
    drawn = [turn.tokens.versions_T[turn.tokens.mask_T] for turns in (first, *further) for turn in turns if turn.tokens]
    versions = np.concatenate([*drawn, NOTHING])
    records = [call.record for call in calls]
    return Trajectory(
        id=session.id,
        task=Task(session.endpoint, records[0].version, FAMILY, 1, 0),
        turns=first,
        end=_end(ending),
        reward=reward,
        group=session.id,
        first_version=int(versions.min()) if versions.size else NO_VERSION,
        last_version=int(versions.max()) if versions.size else NO_VERSION,
        source=source,
        started_at=min(record.started_at for record in records),
        finished_at=max(record.finished_at for record in records),
        extra=_extra(
            session,
            [record.arm for record in records],
            [record.version for record in records],
            {
                "calls": [thread.names for thread in threads],
                "seconds": round(sum(record.finished_at - record.started_at for record in records), 6),
                "stopped": {f"{r.id}/{one.index}": one.rule for r in records for one in r.choices if one.rule},
                "drawn": callers_sampling([record.drawing for record in records]),
            },
        ),
        threads=tuple(further),
    )


def callers_sampling(drawings: Sequence[Drawing]) -> list[dict[str, float]]:
    """The settings of sampling that callers gave in place of the policy's own, each kind once."""
    found: list[dict[str, float]] = []
    for one in drawings:
        asked = {"temperature": one.temperature, "top_p": one.top_p}
        given = {name: value for name, value in asked.items() if value is not None and (name, value) != ("top_p", 1)}
        if given not in found:
            found.append(given)
    return found


def _threads(calls: Sequence[RecordedCall]) -> list[_TurnThread]:
    threads: list[_TurnThread] = []
    tips: dict[str, _Tip] = {}
    for call in calls:
        parent = tips.get(call.record.parent)
        for at, words in enumerate(call.record.choices):
            tip = _add_turn(call, at, parent)
            if tip.number == 0:
                threads.append(tip.thread)
            tips[f"{call.record.id}/{words.index}"] = tip
    return threads


def _add_turn(call: RecordedCall, at: int, parent: _Tip | None) -> _Tip:
    """The next turn of the parent's thread; or, if that goes on already, the first turn of a new one."""
    extends = parent is not None and parent.is_last
    thread = parent.thread if parent is not None and extends else _TurnThread()
    before: tuple[Message, ...] = () if parent is None else parent.messages
    before_T = _first(call) if parent is None else parent.ids_T
    new = _new(call)
    words = call.record.choices[at]
    tokens = ids_T = None
    if before_T is not None and not call.lost:
        opened_T = call.opened_T(at)
        drawn = call.columns[at]
        ids_T = np.concatenate([before_T, opened_T, drawn.ids_T])
        shown_T = opened_T if extends else np.concatenate([before_T, opened_T])
        tokens = Tokens.sampled(shown_T, drawn.ids_T, drawn.logprobs_T, drawn.versions_T, shifts_T=drawn.shifts_T)
    action = call.record.prefill + _action(words)
    thread.turns.append(Turn(new if extends else (*before, *new), action, tokens=tokens))
    thread.names.append(f"{call.record.id}/{words.index}")
    return _Tip(thread, len(thread.turns) - 1, (*before, *new, Message("assistant", action)), ids_T)


def _first(call: RecordedCall) -> Ids | None:
    """The ids before a call without a parent: lost, if it had one that is not on record."""
    return None if call.record.parent else NOTHING


def _new(call: RecordedCall) -> tuple[Message, ...]:
    record = call.record
    if isinstance(record.prompt, str):
        return (Message("user", record.prompt),)
    return to_messages(record.messages, record.tools, tool_role=True)


def _action(words: Words) -> str:
    """An answer as the policy writes it."""
    (message,) = to_messages([ChatMessage(role="assistant", text=words.text, calls=words.calls)], tool_role=True)
    return message.content


def _end(ending: SessionEnding) -> End:
    return End.TERMINATED if ending.cause == "told" else End.TRUNCATED


def _reward(ending: SessionEnding) -> Reward:
    parts = {} if ending.reward is None else {"outcome": ending.reward}
    return Reward(ending.reward or 0.0, parts, ending.success or 0.0)


def _extra(
    session: EndedSession, arms: Sequence[str], versions: Sequence[str], more: Mapping[str, Any]
) -> dict[str, Any]:
    """The origin of a trajectory: how it ended, and which calls its turns are."""
    ending = session.ending
    return {
        "session": {
            "key": session.key,
            "ended": ending.cause,
            "judged": ending.reward is not None or ending.success is not None,
            "success": ending.success,
            "outcome": dict(ending.outcome),
            "arms": sorted(set(arms)),
            "versions": sorted(set(versions)),
            **more,
        },
        **({} if ending.correct is None else {CORRECT: ending.correct}),
    }


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """The record of a session that has ended."""

    about: EndedSession
    calls: Sequence[RecordedCall]
    acts: Sequence[RecordedActs]

    def trajectory(self) -> Trajectory:
        """The session's trajectory: the same each time, on every machine."""
        return trajectory_of(self.about, self.calls, self.acts, source=Source.PRODUCTION)


def trajectory_on_record(db: LoomDB, session: StoredSession) -> Trajectory:
    """The trajectory of an ended session: the same each time, on every machine."""
    return on_record(db, session).trajectory()


def on_record(db: LoomDB, session: StoredSession) -> SessionRecord:
    """All that is on record of an ended session."""
    _, rows = read_calls(db, session.id)
    about = EndedSession(id=session.id, endpoint=session.endpoint, key=session.key, ending=ending_of(session))
    calls = [decode(row.payload, row.columns) for row in rows if not are_acts(row.payload)]
    acts = [decode_acts(row.payload) for row in rows if are_acts(row.payload)]
    return SessionRecord(about, calls, acts)


def ending_of(session: StoredSession) -> SessionEnding:
    """The way a session ended."""
    assert session.ending is not None, "it has ended"
    assert session.ended_at is not None, "it has ended"
    return SessionEnding(at=session.ended_at, **session.ending)
