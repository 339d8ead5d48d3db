"""The hubs of training RUNS, which lie beside the LoomDB that has the RUNS on record."""

import re
from collections.abc import Sequence

from sqlalchemy import select

from loomrl.store.db import LoomDB
from loomrl.store.runs import RUNS, RunStatus

_SHARD = re.compile(r"-\d+$")


def run_hubs(db: LoomDB, names: Sequence[str]) -> dict[str, bool]:
    """Of these LoomDBs beside, those that are hubs of RUNS → whether the run is going on. Each shard is one."""
    with db.read() as connection:
        going = {id: status == RunStatus.RUNNING for id, status in connection.execute(select(RUNS.c.id, RUNS.c.status))}
    found = {name: name if name in going else _SHARD.sub("", name) for name in names}
    return {name: going[run] for name, run in found.items() if run in going}
