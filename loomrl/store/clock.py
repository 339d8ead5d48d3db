"""The time of a LoomDB: PostgreSQL's own, or this machine's for an SQLite file."""

import time

from sqlalchemy import Connection, text

from loomrl.errors import StoreError
from loomrl.store.db import LoomDB

APART_S = 5.0
"""Leases, schedules and windows are written with the clocks of several hosts, and compared."""


def now(db: LoomDB, connection: Connection) -> float:
    """Seconds since 1970, by the database."""
    if db.is_sqlite:  # one machine
        return time.time()
    return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())


def refuse_other_time(db: LoomDB) -> None:
    """A StoreError if this host's clock and the database's are apart by more than their question's time explains."""
    if db.is_sqlite:
        return
    with db.read() as connection:
        before = time.time()
        theirs = now(db, connection)
        after = time.time()
    apart = max(theirs - after, before - theirs)
    if apart > APART_S:
        side = "behind" if theirs > after else "ahead of"
        raise StoreError(
            f"{db.location}: the clock of this host is {apart:,.0f} s {side} the database's, and leases would be taken "
            f"for over, or for alive, that are not. At most {APART_S:g} s: set it by NTP, here or there (chronyc "
            "makestep)."
        )
