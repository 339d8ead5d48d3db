"""The hubs of training runs, which lie beside the LoomDB that has the runs on record."""

import re
from collections.abc import Sequence

from sqlalchemy import select

from loomrl.store.db import LoomDB
from loomrl.store.runs import RunStatus
from loomrl.store.tables import runs

_SHARD = re.compile(r"-\d+$")


def run_hubs(db: LoomDB, names: Sequence[str]) -> dict[str, bool]:
    """Of these LoomDBs beside, those that are hubs of runs → whether the run is going on. Each shard is one."""
    with db.read() as connection:
        going = {id: status == RunStatus.RUNNING for id, status in connection.execute(select(runs.c.id, runs.c.status))}
    found = {name: name if name in going else _SHARD.sub("", name) for name in names}
    return {name: going[run] for name, run in found.items() if run in going}
