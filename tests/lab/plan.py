"""The plan of a lab: names, addresses and links. Nothing is touched here."""

import ipaddress
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Self

from loomrl.errors import ClusterError, unknown

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
NETWORK = "10.77.0.0/24"
SMALLEST_KBIT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How a host is connected. The defaults are a cable without limits."""

    up: bool = True
    mbit: float | None = None
    """In each direction; None is as fast as the machine."""
    rtt_ms: float = 0.0
    """Added to a round trip, half of it each way."""
    loss: float = 0.0
    """Share of packets lost, in each direction."""

    def __post_init__(self) -> None:
        if self.mbit is not None and not 1000 * self.mbit >= SMALLEST_KBIT:
            raise ClusterError(f"mbit={self.mbit}: a link has at least {SMALLEST_KBIT / 1000} Mbit/s, or None.")
        if not 0 <= self.rtt_ms <= 10_000:
            raise ClusterError(f"rtt_ms={self.rtt_ms}: from 0 to 10000.")
        if not 0 <= self.loss <= 1:
            raise ClusterError(f"loss={self.loss}: a share from 0 to 1; 2 % is 0.02.")

    @property
    def is_relayed(self) -> bool:
        """True if packets must pass the relay."""
        return bool(self.rtt_ms or self.loss)


@dataclass(slots=True, kw_only=True)
class Host:
    """A host by name; its number names its interfaces."""

    name: str
    number: int
    address: str
    link: Link = field(default_factory=Link)
    deaf_to: list[str] = field(default_factory=list)
    """Hosts whose packets do not arrive here."""

    @property
    def mac(self) -> str:
        """The same after every start, so that neighbours find it again."""
        return f"02:4c:6f:6f:{self.number >> 8:02x}:{self.number & 255:02x}"


@dataclass(slots=True, kw_only=True)
class Plan:
    """All that must be known to find a lab again and to start its hosts again."""

    name: str
    network: str
    hosts: dict[str, Host]
    disk_mb: int
    uplink: bool

    @classmethod
    def of(cls, name: str, hosts: Sequence[str], *, network: str, disk_mb: int, uplink: bool) -> Self:
        """Hosts with addresses in their order; a ClusterError if it cannot be."""
        check_name(name)
        for host in hosts:
            check_name(host)
        doubled = sorted({host for host in hosts if hosts.count(host) > 1})
        if not hosts or doubled:
            raise ClusterError(f"hosts={', '.join(hosts)!r}: at least one, each once. Twice: {', '.join(doubled)}.")
        if disk_mb < 16:
            raise ClusterError(f"disk_mb={disk_mb}: at least 16.")
        addresses = _addresses(network, len(hosts))
        named = {
            host: Host(name=host, number=number, address=address)
            for number, (host, address) in enumerate(zip(hosts, addresses, strict=True), start=1)
        }
        return cls(name=name, network=network, hosts=named, disk_mb=disk_mb, uplink=uplink)

    @property
    def prefix(self) -> int:
        """Bits of the network."""
        return ipaddress.ip_network(self.network).prefixlen

    @property
    def our_address(self) -> str:
        """The address of this machine in the lab, if it has an uplink: the network's last."""
        return str(ipaddress.ip_network(self.network)[-2])

    @property
    def uplink_name(self) -> str:
        """The uplink's interface; names of interfaces end at 15 characters."""
        return f"lab-{self.name}"[:15]

    def host(self, name: str) -> Host:
        """By name; a ClusterError that lists the others."""
        if name not in self.hosts:
            raise ClusterError(f"lab {self.name!r}: {unknown('host', name, self.hosts)}")
        return self.hosts[name]

    def hosts_file(self) -> str:
        """/etc/hosts of every host."""
        ours = [f"{self.our_address} outside"] if self.uplink else []
        rows = [f"{host.address} {host.name}" for host in self.hosts.values()]
        return "\n".join(["127.0.0.1 localhost", "::1 localhost", *rows, *ours, ""])

    def as_json(self) -> str:
        """For the lab's folder."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The plan that was written."""
        plain = json.loads(text)
        hosts = {name: Host(**host | {"link": Link(**host["link"])}) for name, host in plain.pop("hosts").items()}
        return cls(**plain, hosts=hosts)


def check_name(name: str) -> None:
    """A ClusterError unless it can be the name of a lab or a host."""
    if not NAME.fullmatch(name):
        raise ClusterError(f"name={name!r}: small letters, digits and dashes within, at most 32.")


def _addresses(network: str, count: int) -> list[str]:
    try:
        whole = ipaddress.ip_network(network)
    except ValueError as error:
        raise ClusterError(f"network={network!r}: {error}. Such as {NETWORK}.") from None
    if whole.version != 4 or not whole.is_private or whole.is_loopback:
        raise ClusterError(f"network={network!r}: a private IPv4 network is needed, such as {NETWORK}.")
    room = whole.num_addresses - 3  # without the network's own, the last for this machine, and broadcast
    if count > room:
        raise ClusterError(f"network={network!r}: has room for {max(room, 0)} hosts, not {count}.")
    return [str(whole[number]) for number in range(1, count + 1)]
