"""The processes of a service, without Ray: a policy on its channel, a gateway, and the front with its housekeeping.

Each has a row with a heartbeat in LoomDB, and deletes the row when it ends in order.
"""

import asyncio
import os
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from loomrl.config import HubConfig, ServingExperiment
from loomrl.errors import LoomError, StoreError
from loomrl.http.listen import is_loopback, open_door
from loomrl.http.server import Embedded, Limits
from loomrl.http.site import JSON, Refused, Site, open_to
from loomrl.load import dump
from loomrl.observability.trace import flush
from loomrl.safety.redaction import PatternRedactor
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.asgi import Check, GatewayApp
from loomrl.serving.channel.server import ChannelServer
from loomrl.serving.deployment.follow import Following, cancel_task
from loomrl.serving.deployment.front import Front, FrontSettings
from loomrl.serving.deployment.key import StoredKeys
from loomrl.serving.deployment.opening import open_policy
from loomrl.serving.deployment.reconcile import PACE_S, StoredView
from loomrl.serving.deployment.source import fetch, source_of
from loomrl.serving.deployment.station import Station
from loomrl.serving.feedback.intake import EndpointHubs, FeedbackIntake
from loomrl.serving.gateway import Gateway, GatewaySettings
from loomrl.serving.measure import Measures
from loomrl.serving.meter import GatewayMeter
from loomrl.serving.monitor.monitor import Monitor
from loomrl.serving.policy import ServedPolicy
from loomrl.serving.recording.naming import Naming
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.routes.act import KINDS
from loomrl.store import LoomDB, open_store
from loomrl.store.events import EVENTS, Event
from loomrl.store.observations import forget_observations
from loomrl.store.replicas import BEAT_S, Replica, ReplicaRole, ReplicaState, beat, bury, leave, live_replicas

log = redacted_logger(__name__)
SEEN_S = 2.5 * PACE_S
"""Time until every gateway has seen that a replica drains."""
GRACE_S = 8.0
"""Time for open calls of a process that ends."""
SWEEP_S = 5.0
"""Time between two rounds in which sessions end and become trajectories."""
HOUSE_S = 60.0
"""Time between two rounds in which old trajectories and observations move on."""
DAY_S = 86_400.0
SHOWN = ("x-loomrl-version", "x-loomrl-arm", "x-loomrl-trajectory", "x-loomrl-session", "x-loomrl-recorded")


class Presence:
    """A row in LoomDB with a heartbeat. LoomDB may be unreachable for a while."""

    def __init__(self, db: LoomDB, row: Replica) -> None:
        self._db = db
        self.row = row
        self._task: asyncio.Task[None] | None = None

    @staticmethod
    def of(db: LoomDB, station: Station, role: ReplicaRole, address: str, *, policy: str = "") -> "Presence":
        """A new one, of this process."""
        row = Replica(
            id=uuid.uuid4().hex,
            role=role,
            policy=policy,
            endpoint=station.experiment.endpoint,
            address=address,
            node=socket.gethostname(),
            pid=os.getpid(),
            state=ReplicaState.READY,
        )
        return Presence(db, row)

    async def start(self) -> None:
        """Add the row, and begin the heartbeat."""
        self.row = await asyncio.to_thread(beat, self._db, self.row)
        self._task = asyncio.create_task(self._beat())

    async def change(self, *, version: str | None = None, state: ReplicaState | None = None) -> None:
        """Write a change at once."""
        self.row = replace(self.row, version=version or self.row.version, state=state or self.row.state)
        self.row = await asyncio.to_thread(beat, self._db, self.row)

    async def end(self) -> None:
        """Delete the row."""
        await cancel_task(self._task)
        try:
            await asyncio.to_thread(leave, self._db, self.row.id)
        except StoreError as error:
            log.warning("The row of this process stays until its heartbeat is too old: %s", error)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            try:
                await asyncio.to_thread(beat, self._db, self.row)
            except StoreError as error:
                log.warning("LoomDB does not take the heartbeat: %s", error)


class PolicyProcess:
    """One policy on a channel."""

    def __init__(self, station: Station, key: str) -> None:
        self._station = station
        self._key = key
        self._stack = AsyncExitStack()
        self._server: ChannelServer | None = None
        self._presence: Presence | None = None
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the policy, listen, and be announced. A LoomError says why the policy cannot be served."""
        station = self._station
        experiment = self._station.experiment
        db = self._stack.enter_context(await asyncio.to_thread(open_store, experiment.store_url))
        source = await asyncio.to_thread(source_of, self._key, db)
        files = await asyncio.to_thread(fetch, source, db)
        try:
            policy: ServedPolicy = await open_policy(source, files, experiment.engine, gpus=experiment.replicas.gpus)
        finally:
            await asyncio.to_thread(files.discard)
        if source.follow is not None:
            policy = Following(source, policy, db)
        self._server = ChannelServer(policy, token=station.token)
        address = await self._server.start(station.host)
        self._presence = Presence.of(db, station, ReplicaRole.POLICY, address, policy=self._key)
        self._presence.row = replace(self._presence.row, version=policy.about.version)
        await self._presence.start()
        if isinstance(policy, Following):
            self._following = asyncio.create_task(policy.follow(self._announce))

    @property
    def calls(self) -> int:
        """Open calls."""
        return 0 if self._server is None else len(self._server.tasks)

    async def stop(self) -> None:
        """Get no new calls, finish the open ones, and end."""
        await cancel_task(self._following)
        if self._presence is not None:
            await self._presence.change(state=ReplicaState.DRAINING)
            await asyncio.sleep(SEEN_S)
        if self._server is not None:
            await self._server.close(grace_s=GRACE_S)
        if self._presence is not None:
            await self._presence.end()
        await asyncio.to_thread(flush)
        await self._stack.aclose()

    async def _announce(self) -> None:
        """Tell the gateways and LoomDB that another version was loaded."""
        assert self._server is not None
        assert self._presence is not None
        self._server.announce()
        await self._presence.change(version=self._server.policy.about.version)


class GatewayProcess:
    """One gateway: behind the front on a port of its own, or on the asked port itself."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._stack = AsyncExitStack()
        self._presence: Presence | None = None
        self._gateway: Gateway | None = None
        self._server: Embedded | None = None

    async def start(self) -> None:
        """Follow LoomDB, listen, and be announced."""
        station = self._station
        experiment = self._station.experiment
        db = self._stack.enter_context(await asyncio.to_thread(open_store, experiment.store_url))
        recorder = intake = None
        if experiment.record.mode != "off":
            from loomrl.serving.durable import open_recorder

            secret = station.token.encode()
            recorder = await asyncio.to_thread(open_recorder, experiment.store_url, secret=secret)
            self._stack.push_async_callback(recorder.close)
            naming = Naming(db, PatternRedactor(), secret=secret)
            intake = FeedbackIntake(db, EndpointHubs(experiment.store_url, [experiment.endpoint]), naming=naming)
            self._stack.callback(intake.close)
        view = StoredView(db, token=station.token, only=experiment.endpoint)
        await view.start()
        self._stack.push_async_callback(view.close)
        measures = Measures(db, view, source=f"{station.host}:{os.getpid()}")
        await measures.start()
        self._stack.push_async_callback(measures.close)
        monitor = None
        if experiment.monitor.rules:
            monitor = Monitor(experiment.monitor, db)
            await monitor.start()
            self._stack.push_async_callback(monitor.close)
        self._gateway = Gateway(
            view=view,
            recorder=recorder,
            keys=StoredKeys(db, required=is_key_needed(experiment)),
            mode=experiment.record.mode,
            rate=experiment.record.rate,
            monitor=monitor,
            measures=measures,
            meter=GatewayMeter(),
            intake=intake,
            settings=settings_of(experiment),
        )
        behind = station.has_front
        host, port = (station.host, 0) if behind else (experiment.host, experiment.port)
        shown = None if behind else station.certificate
        door = open_door(host, port, token="the gateway asks for keys itself", certificate=shown)
        limits = Limits(connections=experiment.limits.connections)
        app = open_to(
            GatewayApp(self._gateway, check=check_of(experiment, {station.head, station.host})),
            experiment.origins,
            shown=SHOWN,
        )
        self._server = Embedded(app, door.listeners, limits=limits, tls=door.tls)
        await self._server.start()
        self._presence = Presence.of(db, station, ReplicaRole.GATEWAY, f"{door.host}:{door.port}")
        await self._presence.start()

    async def stop(self) -> None:
        """Get no new requests, finish the open ones, and end."""
        if self._gateway is not None:
            self._gateway.is_ready = False
        if self._presence is not None:
            await self._presence.change(state=ReplicaState.DRAINING)
            await asyncio.sleep(SEEN_S)
        if self._server is not None:
            await self._server.close()
        if self._gateway is not None:
            await self._gateway.close()
        if self._presence is not None:
            await self._presence.end()
        await asyncio.to_thread(flush)
        await self._stack.aclose()


class FrontProcess:
    """HAProxy before the gateways, and the housekeeping: rows of dead processes, the sweeper, releases."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._stack = AsyncExitStack()
        self._presence: Presence | None = None
        self._front: Front | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._db: LoomDB | None = None

    async def start(self) -> None:
        """Listen on the asked address, and follow the gateways."""
        experiment = self._station.experiment
        self._db = self._stack.enter_context(await asyncio.to_thread(open_store, experiment.store_url))
        if self._station.has_front:
            settings = FrontSettings(
                host=experiment.host,
                port=experiment.port,
                certificate=self._station.certificate,
                connections=experiment.limits.connections,
                deadline_s=experiment.gateways.deadline_s,
            )
            self._front = Front(settings)
            await self._front.start()
            self._tasks.append(asyncio.create_task(_again(self._follow, PACE_S)))
        self._presence = Presence.of(self._db, self._station, ReplicaRole.FRONT, self._station.address)
        await self._presence.start()
        resolved = {"experiment": experiment.sha256, "resolved": dump(experiment)}
        await asyncio.to_thread(EVENTS.append, self._db, [self._event("service.started", resolved)])
        self._tasks.append(asyncio.create_task(_again(self._bury, BEAT_S)))
        self._tasks.append(asyncio.create_task(_again(self._forget, HOUSE_S)))
        self._tasks.append(asyncio.create_task(self._release()))
        if experiment.record.mode != "off":
            self._tasks.append(asyncio.create_task(self._sweep()))

    async def stop(self) -> None:
        """Take no more requests, and end."""
        for task in self._tasks:
            await cancel_task(task)
        if self._front is not None:
            await self._front.close()
        if self._presence is not None:
            await self._presence.end()
            await self._say_ended()
        await self._stack.aclose()

    async def _say_ended(self) -> None:
        assert self._db is not None
        event = self._event("service.ended", {"experiment": self._station.experiment.sha256})
        try:
            await asyncio.to_thread(EVENTS.append, self._db, [event])
        except StoreError as error:
            log.warning("The end of the service is not on record: %s", error)

    def _event(self, kind: str, data: Mapping[str, Any]) -> Event:
        return Event(kind=kind, subject=self._station.experiment.endpoint, data=data, created_at=time.time())

    async def _follow(self) -> None:
        assert self._front is not None
        assert self._db is not None
        endpoint = self._station.experiment.endpoint
        rows = await asyncio.to_thread(live_replicas, self._db, role=ReplicaRole.GATEWAY, endpoint=endpoint)
        await self._front.follow([row.address for row in rows if row.state is ReplicaState.READY])

    async def _bury(self) -> None:
        assert self._db is not None
        await asyncio.to_thread(bury, self._db)

    async def _forget(self) -> None:
        assert self._db is not None
        experiment = self._station.experiment
        before = time.time() - DAY_S * experiment.record.retention_days
        await asyncio.to_thread(forget_observations, self._db, experiment.endpoint, before=before)

    async def _release(self) -> None:
        from loomrl.release.controller import PACE_S as RELEASE_S
        from loomrl.release.controller import Controller

        assert self._db is not None
        controller = Controller(self._db, self._station.experiment.endpoint)

        async def tick() -> None:
            await asyncio.to_thread(controller.tick)

        await _again(tick, RELEASE_S)

    async def _sweep(self) -> None:
        from loomrl.hub.open import open_endpoint_hub
        from loomrl.serving.retention.sweep import Sweeper, SweepTerms

        assert self._db is not None
        experiment = self._station.experiment
        record = experiment.record
        name = experiment.endpoint
        opened = await asyncio.to_thread(open_endpoint_hub, experiment.store_url, name, HubConfig())
        terms = SweepTerms(idle_s=record.idle_s, days=record.retention_days, archive_days=record.archive_days)
        hub = self._stack.enter_context(opened)
        sweeper = Sweeper(self._db, hub, name, terms=terms, artifact_url=experiment.artifact_url)

        async def sweep_sessions() -> None:
            await asyncio.to_thread(sweeper.sweep_sessions, now=time.time())

        async def sweep_trajectories() -> None:
            await asyncio.to_thread(sweeper.sweep_trajectories, now=time.time())

        # apart, because writing a large file must not keep sessions from ending
        await asyncio.gather(_again(sweep_sessions, SWEEP_S), _again(sweep_trajectories, HOUSE_S))


async def _again(work: Callable[[], Awaitable[None]], pause_s: float) -> None:
    """Repeat the work for ever; failures are logged, and the work tried again."""
    while True:
        try:
            await work()
        except (LoomError, OSError) as error:
            log.warning("It is tried again: %s", error)
        except Exception:
            log.exception("It is tried again.")
        await asyncio.sleep(pause_s)


def is_key_needed(experiment: ServingExperiment) -> bool:
    """True if callers need a key."""
    return experiment.keys == "required" or not is_loopback(experiment.host)


def settings_of(experiment: ServingExperiment) -> GatewaySettings:
    """The limits of a gateway."""
    return GatewaySettings(
        deadline_s=experiment.gateways.deadline_s,
        slots=experiment.gateways.slots,
        queue=experiment.gateways.queue,
        max_bytes=round(experiment.limits.body_mb * 1e6),
    )


def check_of(experiment: ServingExperiment, addresses: Collection[str]) -> Check:
    """Refuses pages of other sites, and names that are not the server's. Prometheus uses the machines' `addresses`."""
    names = frozenset(name.lower() for name in experiment.allowed_hosts)
    own = {experiment.host.lower(), *(address.lower() for address in addresses)}
    hosts = None if is_key_needed(experiment) and not names else names | own
    site = Site(hosts, frozenset({JSON, *KINDS}), frozenset(origin.lower() for origin in experiment.origins))

    def check(method: str, headers: Mapping[str, str]) -> None:
        try:
            site.check(method, headers)
        except Refused as refused:
            cause = RefusalCause.INVALID if refused.status == 415 else RefusalCause.FORBIDDEN
            raise Refusal(cause, str(refused)) from None

    return check
