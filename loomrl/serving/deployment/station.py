"""The facts of a service that each of its processes gets, and where each of them is."""

from dataclasses import dataclass, field
from pathlib import Path

from loomrl.config import ServingExperiment
from loomrl.http.listen import authority, is_loopback
from loomrl.http.tls import Certificate
from loomrl.serving.deployment.front import find_haproxy
from loomrl.store.replicas import url_of

WILDCARDS = frozenset({"0.0.0.0", "::", ""})


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """The facts that every process of a service gets."""

    experiment: ServingExperiment
    token: str = field(repr=False)
    """Of the channel between gateways and policies."""
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
        """What callers are shown."""
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
