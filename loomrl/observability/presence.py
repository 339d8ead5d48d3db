"""A process's row in LoomDB while it runs, so that others know that it is there, and where to scrape it."""

import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from loomrl.errors import StoreError
from loomrl.store import LoomDB
from loomrl.store.replicas import BEAT_S, Replica, ReplicaRole, ReplicaState, beat, bury, leave

log = logging.getLogger(__name__)


@contextmanager
def present(db: LoomDB, role: ReplicaRole, *, address: str = "", endpoint: str = "", run: str = "") -> Iterator[None]:
    """Be on record with a heartbeat until the context ends. LoomDB may be unreachable for a while."""
    row = Replica(
        id=uuid.uuid4().hex,
        role=role,
        policy=run,
        endpoint=endpoint,
        address=address,
        node=socket.gethostname(),
        pid=os.getpid(),
        state=ReplicaState.READY,
    )
    bury(db)
    row = beat(db, row)
    over = threading.Event()

    def keep_beating() -> None:
        while not over.wait(BEAT_S):
            try:
                beat(db, row)
            except StoreError as error:
                log.warning("LoomDB does not take the heartbeat: %s", error)

    thread = threading.Thread(target=keep_beating, name="presence", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with suppress(StoreError):
            leave(db, row.id)
