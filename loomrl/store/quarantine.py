"""Sessions in quarantine: their further calls are refused until somebody frees them. On record as events."""

from dataclasses import dataclass

from loomrl.store.db import LoomDB
from loomrl.store.events import Event, append_events, read_events

KIND = "session.quarantine"
PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A session taken into quarantine by a rule, or freed by a person."""

    endpoint: str
    session: str
    held: bool
    rule: str = ""
    who: str = ""
    at: float


def record_quarantine(db: LoomDB, change: Quarantine) -> None:
    """Put it on record; gateways follow within a second."""
    data = {"endpoint": change.endpoint, "held": change.held, "rule": change.rule, "who": change.who}
    append_events(db, [Event(kind=KIND, subject=change.session, data=data, created_at=change.at)])


def read_quarantine(db: LoomDB, *, after: int = 0) -> list[tuple[int, Quarantine]]:
    """The next changes past a position, oldest first."""
    return [
        (position, Quarantine(session=event.subject, at=event.created_at, **event.data))
        for position, event in read_events(db, after=after, limit=PAGE, kind=KIND)
    ]


def quarantined(db: LoomDB, *, endpoint: str = "") -> list[Quarantine]:
    """The sessions in quarantine now, oldest first."""
    there: dict[tuple[str, str], Quarantine] = {}
    after = 0
    while changes := read_quarantine(db, after=after):
        after = changes[-1][0]
        for _, change in changes:
            there.pop((change.endpoint, change.session), None)
            if change.held and endpoint in ("", change.endpoint):
                there[change.endpoint, change.session] = change
    return list(there.values())
