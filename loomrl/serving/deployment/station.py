"""The facts of a service that each of its processes gets, and where each of them is."""

import hashlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loomrl.config import ServingExperiment
from loomrl.errors import LoomError
from loomrl.http.listen import Certificate, authority, is_loopback
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.deployment.front import find_haproxy
from loomrl.serving.deployment.source import source_of, source_of_arm
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
Change = Callable[[Station, Mapping[str, str], frozenset[str]], frozenset[str]]
"""Starts these applications (name → key of the policy), deletes those, and returns the names of all that exist."""


def application(endpoint: str, key: str) -> str:
    """The name of the application that serves a policy."""
    return (
        f"{prefix(endpoint)}{re.sub(r'[^A-Za-z0-9]+', '-', key)[-40:]}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    )


def prefix(endpoint: str) -> str:
    """The common beginning of the names of an endpoint's policy applications."""
    return f"{endpoint}.policy-"


class Steward:
    """Compares an endpoint's arms with the existing applications.

    Two at once are harmless.
    """

    def __init__(self, station: Station) -> None:
        self._station = station
        self._db: LoomDB | None = None
        self._spare: dict[str, float] = {}
        self._bad: set[str] = set()

    def look(self, change: Change) -> None:
        """Start missing applications, and delete those that no arm has named for a while."""
        wanted = self.applications_needed()
        if wanted is None:
            return
        there = change(self._station, {}, frozenset())
        now = time.monotonic()
        spare = {name for name in there if name not in wanted}
        self._spare = {name: self._spare.get(name, now) for name in spare}
        over = frozenset(name for name, since in self._spare.items() if now - since > SPARE_S)
        missing = {name: key for name, key in wanted.items() if name not in there and self._is_good(key)}
        if missing or over:
            change(self._station, missing, over)

    def applications_needed(self) -> dict[str, str] | None:
        """The applications that the arms need: name → key; None if there is no such endpoint."""
        name = self._station.experiment.endpoint
        found = next((each for each in list_endpoints(self._open()) if each.name == name), None)
        if found is None or found.state is State.DELETED:
            return None
        return {application(name, arm.policy): arm.policy for arm in found.arms}

    def _is_good(self, key: str) -> bool:
        """False for a policy that does not exist, which is logged once."""
        if key in self._bad:
            return False
        try:
            source_of(key, self._open())
        except LoomError as error:
            log.error("An arm of %r cannot be served: %s", self._station.experiment.endpoint, error)
            self._bad.add(key)
            return False
        return True

    def _open(self) -> LoomDB:
        if self._db is None:
            self._db = open_store(self._station.experiment.store_url)
        return self._db


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
