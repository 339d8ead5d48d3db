"""Ended sessions become trajectories in the endpoint's hub; old ones are deleted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loomrl.config import HubConfig
from loomrl.errors import HubError
from loomrl.hub.codec import encode
from loomrl.hub.hub import Hub
from loomrl.hub.open import open_hub
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.feedback.signal import signals
from loomrl.serving.recording.acts import Acts, are_acts, decode_acts
from loomrl.serving.recording.payload import decode
from loomrl.serving.recording.record import Ending, Kept
from loomrl.serving.recording.trajectory import Session, trajectory_of
from loomrl.store import LoomDB, beside
from loomrl.store.erasures import erase_late
from loomrl.store.feedback import append_feedback
from loomrl.store.sessions import (
    StoredSession,
    archive_sessions,
    end_idle,
    end_old,
    forget,
    list_ended_sessions,
    list_opted_out,
    people_in,
    read_calls,
)
from loomrl.types import Feedback, Source, Trajectory

log = redacted_logger(__name__)
DAY_S = 86_400.0
TOGETHER = 32
"""Sessions in one append."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The times after which sessions end and are deleted."""

    idle_s: float = 900.0
    """Without a call for this long a session has ended. Longer than any call may take."""
    deadline_s: float = DAY_S
    """No session is open for longer."""
    days: float = 30.0
    """Sessions and their calls are deleted this long after their last call. Their trajectories are elsewhere then."""


@dataclass(frozen=True, slots=True)
class Archived:
    """One round: sessions that ended by time, became trajectories, and were deleted; feedback derived from them."""

    ended: int = 0
    stored: int = 0
    deleted: int = 0
    derived: int = 0


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is on record of a session that has ended."""

    about: Session
    calls: Sequence[Kept]
    acts: Sequence[Acts]

    def trajectory(self) -> Trajectory:
        """What it becomes: the same each time, on every machine."""
        return trajectory_of(self.about, self.calls, self.acts, source=Source.PRODUCTION)


def open_endpoint_hub(url: str, endpoint: str, settings: HubConfig) -> Hub:
    """The endpoint's own hub: a LoomDB beside the one behind `url`."""
    return open_hub(beside(url, f"endpoint-{endpoint}"), settings)


class Archive:
    """Moves an endpoint's sessions into its hub. Rounds may be interrupted, repeated, or run at the same time."""

    def __init__(self, db: LoomDB, hub: Hub, endpoint: str, *, terms: Terms | None = None) -> None:
        self._db = db
        self._hub = hub
        self._endpoint = endpoint
        self._terms = terms or Terms()

    def sweep(self, *, now: float) -> Archived:
        """End what is idle or past its deadline, store what has ended, delete what is old."""
        terms = self._terms
        idle = Ending(at=now, cause="idle").data()
        late = Ending(at=now, cause="deadline").data()
        ended = end_idle(self._db, self._endpoint, idle, at=now, idle_s=terms.idle_s)
        ended += end_old(self._db, self._endpoint, late, at=now, age_s=terms.deadline_s)
        stored, derived = self._store()
        deleted = forget(self._db, self._endpoint, before=now - terms.days * DAY_S)
        return Archived(ended, stored, deleted, derived)

    def _store(self) -> tuple[int, int]:
        stored = derived = 0
        while sessions := list_ended_sessions(self._db, self._endpoint, limit=TOGETHER):
            made = {session.id: self._made(session) for session in sessions}
            self._hub.append([payload for payload, _ in made.values() if payload])
            derived += append_feedback(self._db, self._derived(made))
            archive_sessions(self._db, {id: id if payload else "" for id, (payload, _) in made.items()})
            self._hub.delete(sorted(erase_late(self._db, list(made))))
            stored += sum(bool(payload) for payload, _ in made.values())
        return stored, derived

    def _made(self, session: StoredSession) -> tuple[bytes, Sequence[Feedback]]:
        """The session's trajectory and the feedback that can be derived from it.

        Nothing if it has no trajectory, so that one damaged record does not stop the others.
        """
        try:
            recorded = on_record(self._db, session)
            return encode(recorded.trajectory()), signals(recorded.about, recorded.calls)
        except (HubError, ValueError) as error:
            log.error("session %s becomes no trajectory: %s", session.id, error)
            return b"", ()

    def _derived(self, made: Mapping[str, tuple[bytes, Sequence[Feedback]]]) -> list[Feedback]:
        """The derived feedback, without that of people who opted out."""
        if not any(found for _, found in made.values()):
            return []
        out = list_opted_out(self._db)
        people = people_in(self._db, list(made))
        return [one for id, (_, found) in made.items() if not people.get(id, set()) & out for one in found]


def trajectory_on_record(db: LoomDB, session: StoredSession) -> Trajectory:
    """The trajectory of an ended session: the same each time, on every machine."""
    return on_record(db, session).trajectory()


def on_record(db: LoomDB, session: StoredSession) -> Recorded:
    """All that is on record of an ended session."""
    _, rows = read_calls(db, session.id)
    about = Session(id=session.id, endpoint=session.endpoint, key=session.key, ending=ending_of(session))
    calls = [decode(row.payload, row.columns) for row in rows if not are_acts(row.payload)]
    acts = [decode_acts(row.payload) for row in rows if are_acts(row.payload)]
    return Recorded(about, calls, acts)


def ending_of(session: StoredSession) -> Ending:
    """The way a session ended."""
    assert session.ending is not None, "it has ended"
    assert session.ended_at is not None, "it has ended"
    return Ending(at=session.ended_at, **session.ending)
