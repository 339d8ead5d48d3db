"""The names by which a LoomDB's own events are known, on the bus and everywhere else."""

import uuid

from loomrl.store import LoomDB
from loomrl.store.notes import Notes

STORE = "Loomrl-Store"
"""Header of our own events: the LoomDB that they come from, so that it does not take them in."""
NAMESPACE = uuid.UUID("5d0c7a0e-6f2b-4b57-9d5e-8d3c1c6a9b41")


def origin_of(db: LoomDB) -> str:
    """The id of a LoomDB, made when somebody first asks."""
    return Notes(db).keep_first("bus/origin", uuid.uuid4().hex)


def uuid_of(id: str) -> str:
    """An id as a UUID: itself if it is one, else always the same one."""
    try:
        return str(uuid.UUID(id))
    except ValueError:
        return str(uuid.uuid5(NAMESPACE, id))
