"""The process of an engine: one policy on a channel, or all that are additions to one base, each on a channel of its
own.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from functools import partial

from loomrl.errors import LoomError
from loomrl.inference.engine import Engine
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.channel.server import ChannelServer
from loomrl.serving.deployment.follow import Following
from loomrl.serving.deployment.opening import open_adapter_policy, open_language_engine, open_policy
from loomrl.serving.deployment.part import ServicePart
from loomrl.serving.deployment.source import SHARED, fetch, fetch_adapter, source_of
from loomrl.serving.deployment.station import LOOK_S, EndpointEngines, Spare, Station
from loomrl.serving.policy import ServedPolicy
from loomrl.serving.repeat import again, cancel_task
from loomrl.store import LoomDB
from loomrl.store.replicas import ReplicaRole

log = redacted_logger(__name__)
GRACE_S = 8.0
"""Time for open calls of a process that ends."""
RETRY_S = 5.0
"""Pause before a policy that could not be opened is tried again; doubled each time."""
LONGEST_RETRY_S = 300.0


class PolicyChannel(ServicePart):
    """A policy on a channel, and its row in LoomDB."""

    def __init__(self, station: Station, key: str, policy: ServedPolicy, db: LoomDB) -> None:
        super().__init__(station)
        self._key = key
        self._policy = policy
        self._db = db
        self._server = ChannelServer(policy, token=station.token)
        self.grace_s = GRACE_S
        """Time for open calls once it ends."""

    @property
    def calls(self) -> int:
        """Open calls."""
        return len(self._server.tasks)

    def at_end(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do this after the last call; to be said before `start`."""
        self._stack.push_async_callback(work)

    async def start(self) -> None:
        """Listen, and be announced."""
        server = self._server
        policy = self._policy
        address = await server.start(self._station.host)
        version = policy.about.version
        presence = self._present(self._db, ReplicaRole.POLICY, address, policy=self._key, version=version)
        self._stack.push_async_callback(self._close_server)
        await presence.start()
        self._stack.push_async_callback(presence.drain)

        async def announce() -> None:
            """Tell the gateways and LoomDB that another version was loaded."""
            server.announce()
            await presence.change(version=policy.about.version)

        if isinstance(policy, Following):
            self._stack.push_async_callback(cancel_task, asyncio.create_task(policy.follow(announce)))

    async def _close_server(self) -> None:
        await self._server.close(grace_s=self.grace_s)


class FailedPolicy(ServicePart):
    """The row of a policy that could not be opened."""

    def __init__(self, station: Station, key: str, error: str, *, wait_s: float) -> None:
        super().__init__(station)
        self._key = key
        self._error = error
        self.wait_s = wait_s
        self.retry_at = time.monotonic() + wait_s

    async def start(self, db: LoomDB) -> None:
        """Put it on record."""
        await self._present(db, ReplicaRole.POLICY, "", policy=self._key, error=self._error).start()


class SharedEngine(ServicePart):
    """An engine with a base, and as its adapters all policies of an endpoint's arms that are additions to this base.

    A policy that cannot be opened has a row that says why, and is tried again; the others go on.
    """

    def __init__(self, station: Station, name: str, db: LoomDB) -> None:
        super().__init__(station)
        self._name = name
        self._db = db
        self._needs = EndpointEngines(station.experiment, db)
        self._engine: Engine | None = None
        """None before the first adapter, with which the base comes."""
        self._numbers = itertools.count(1)
        self._spare = Spare()
        self._closing: set[asyncio.Task[None]] = set()
        self._failed: dict[str, FailedPolicy] = {}
        self.channels: dict[str, PolicyChannel] = {}
        """Those that take new calls, by the key of the policy."""

    async def start(self) -> None:
        """Open all policies that are needed, and follow the endpoint."""
        self._stack.push_async_callback(self._close)
        await self.look()
        self._stack.push_async_callback(cancel_task, asyncio.create_task(again(self._look_later, 0.0)))

    async def look(self) -> None:
        """Open the policies that the endpoint needs now, and close those that no arm has named for a while."""
        needed = await asyncio.to_thread(self._needs.read)
        if needed is None:
            return
        wanted = needed.get(self._name, [])
        for key in self._spare.over(self.channels.keys() - set(wanted)):
            # its calls may take as long as the gateways let them; its neighbours do not wait
            channel = self.channels.pop(key)
            channel.grace_s = self._station.experiment.gateways.deadline_s
            task = asyncio.create_task(channel.stop())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        for key in self._failed.keys() - set(wanted):
            await self._failed.pop(key).stop()
        for key in wanted:
            failed = self._failed.get(key)
            if key not in self.channels and (failed is None or failed.retry_at <= time.monotonic()):
                await self._add(key)

    async def _look_later(self) -> None:
        await asyncio.sleep(LOOK_S)
        await self.look()

    async def _add(self, key: str) -> None:
        """Open a policy; an error is on record in its row until it is open."""
        failed = self._failed.pop(key, None)
        try:
            self.channels[key] = await self._open(key)
        except Exception as error:  # noqa: BLE001 - the boundary between policies
            wait_s = RETRY_S if failed is None else min(LONGEST_RETRY_S, 2 * failed.wait_s)
            said = str(error) if isinstance(error, LoomError) else f"{type(error).__name__}: {error}"
            line = " ".join(said.split())
            log.error("%s cannot be served, and is tried again in %.0f s: %s", key, wait_s, line)
            self._failed[key] = FailedPolicy(self._station, key, line, wait_s=wait_s)
            await self._failed[key].start(self._db)
        if failed is not None:
            await failed.stop()

    async def _open(self, key: str) -> PolicyChannel:
        from loomrl.inference.merged import sealed_adapter

        experiment = self._station.experiment
        choice = experiment.engine
        source = await asyncio.to_thread(source_of, key, self._db)
        get = partial(fetch_adapter, weights_of_base=self._engine is None)
        files = await asyncio.to_thread(get, source, self._db)
        name = f"{key} {next(self._numbers)}"  # one that is closing may have the same key
        try:
            sealed = await asyncio.to_thread(sealed_adapter, files.path.parent, files.number)
            engine = self._engine
            if engine is None:
                engine = await open_language_engine(source, files, choice, gpus=experiment.replicas.gpus)
            try:
                policy: ServedPolicy = await open_adapter_policy(source, files, choice, engine, name=name)
                await engine.add_adapter(name, sealed)
            except BaseException:
                if self._engine is None:  # another policy may bring the right base
                    await engine.close()
                raise
            self._engine = engine
        finally:
            await asyncio.to_thread(files.discard)
        if source.follow is not None:
            policy = Following(source, policy, self._db, is_adapter=True)
        channel = PolicyChannel(self._station, key, policy, self._db)
        channel.at_end(partial(engine.drop_adapter, name))
        try:
            await channel.start()
        except BaseException:
            await channel.stop()
            raise
        return channel

    async def _close(self) -> None:
        """End all policies at once, then the engine."""
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        await asyncio.gather(*(part.stop() for part in (*self.channels.values(), *self._failed.values())))
        if self._engine is not None:
            await self._engine.close()


class PolicyProcess(ServicePart):
    """An engine and its policies."""

    def __init__(self, station: Station, engine: str) -> None:
        super().__init__(station)
        self._engine = engine
        self._channels: dict[str, PolicyChannel] = {}

    async def start(self) -> None:
        """Open the engine, listen, and be announced. A LoomError says why its only policy cannot be served."""
        db = await self._open_store()
        if self._engine.startswith(SHARED):
            shared = SharedEngine(self._station, self._engine, db)
            self._channels = shared.channels
            self._stack.push_async_callback(shared.stop)
            await shared.start()
            return
        experiment = self._station.experiment
        source = await asyncio.to_thread(source_of, self._engine, db)
        files = await asyncio.to_thread(fetch, source, db)
        try:
            policy: ServedPolicy = await open_policy(source, files, experiment.engine, gpus=experiment.replicas.gpus)
        finally:
            await asyncio.to_thread(files.discard)
        if source.follow is not None:
            policy = Following(source, policy, db)
        channel = PolicyChannel(self._station, self._engine, policy, db)
        self._channels[self._engine] = channel
        self._stack.push_async_callback(channel.stop)
        await channel.start()

    @property
    def calls(self) -> int:
        """Open calls."""
        return sum(channel.calls for channel in self._channels.values())
