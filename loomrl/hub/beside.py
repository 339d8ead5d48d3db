"""The hubs of training runs, which lie beside the LoomDB that has the runs on record."""

import re

from sqlalchemy import select

from loomrl.store.db import LoomDB, neighbours
from loomrl.store.runs import RunStatus
from loomrl.store.tables import runs

_SHARD = re.compile(r"-\d+$")


def run_hubs(db: LoomDB, url: str) -> dict[str, bool]:
    """Name of the LoomDB beside → whether its run is going on. A hub with shards has a LoomDB for each of them."""
    with db.read() as connection:
        going = {id: status == RunStatus.RUNNING for id, status in connection.execute(select(runs.c.id, runs.c.status))}
    found = {name: name if name in going else _SHARD.sub("", name) for name in neighbours(url)}
    return {name: going[run] for name, run in found.items() if run in going}
