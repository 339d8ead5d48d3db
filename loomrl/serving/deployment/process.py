"""The gateway of a service, and the front with its housekeeping, as processes without Ray."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any

from loomrl.config import HubConfig, ServingExperiment
from loomrl.errors import StoreError
from loomrl.http.listen import is_loopback, open_door
from loomrl.http.server import Embedded, Limits
from loomrl.http.site import JSON, Refused, Site, open_to
from loomrl.load import dump
from loomrl.safety.redaction import PatternRedactor
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.asgi import Check, GatewayApp
from loomrl.serving.deployment.front import Front, FrontSettings
from loomrl.serving.deployment.key import StoredKeys
from loomrl.serving.deployment.part import ServicePart
from loomrl.serving.deployment.reconcile import StoredView
from loomrl.serving.feedback.intake import EndpointHubs, FeedbackIntake
from loomrl.serving.gateway import Gateway, GatewaySettings
from loomrl.serving.measure import Measures
from loomrl.serving.meter import GatewayMeter
from loomrl.serving.monitor.monitor import Monitor
from loomrl.serving.recording.naming import Naming
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.repeat import after_commits, again, cancel_task
from loomrl.serving.routes.act import KINDS
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS, Event
from loomrl.store.observations import forget_observations
from loomrl.store.replicas import BEAT_S, ReplicaRole, ReplicaState, bury, live_replicas

log = redacted_logger(__name__)
FOLLOW_S = 0.25
"""Time between two looks of the front for gateways."""
SWEEP_S = 5.0
"""Time between two rounds in which sessions end and become trajectories."""
HOUSE_S = 60.0
"""Time between two rounds in which old trajectories and observations move on."""
DAY_S = 86_400.0
SHOWN = tuple(f"x-loomrl-{name}" for name in ("version", "arm", "trajectory", "session", "recorded", "ignored"))


class GatewayProcess(ServicePart):
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


class FrontProcess(ServicePart):
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
            front = Front(settings, service=station.token)
            await front.start()
            self._stack.push_async_callback(front.close)
            self.front = front

            async def follow() -> None:
                rows = await asyncio.to_thread(live_replicas, db, role=ReplicaRole.GATEWAY, endpoint=endpoint)
                await front.follow([row.address for row in rows if row.state is ReplicaState.READY])

            self._repeat(after_commits(db, follow), FOLLOW_S)
        await presence.start()
        resolved = {"experiment": experiment.sha256, "resolved": dump(experiment)}
        await asyncio.to_thread(self._record, db, "service.started", resolved)
        self._stack.push_async_callback(self._say_ended, db)

        def forget() -> None:
            forget_observations(db, endpoint, before=time.time() - DAY_S * experiment.record.retention_days)

        from loomrl.release.controller import PACE_S as RELEASE_S
        from loomrl.release.controller import Controller

        controller = Controller(db, endpoint)

        async def tick() -> None:
            if not controller.is_idle():
                await asyncio.to_thread(controller.tick)

        self._repeat(partial(asyncio.to_thread, bury, db), BEAT_S)
        self._repeat(partial(asyncio.to_thread, forget), HOUSE_S)
        self._repeat(tick, RELEASE_S)
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
        unknown=experiment.unknown,
    )


def check_of(experiment: ServingExperiment, addresses: Collection[str]) -> Check:
    """Refuses pages of other sites, and names that are not the server's. Prometheus uses the machines' `addresses`."""
    names = frozenset(name.lower() for name in experiment.allowed_hosts)
    own = {experiment.host.lower(), *(address.lower() for address in addresses)}
    hosts = None if is_key_needed(experiment) and not names else names | own
    origins = frozenset(origin.lower() for origin in experiment.origins)
    site = Site(hosts, frozenset({JSON, *KINDS}), origins, option="allowed_hosts=[NAME]")

    def check(method: str, headers: Mapping[str, str]) -> None:
        try:
            site.check(method, headers)
        except Refused as refused:
            cause = RefusalCause.INVALID if refused.status == 415 else RefusalCause.FORBIDDEN
            raise Refusal(cause, str(refused)) from None

    return check
