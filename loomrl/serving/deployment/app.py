"""A service on Ray Serve: deployed, waited for, removed."""

import logging
import secrets
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx
import ray
from ray import serve

from loomrl.config import ServingExperiment
from loomrl.errors import ServeError
from loomrl.http.listen import is_loopback
from loomrl.own_ray import ray_logs
from loomrl.serving.deployment.replica import FRONT, GATEWAY, HEAD, LOAD, POLICY
from loomrl.serving.deployment.source import engine_of, source_of
from loomrl.serving.deployment.station import Station, application, arms_of, prefix, set_arms
from loomrl.store import LoomDB, open_store
from loomrl.store.endpoints import Arm
from loomrl.store.replicas import ReplicaRole, ReplicaState, live_replicas

LOOK_S = 0.05
FAILED = ("DEPLOY_FAILED", "UNHEALTHY")


@dataclass(frozen=True, slots=True)
class Deployed:
    """A service that answers."""

    url: str
    endpoint: str
    revision: int
    arms: tuple[Arm, ...]


def deploy(experiment: ServingExperiment, *, alone: bool, timeout_s: float = 300.0) -> Deployed:
    """Start serving; returns once the front, the gateways and every arm answer. `alone`: on a Ray of this machine only.

    A ServeError says what failed; everything started by then is stopped.
    """
    with open_store(experiment.store_url) as db:
        arms = arms_of(experiment, db)
        station = _station(experiment, alone=alone)
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        serve.start(proxy_location="Disabled")
        engines = dict.fromkeys(engine_of(source_of(arm.policy, db), experiment.engine, db) for arm in arms)
        earlier = {row.id for row in live_replicas(db, endpoint=experiment.endpoint)}
        revision = set_arms(db, experiment.endpoint, arms)
        try:
            _run([*_doors(station), *(_policy(station, engine) for engine in engines)])
            _wait(db, station, {arm.policy for arm in arms}, earlier, until=time.monotonic() + timeout_s)
            _wait_for_answers(db, station, until=time.monotonic() + timeout_s)
        except BaseException:
            undeploy(experiment.endpoint)
            raise
        return Deployed(station.url, experiment.endpoint, revision, arms)


def undeploy(endpoint: str) -> None:
    """Delete every application of an endpoint, the front first."""
    there = serve.status().applications
    for name in (f"{endpoint}.front", f"{endpoint}.gateways", *(n for n in there if n.startswith(prefix(endpoint)))):
        if name in there:
            serve.delete(name)


def build(settings: dict[str, Any]) -> serve.Application:
    """The application for `serve deploy` and KubeRay: `args: {experiment: …}`. It starts the others by itself."""
    experiment = ServingExperiment.parse(settings.get("experiment"), origin="args.experiment")
    station = _station(experiment, alone=False)
    with open_store(experiment.store_url) as db:
        set_arms(db, experiment.endpoint, arms_of(experiment, db))
    return _front(station)


def change(station: Station, missing: Mapping[str, str], over: frozenset[str]) -> frozenset[str]:
    """Start and delete policy applications of the endpoint; returns the names of those that exist."""
    endpoint = station.experiment.endpoint
    there = serve.status().applications
    if f"{endpoint}.gateways" not in there:
        _run([_gateways(station)])
    if missing:
        _run([_policy(station, engine) for engine in missing.values()])
    for name in over:
        serve.delete(name, _blocking=False)
    return frozenset(name for name in there if name.startswith(prefix(endpoint)))


# -- applications -----------------------------------------------------------------------------------------------------


def _station(experiment: ServingExperiment, *, alone: bool) -> Station:
    """A ServeError if callers on this machine would not reach the front."""
    token = secrets.token_hex(32)
    if alone:
        return Station(experiment=experiment, token=token)
    heads = [node for node in ray.nodes() if node["Alive"] and HEAD.keys() <= node["Resources"].keys()]
    if not heads:
        raise ServeError("Ray has no head node now, where the front would be. Try again when it is back.")
    head = str(heads[0]["NodeManagerAddress"])
    if is_loopback(experiment.host) and heads[0]["NodeID"] != ray.get_runtime_context().get_node_id():
        raise ServeError(
            f"host={experiment.host}: only the head node ({head}) would hear callers, and this is another machine. "
            "Ask for host=0.0.0.0, or submit the service as a job."
        )
    return Station(experiment=experiment, token=token, head=head)


def _run(targets: list[serve.RunTarget]) -> None:
    serve.run_many(targets, wait_for_ingress_deployment_creation=False, wait_for_applications_running=False)


def _doors(station: Station) -> list[serve.RunTarget]:
    name = f"{station.experiment.endpoint}.front"
    return [serve.RunTarget(_front(station), name=name, route_prefix=None), _gateways(station)]


def _front(station: Station) -> serve.Application:
    return FRONT.options(ray_actor_options={"num_cpus": 0, "resources": HEAD}).bind(station, change)


def _gateways(station: Station) -> serve.RunTarget:
    gateways = station.experiment.gateways
    place: dict[str, Any] = {"num_cpus": gateways.cpus}
    if not station.has_front:
        place["resources"] = HEAD
    count = gateways.count if station.has_front else 1
    bound = GATEWAY.options(num_replicas=count, ray_actor_options=place).bind(station)
    return serve.RunTarget(bound, name=f"{station.experiment.endpoint}.gateways", route_prefix=None)


def _policy(station: Station, engine: str) -> serve.RunTarget:
    replicas = station.experiment.replicas
    options: dict[str, Any] = {"ray_actor_options": {"num_cpus": 1, **replicas.options()}}
    if replicas.most > replicas.least:
        load = {"load": replicas.load or LOAD}
        options["autoscaling_config"] = {
            "min_replicas": replicas.least,
            "max_replicas": replicas.most,
            "upscale_delay_s": 3.0,
            "downscale_delay_s": 60.0,
            "policy": {"policy_function": "loomrl.serving.deployment.replica:Scaled", "policy_kwargs": load},
        }
    else:
        options["num_replicas"] = replicas.least
    bound = POLICY.options(**options).bind(station, engine)
    return serve.RunTarget(bound, name=application(station.experiment.endpoint, engine), route_prefix=None)


# -- waiting ----------------------------------------------------------------------------------------------------------


def _wait(db: LoomDB, station: Station, keys: set[str], earlier: Collection[str], *, until: float) -> None:
    """Return once everything is up; a ServeError as soon as something cannot come up. `earlier`: rows of before."""
    endpoint = station.experiment.endpoint
    looked = time.monotonic()
    while missing := _missing(db, station, keys, earlier):
        if time.monotonic() > until:
            raise ServeError(f"endpoint {endpoint!r}: {', '.join(missing)} did not start in time. {_said(endpoint)}")
        if time.monotonic() - looked > 1.0:
            looked = time.monotonic()
            _refuse_failed(endpoint)
        time.sleep(LOOK_S)


def _wait_for_answers(db: LoomDB, station: Station, *, until: float) -> None:
    """Return once the front answers, and every gateway that there is has seen the policies."""
    gateways = live_replicas(db, role=ReplicaRole.GATEWAY, endpoint=station.experiment.endpoint)
    behind = [f"http://{row.address}" for row in gateways] if station.has_front else []
    for each in [*behind, station.url]:
        while not _is_ready(each):
            if time.monotonic() > until:
                raise ServeError(f"{each}/readyz does not report that it is ready.")
            time.sleep(LOOK_S)


def _is_ready(url: str) -> bool:
    with suppress(httpx.TransportError):
        # The certificate is for the name that callers use, which need not lead here.
        return httpx.get(f"{url}/readyz", timeout=5.0, verify=False).status_code == httpx.codes.OK
    return False


def _missing(db: LoomDB, station: Station, keys: set[str], earlier: Collection[str]) -> list[str]:
    endpoint = station.experiment.endpoint
    live = live_replicas(db, endpoint=endpoint)
    for row in live:
        if row.state is ReplicaState.FAILED and row.id not in earlier:
            raise ServeError(f"endpoint {endpoint!r} cannot be served: {row.policy}: {row.error}")
    rows = [row for row in live if row.state is ReplicaState.READY]
    roles = [ReplicaRole.FRONT, ReplicaRole.GATEWAY]
    there = {row.policy for row in rows}
    return [
        *(str(role.value) for role in roles if not any(row.role is role for row in rows)),
        *sorted(keys - there),
    ]


def _refuse_failed(endpoint: str) -> None:
    failed = [name for name, app in _applications(endpoint).items() if app.status in FAILED]
    if failed:
        raise ServeError(f"endpoint {endpoint!r} cannot be served: {_said(endpoint)}")


def _applications(endpoint: str) -> dict[str, Any]:
    return {name: app for name, app in serve.status().applications.items() if name.startswith(f"{endpoint}.")}


def _said(endpoint: str) -> str:
    """Serve's messages about applications that are not healthy, without its traces."""
    said = []
    for name, app in _applications(endpoint).items():
        for deployment in app.deployments.values():
            lines = [line for line in str(deployment.message).splitlines() if "Error: " in line]
            if lines:
                said.append(lines[-1].strip().removeprefix("RuntimeError: "))
            elif app.status in FAILED and deployment.message:
                said.append(f"{name}: {deployment.message.strip().splitlines()[-1]}")
    return " ".join(dict.fromkeys(said)) or f"Ray's logs say more ({ray_logs()}/serve)."
