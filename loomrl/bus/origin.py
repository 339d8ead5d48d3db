"""The name by which a LoomDB's own events are known on the bus."""

import uuid

from loomrl.store import LoomDB
from loomrl.store.erasures import ORIGIN
from loomrl.store.notes import Notes

STORE = "Loomrl-Store"
"""Header of our own events: the LoomDB that they come from, so that it does not take them in."""


def origin_of(db: LoomDB) -> str:
    """The id of a LoomDB, made when somebody first asks."""
    return Notes(db).keep_first(ORIGIN, uuid.uuid4().hex)
