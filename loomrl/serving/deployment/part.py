"""Parts of a service that others find in LoomDB: a row with a heartbeat, which is deleted when they end in order."""

import asyncio
import os
import socket
import uuid
from contextlib import AsyncExitStack
from dataclasses import replace

from loomrl.errors import StoreError
from loomrl.observability.trace import flush
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.deployment.reconcile import GLANCE_S
from loomrl.serving.deployment.station import Station
from loomrl.serving.repeat import again, cancel_task
from loomrl.store import LoomDB, open_store
from loomrl.store.replicas import BEAT_S, Replica, ReplicaRole, ReplicaState, beat, leave

log = redacted_logger(__name__)
SEEN_S = 6 * GLANCE_S
"""Time until every gateway has seen that a replica drains, and the front that a gateway does."""


class Presence:
    """A row in LoomDB with a heartbeat. LoomDB may be unreachable for a while."""

    def __init__(self, db: LoomDB, row: Replica) -> None:
        self._db = db
        self.row = row
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Add the row, and begin the heartbeat."""
        self.row = await asyncio.to_thread(beat, self._db, self.row)
        self._task = asyncio.create_task(again(self._beat, 0.0))

    async def change(self, *, version: str | None = None, state: ReplicaState | None = None) -> None:
        """Write a change at once."""
        self.row = replace(self.row, version=version or self.row.version, state=state or self.row.state)
        self.row = await asyncio.to_thread(beat, self._db, self.row)

    async def drain(self) -> None:
        """Get no new calls from now on."""
        await self.change(state=ReplicaState.DRAINING)
        await asyncio.sleep(SEEN_S)

    async def end(self) -> None:
        """Delete the row."""
        await cancel_task(self._task)
        try:
            await asyncio.to_thread(leave, self._db, self.row.id)
        except StoreError as error:
            log.warning("The row of this process stays until its heartbeat is too old: %s", error)

    async def _beat(self) -> None:
        await asyncio.sleep(BEAT_S)
        await asyncio.to_thread(beat, self._db, self.row)


class ServicePart:
    """The base of a service's processes and of the policies in them. What `start` opens is closed by `stop`, in the
    opposite order.
    """

    def __init__(self, station: Station) -> None:
        self._station = station
        self._stack = AsyncExitStack()

    async def stop(self) -> None:
        """Take nothing new, finish what is open, and end."""
        await self._stack.aclose()

    async def _open_store(self) -> LoomDB:
        opened = await asyncio.to_thread(open_store, self._station.experiment.store_url)
        db = self._stack.enter_context(opened)
        self._stack.push_async_callback(asyncio.to_thread, flush)
        return db

    def _present(
        self, db: LoomDB, role: ReplicaRole, address: str, *, policy: str = "", version: str = "", error: str = ""
    ) -> Presence:
        """A row of this process, which is deleted at the end; still to be added."""
        row = Replica(
            id=uuid.uuid4().hex,
            role=role,
            policy=policy,
            version=version,
            endpoint=self._station.experiment.endpoint,
            address=address,
            node=socket.gethostname(),
            pid=os.getpid(),
            state=ReplicaState.FAILED if error else ReplicaState.READY,
            error=error,
        )
        presence = Presence(db, row)
        self._stack.push_async_callback(presence.end)
        return presence
