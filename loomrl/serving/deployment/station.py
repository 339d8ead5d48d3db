"""The facts of a service that each of its processes gets, and where each of them is."""

import hashlib
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loomrl.config import ServingExperiment
from loomrl.errors import LoomError
from loomrl.http.listen import Certificate, authority, is_loopback
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.deployment.front import find_haproxy
from loomrl.serving.deployment.source import engine_of, source_of, source_of_arm
from loomrl.store import LoomDB, open_store
from loomrl.store.endpoints import Arm, Role, State, list_endpoints, set_endpoint
from loomrl.store.replicas import url_of

WILDCARDS = frozenset({"0.0.0.0", "::", ""})


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """The facts that every process of a service gets."""

    experiment: ServingExperiment
    token: str = field(repr=False)
    """Token of the channel between gateways and policies."""
    head: str = "127.0.0.1"
    """The address of the head node, where the front is. 127.0.0.1: everything is on this machine."""

    @property
    def host(self) -> str:
        """The address of the machine of this process for the others."""
        if is_loopback(self.head):
            return self.head
        import ray

        return str(ray.util.get_node_ip_address())

    @property
    def certificate(self) -> Certificate | None:
        """The certificate that callers are shown."""
        tls = self.experiment.tls
        return None if tls is None else Certificate(Path(tls.certificate), Path(tls.key))

    @property
    def url(self) -> str:
        """The front's address for callers, as a URL."""
        return url_of(self.address)

    @property
    def address(self) -> str:
        """The same as `host:port`, behind `https://` if it is."""
        host = self.experiment.host
        if host in WILDCARDS:
            host = "::1" if host == "::" and is_loopback(self.head) else self.head
        found = authority(host, self.experiment.port)
        return found if self.experiment.tls is None else f"https://{found}"

    @property
    def has_front(self) -> bool:
        """True if HAProxy stands in front of the gateways."""
        front = self.experiment.gateways.front
        return front == "haproxy" or (front == "auto" and find_haproxy() is not None)


log = redacted_logger(__name__)
LOOK_S = 0.5
SPARE_S = 5.0
"""Time after which an application that no arm names is deleted: going back sooner costs nothing."""
ASK_S = 30.0
"""Time between two questions to Serve where nothing is to be done: each costs some 40 ms of a core."""
Change = Callable[[Station, Mapping[str, str], frozenset[str]], frozenset[str]]
"""Starts these applications (name → engine), deletes those, and returns the names of all that exist."""


def application(endpoint: str, engine: str) -> str:
    """The name of the application that holds an engine (`loomrl.serving.deployment.source.engine_of`)."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", engine)[-40:]
    return f"{prefix(endpoint)}{readable}-{hashlib.sha256(engine.encode()).hexdigest()[:8]}"


def prefix(endpoint: str) -> str:
    """The common beginning of the names of an endpoint's policy applications."""
    return f"{endpoint}.policy-"


class Spare:
    """The names that nothing has needed for `SPARE_S`."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def over(self, spare: Collection[str]) -> frozenset[str]:
        """The names among those spare now that have been so for long enough."""
        now = time.monotonic()
        self._since = {name: self._since.get(name, now) for name in spare}
        return frozenset(name for name, since in self._since.items() if now - since > SPARE_S)


class EndpointEngines:
    """The engines that an endpoint's arms need, and the policies of each."""

    def __init__(self, experiment: ServingExperiment, db: LoomDB) -> None:
        self._experiment = experiment
        self._db = db
        self._known: dict[str, str] = {}
        self._version = -1
        self._needed: dict[str, list[str]] | None = None
        self.unknown: dict[str, str] = {}
        """Policies whose engine is not known, by key, with the reason."""

    def read(self) -> dict[str, list[str]] | None:
        """The keys of the policies by engine; None if there is no such endpoint."""
        version = self._db.version()
        if version != self._version:
            self._needed = self._read()
            self._version = version
        return self._needed

    def _read(self) -> dict[str, list[str]] | None:
        name = self._experiment.endpoint
        found = next((each for each in list_endpoints(self._db) if each.name == name), None)
        if found is None or found.state is State.DELETED:
            return None
        keys = list(dict.fromkeys(arm.policy for arm in found.arms))
        self.unknown = {key: cause for key in keys if (cause := self._find(key))}
        needed: dict[str, list[str]] = {}
        for key in keys:
            if key in self._known:
                needed.setdefault(self._known[key], []).append(key)
        return needed

    def _find(self, key: str) -> str:
        """Find out which engine a policy needs; the reason if that cannot be known, logged once."""
        if key in self._known:
            return ""
        try:
            self._known[key] = engine_of(source_of(key, self._db), self._experiment.engine, self._db)
        except LoomError as error:
            if self.unknown.get(key) != str(error):
                log.error("An arm of %r cannot be served: %s", self._experiment.endpoint, error)
            return str(error)
        return ""


class Steward:
    """Compares the engines that an endpoint's arms need with the existing applications.

    Two at once are harmless.
    """

    def __init__(self, station: Station) -> None:
        self._station = station
        self._needs: EndpointEngines | None = None
        self._spare = Spare()
        self._settled: dict[str, str] | None = None
        """The applications, once they are those that are needed."""
        self._ask_at = 0.0

    def look(self, change: Change) -> None:
        """Start missing applications, and delete those that no arm has needed for a while."""
        experiment = self._station.experiment
        if self._needs is None:
            self._needs = EndpointEngines(experiment, open_store(experiment.store_url))
        needed = self._needs.read()
        if needed is None:
            return
        wanted = {application(experiment.endpoint, engine): engine for engine in needed}
        if wanted == self._settled and time.monotonic() < self._ask_at:
            return
        there = change(self._station, {}, frozenset())
        self._settled = wanted if there == wanted.keys() else None
        self._ask_at = time.monotonic() + ASK_S
        over = self._spare.over(there - wanted.keys())
        if self._needs.unknown:  # one of them may be needed
            over = frozenset()
        missing = {name: engine for name, engine in wanted.items() if name not in there}
        if missing or over:
            change(self._station, missing, over)


def arms_of(experiment: ServingExperiment, db: LoomDB) -> tuple[Arm, ...]:
    """The arms with their policies' keys; a ConfigError for one that does not exist."""
    sources = [source_of_arm(arm, db) for arm in experiment.arms]
    return tuple(
        Arm(name=arm.label, policy=source.key, share=arm.share, role=Role(arm.role), content=source.content())
        for arm, source in zip(experiment.arms, sources, strict=True)
    )


def set_arms(db: LoomDB, name: str, arms: tuple[Arm, ...]) -> int:
    """The endpoint's revision with these arms: a new one only if they differ."""
    now = next((each for each in list_endpoints(db) if each.name == name), None)
    if now is not None and now.arms == arms and now.state is State.SERVING:
        return now.revision
    return set_endpoint(db, name, arms, at=time.time(), reason="loomrl serve").revision
