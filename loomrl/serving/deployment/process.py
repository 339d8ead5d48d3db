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
from functools import partial
from typing import Any

from loomrl.config import HubConfig, ServingExperiment
from loomrl.errors import StoreError
from loomrl.http.listen import is_loopback, open_door
from loomrl.http.server import Embedded, Limits
from loomrl.http.site import JSON, Refused, Site, open_to
from loomrl.load import dump
from loomrl.observability.trace import flush
from loomrl.safety.redaction import PatternRedactor
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.asgi import Check, GatewayApp
from loomrl.serving.channel.server import ChannelServer
from loomrl.serving.deployment.follow import Following
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
from loomrl.serving.repeat import again, cancel_task
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


class ServiceProcess:
    """The base of a service's processes. What `start` opens is closed by `stop`, in the opposite order."""

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

    def _present(self, db: LoomDB, role: ReplicaRole, address: str, *, policy: str = "", version: str = "") -> Presence:
        """A row of this process, which is deleted at its end; still to be added."""
        row = Replica(
            id=uuid.uuid4().hex,
            role=role,
            policy=policy,
            version=version,
            endpoint=self._station.experiment.endpoint,
            address=address,
            node=socket.gethostname(),
            pid=os.getpid(),
            state=ReplicaState.READY,
        )
        presence = Presence(db, row)
        self._stack.push_async_callback(presence.end)
        return presence


class PolicyProcess(ServiceProcess):
    """One policy on a channel."""

    def __init__(self, station: Station, key: str) -> None:
        super().__init__(station)
        self._key = key
        self._server: ChannelServer | None = None

    async def start(self) -> None:
        """Open the policy, listen, and be announced. A LoomError says why the policy cannot be served."""
        station = self._station
        experiment = station.experiment
        db = await self._open_store()
        source = await asyncio.to_thread(source_of, self._key, db)
        files = await asyncio.to_thread(fetch, source, db)
        try:
            policy: ServedPolicy = await open_policy(source, files, experiment.engine, gpus=experiment.replicas.gpus)
        finally:
            await asyncio.to_thread(files.discard)
        if source.follow is not None:
            policy = Following(source, policy, db)
        self._server = server = ChannelServer(policy, token=station.token)
        address = await server.start(station.host)
        version = policy.about.version
        presence = self._present(db, ReplicaRole.POLICY, address, policy=self._key, version=version)
        self._stack.push_async_callback(server.close, grace_s=GRACE_S)
        await presence.start()
        self._stack.push_async_callback(presence.drain)

        async def announce() -> None:
            """Tell the gateways and LoomDB that another version was loaded."""
            server.announce()
            await presence.change(version=policy.about.version)

        if isinstance(policy, Following):
            self._stack.push_async_callback(cancel_task, asyncio.create_task(policy.follow(announce)))

    @property
    def calls(self) -> int:
        """Open calls."""
        return 0 if self._server is None else len(self._server.tasks)


class GatewayProcess(ServiceProcess):
    """One gateway: behind the front on a port of its own, or on the asked port itself."""

    async def start(self) -> None:
        """Follow LoomDB, listen, and be announced."""
        station = self._station
        experiment = station.experiment
        db = await self._open_store()
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
        gateway = Gateway(
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
        app = GatewayApp(gateway, check=check_of(experiment, {station.head, station.host}))
        server = Embedded(
            open_to(app, experiment.origins, shown=SHOWN),
            door.listeners,
            limits=Limits(connections=experiment.limits.connections),
            tls=door.tls,
        )
        presence = self._present(db, ReplicaRole.GATEWAY, f"{door.host}:{door.port}")
        self._stack.push_async_callback(gateway.close)
        await server.start()
        self._stack.push_async_callback(server.close)
        await presence.start()
        self._stack.push_async_callback(presence.drain)
        self._stack.callback(setattr, gateway, "is_ready", False)


class FrontProcess(ServiceProcess):
    """HAProxy before the gateways, and the housekeeping: rows of dead processes, the sweeper, releases."""

    front: Front | None = None
    """None until it listens, and where there is no HAProxy."""

    async def start(self) -> None:
        """Listen on the asked address, and follow the gateways."""
        station = self._station
        experiment = station.experiment
        endpoint = experiment.endpoint
        db = await self._open_store()
        presence = self._present(db, ReplicaRole.FRONT, station.address)
        if station.has_front:
            settings = FrontSettings(
                host=experiment.host,
                port=experiment.port,
                certificate=station.certificate,
                connections=experiment.limits.connections,
                deadline_s=experiment.gateways.deadline_s,
            )
            front = Front(settings)
            await front.start()
            self._stack.push_async_callback(front.close)
            self.front = front

            async def follow() -> None:
                rows = await asyncio.to_thread(live_replicas, db, role=ReplicaRole.GATEWAY, endpoint=endpoint)
                await front.follow([row.address for row in rows if row.state is ReplicaState.READY])

            self._repeat(follow, PACE_S)
        await presence.start()
        resolved = {"experiment": experiment.sha256, "resolved": dump(experiment)}
        await asyncio.to_thread(self._record, db, "service.started", resolved)
        self._stack.push_async_callback(self._say_ended, db)

        def forget() -> None:
            forget_observations(db, endpoint, before=time.time() - DAY_S * experiment.record.retention_days)

        from loomrl.release.controller import PACE_S as RELEASE_S
        from loomrl.release.controller import Controller

        self._repeat(partial(asyncio.to_thread, bury, db), BEAT_S)
        self._repeat(partial(asyncio.to_thread, forget), HOUSE_S)
        self._repeat(partial(asyncio.to_thread, Controller(db, endpoint).tick), RELEASE_S)
        if experiment.record.mode != "off":
            await self._sweep(db)

    def _repeat(self, work: Callable[[], Awaitable[object]], pause_s: float) -> None:
        """Repeat the work until the end."""
        self._stack.push_async_callback(cancel_task, asyncio.create_task(again(work, pause_s)))

    def _record(self, db: LoomDB, kind: str, data: Mapping[str, Any]) -> None:
        endpoint = self._station.experiment.endpoint
        EVENTS.append(db, [Event(kind=kind, subject=endpoint, data=data, created_at=time.time())])

    async def _say_ended(self, db: LoomDB) -> None:
        data = {"experiment": self._station.experiment.sha256}
        try:
            await asyncio.to_thread(self._record, db, "service.ended", data)
        except StoreError as error:
            log.warning("The end of the service is not on record: %s", error)

    async def _sweep(self, db: LoomDB) -> None:
        """Let sessions end and old trajectories move on."""
        from loomrl.hub.open import open_endpoint_hub
        from loomrl.serving.retention.sweep import Sweeper, SweepTerms

        experiment = self._station.experiment
        record = experiment.record
        name = experiment.endpoint
        opened = await asyncio.to_thread(open_endpoint_hub, experiment.store_url, name, HubConfig())
        terms = SweepTerms(idle_s=record.idle_s, days=record.retention_days, archive_days=record.archive_days)
        hub = self._stack.enter_context(opened)
        sweeper = Sweeper(db, hub, name, terms=terms, artifact_url=experiment.artifact_url)
        # apart, because writing a large file must not keep sessions from ending
        self._repeat(lambda: asyncio.to_thread(sweeper.sweep_sessions, now=time.time()), SWEEP_S)
        self._repeat(lambda: asyncio.to_thread(sweeper.sweep_trajectories, now=time.time()), HOUSE_S)


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
