"""The sweeper: an endpoint's sessions end and become trajectories in its hub; old ones move to the archive, and end.

Each step is on record before it is taken: cut off anywhere, the next round finishes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loomrl.artifacts import Artifacts, locate, open_artifacts
from loomrl.errors import HubError
from loomrl.hub.codec import encode
from loomrl.hub.hub import Hub, Selection
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.feedback.signal import signals
from loomrl.serving.recording.record import SessionEnding
from loomrl.serving.recording.trajectory import on_record
from loomrl.serving.retention.archive import end_file, exists, ids_in, take_out, write_new
from loomrl.serving.retention.erasure import finish
from loomrl.store import LoomDB
from loomrl.store.archives import ArchiveFile, list_files, move_file
from loomrl.store.erasures import delete_judgements, erase_late, find_erased, purge_erasures
from loomrl.store.feedback import append_feedback
from loomrl.store.sessions import (
    StoredSession,
    end_idle,
    end_old,
    forget,
    forget_participants,
    list_ended_sessions,
    list_opted_out,
    mark_stored,
    people_in,
)
from loomrl.types import Feedback

log = redacted_logger(__name__)
DAY_S = 86_400.0
HOUR_S = 3_600.0
TOGETHER = 32
"""Sessions in one append."""
MOST = 10_000
"""Trajectories in one file; of long ones it holds fewer."""
FOLDER = "served"
"""The artifacts' folder for the files of all endpoints."""
STALE_S = 600.0
"""A file that is being written for longer is taken for cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTerms:
    """The times after which sessions end, and after which they and their trajectories move on."""

    idle_s: float = 900.0
    """Without a call for this long a session has ended. Longer than any call may take."""
    deadline_s: float = DAY_S
    """No session is open for longer."""
    days: float = 30.0
    """Sessions are deleted this long after their last call, and trajectories leave the hub for the archive: a day's
    worth at a time, so that files are few."""
    archive_days: float = 90.0
    """Time that trajectories stay in the archive."""


@dataclass(frozen=True, slots=True)
class SweptSessions:
    """One round: sessions that ended by time, became trajectories, and were deleted; feedback derived from them."""

    ended: int = 0
    stored: int = 0
    deleted: int = 0
    derived: int = 0


@dataclass(frozen=True, slots=True)
class SweptTrajectories:
    """One round: trajectories that became files, and those whose files were deleted."""

    archived: int = 0
    deleted: int = 0


class Sweeper:
    """Ages one endpoint's sessions and trajectories. Rounds may be interrupted, repeated, or run at the same time."""

    def __init__(
        self, db: LoomDB, hub: Hub, endpoint: str, *, terms: SweepTerms | None = None, artifact_url: str = "artifacts"
    ) -> None:
        self._db = db
        self._hub = hub
        self._endpoint = endpoint
        self._terms = terms or SweepTerms()
        self._artifact_url = artifact_url

    # -- sessions -------------------------------------------------------------------------------------------------

    def sweep_sessions(self, *, now: float) -> SweptSessions:
        """End what is idle or past its deadline, store what has ended, delete what is old."""
        terms = self._terms
        idle = SessionEnding(at=now, cause="idle").data()
        late = SessionEnding(at=now, cause="deadline").data()
        ended = end_idle(self._db, self._endpoint, idle, at=now, idle_s=terms.idle_s)
        ended += end_old(self._db, self._endpoint, late, at=now, age_s=terms.deadline_s)
        stored, derived = self._store()
        deleted = forget(self._db, self._endpoint, before=now - terms.days * DAY_S)
        return SweptSessions(ended, stored, deleted, derived)

    def _store(self) -> tuple[int, int]:
        stored = derived = 0
        while sessions := list_ended_sessions(self._db, self._endpoint, limit=TOGETHER):
            made = {session.id: self._convert(session) for session in sessions}
            self._hub.append([payload for payload, _ in made.values() if payload])
            derived += append_feedback(self._db, self._permit_feedback(made))
            mark_stored(self._db, {id: id if payload else "" for id, (payload, _) in made.items()})
            self._hub.delete(sorted(erase_late(self._db, list(made))))
            stored += sum(bool(payload) for payload, _ in made.values())
        return stored, derived

    def _convert(self, session: StoredSession) -> tuple[bytes, Sequence[Feedback]]:
        """The session's trajectory and the feedback that can be derived from it.

        Nothing if it has no trajectory, so that one damaged record does not stop the others.
        """
        try:
            recorded = on_record(self._db, session)
            return encode(recorded.trajectory()), signals(recorded.about, recorded.calls)
        except (HubError, ValueError) as error:
            log.error("session %s becomes no trajectory: %s", session.id, error)
            return b"", ()

    def _permit_feedback(self, made: Mapping[str, tuple[bytes, Sequence[Feedback]]]) -> list[Feedback]:
        """The derived feedback, without that of people who opted out."""
        if not any(found for _, found in made.values()):
            return []
        out = list_opted_out(self._db)
        people = people_in(self._db, list(made))
        return [one for id, (_, found) in made.items() if not people.get(id, set()) & out for one in found]

    # -- trajectories ---------------------------------------------------------------------------------------------

    def sweep_trajectories(self, *, now: float) -> SweptTrajectories:
        """Finish deletions and files that were cut off, archive what is old, delete what is older."""
        finish(self._db, self._hub, self._endpoint, at=now)
        self._settle(now)
        purge_erasures(self._db, self._endpoint, before=now - HOUR_S)
        return SweptTrajectories(self._move(now), self._delete(now))

    def _artifacts(self) -> Artifacts:
        artifacts, _ = locate(open_artifacts(self._artifact_url).url_of(f"{FOLDER}/any"))
        return artifacts

    def _settle(self, now: float) -> None:
        for file in list_files(self._db, self._endpoint):
            if file.state == "leaving":
                end_file(self._db, file)
            elif file.state == "writing" and file.created_at < now - STALE_S:
                if exists(file.url):
                    self._keep(file, now)
                else:
                    end_file(self._db, file)

    def _move(self, now: float) -> int:
        moved = 0
        hot_s = self._terms.days * DAY_S
        step_s = min(DAY_S, hot_s)
        old = Selection(stored=(None, (now - hot_s) // step_s * step_s))
        while page := [one for _, one in self._hub.read(limit=MOST, selection=old)]:
            self._keep(write_new(self._db, self._endpoint, self._artifacts(), page, now=now), now)
            moved += len(page)
        return moved

    def _keep(self, file: ArchiveFile, now: float) -> None:
        """Take the trajectories of a complete file out of the hub; and those that were erased meanwhile, out of it."""
        ids = ids_in(file.url)
        self._hub.delete(ids)
        if gone := find_erased(self._db, ids):
            take_out(self._db, file, gone, now=now)
            return
        with self._db.write() as connection:
            move_file(connection, file.id, "kept")

    def _delete(self, now: float) -> int:
        """Delete the files that are too old, and all that points at their trajectories."""
        deleted = 0
        before = now - (self._terms.days + self._terms.archive_days) * DAY_S
        for file in list_files(self._db, self._endpoint, until=before):
            if file.state != "kept" or file.last_at >= before:
                continue
            ids = ids_in(file.url) if exists(file.url) else []
            with self._db.write() as connection:
                delete_judgements(connection, ids)
                forget_participants(connection, ids)
                move_file(connection, file.id, "leaving")
            end_file(self._db, file)
            deleted += len(ids)
        return deleted
