"""Numbers of placeholders: which value of a session has which one is known by a keyed hash, whose key is not here."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import insert, select

from loomrl.store.db import LoomDB
from loomrl.store.tables import placeholders


@dataclass(frozen=True, slots=True)
class Wanted:
    """The values of a session that need a number, by their hashes, and the numbers that its texts have already."""

    values: Mapping[bytes, str] = field(default_factory=dict)
    """Hash → kind."""
    taken: Mapping[str, int] = field(default_factory=dict)
    """Kind → the highest number in a text that came with placeholders in it."""


def number_values(db: LoomDB, wanted: Mapping[str, Wanted]) -> dict[tuple[str, bytes], tuple[str, int]]:
    """The kind and number of each value, by session and hash: as before, or the next of its kind in the session."""
    with db.write() as connection:
        query = select(placeholders).where(placeholders.c.session.in_(list(wanted)))
        known = {(row.session, bytes(row.hash)): (row.kind, row.number) for row in connection.execute(query)}
        last: dict[tuple[str, str], int] = {}
        for (session, _), (kind, number) in known.items():
            last[session, kind] = max(last.get((session, kind), 0), number)
        new = []
        for session, one in wanted.items():
            for hash, kind in one.values.items():
                if (session, hash) in known:
                    continue
                number = max(last.get((session, kind), 0), one.taken.get(kind, 0)) + 1
                last[session, kind] = number
                known[session, hash] = (kind, number)
                new.append({"session": session, "hash": hash, "kind": kind, "number": number})
        if new:
            connection.execute(insert(placeholders), new)
    return known
