"""The event log in commit order. Append-only, enforced by the database itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select

from loomrl.store.db import LoomDB
from loomrl.store.log import Log, Source, scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event: `kind` is a dotted verb (`run.started`), `subject` the id of its object."""

    kind: str
    subject: str
    data: Mapping[str, Any] = field(default_factory=dict)
    created_at: float


class EventLog(Log[Event]):
    """The events of a LoomDB."""

    def append_once(self, db: LoomDB, event: Event) -> bool:
        """Store an event unless there is one of its kind about its subject."""
        with db.write() as connection:
            if self.last(connection, kind=event.kind, subject=event.subject):
                return False
            self.append(connection, [event])
        return True

    def recent(
        self, source: Source, *, before: int | None = None, limit: int = 50, kind: str | None = None, **equal: Any
    ) -> list[tuple[int, Event]]:
        """The next events older than a position, newest first. A kind such as `run` stands for all that begin so."""
        query = self.select(**equal).order_by(self.c.position.desc()).limit(limit)
        if before is not None:
            query = query.where(self.c.position < before)
        if kind is not None:
            query = query.where(self.c.kind == kind if "." in kind else self.c.kind.between(f"{kind}.", f"{kind}/"))
        return self.numbered(source, query)

    def kinds(self, db: LoomDB) -> list[str]:
        """The kinds on record, found one by one along their index."""
        found: list[str] = []
        after = scalar(db, select(func.min(self.c.kind)))
        while after is not None and len(found) < 200:
            found.append(after)
            after = scalar(db, select(func.min(self.c.kind)).where(self.c.kind > after))
        return found


EVENTS = EventLog("events", Event, key=(), index=("kind", "subject"))


def record(connection: Connection, kind: str, subject: str, data: Mapping[str, Any], *, at: float) -> None:
    """Store an event in the transaction of its subject, so that neither exists without the other."""
    EVENTS.insert(connection, [Event(kind=kind, subject=subject, data=data, created_at=at)])
