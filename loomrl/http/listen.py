"""Listening sockets. Quick to import, so that a port is taken before slow imports start."""

import errno
import ipaddress
import socket
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from loomrl.errors import ServeError


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files in PEM."""

    chain: Path
    """The certificate, and those between it and a root."""
    key: Path
    """Its private key, without a password."""

    def context(self) -> ssl.SSLContext:
        """For a server, TLS 1.2 at least. A ServeError names what is wrong with the files."""
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load(made)
        return made

    def joined(self) -> bytes:
        """Chain and key in one text, as HAProxy wants them."""
        self._load(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
        return b"\n".join(file.read_bytes() for file in dict.fromkeys((self.chain, self.key)))

    def _load(self, context: ssl.SSLContext) -> None:
        for name, file in (("certificate", self.chain), ("key", self.key)):
            if not file.is_file():
                raise ServeError(f"tls: {name}={str(file)!r}: there is no such file on this machine.")
        try:
            context.load_cert_chain(self.chain, self.key, password=_no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ServeError(
                f"tls: certificate={str(self.chain)!r}, key={str(self.key)!r}: {error}. A certificate and its "
                "private key are needed, in PEM, the key without a password."
            ) from None


def trusted() -> ssl.SSLContext:
    """For a client: whom this machine trusts, and whom SSL_CERT_FILE names."""
    return ssl.create_default_context()


def _no_password() -> str:
    raise ValueError("its key has a password")


@dataclass(frozen=True, slots=True)
class Door:
    """A listening address, and its access rules. Connections queue from now on until they are served."""

    host: str
    port: int
    token: str | None = field(repr=False)
    allowed_hosts: tuple[str, ...]
    """Further host names that clients may use, beside the host and this machine's own names."""
    listeners: tuple[socket.socket, ...] = field(repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    """None: plain HTTP."""

    @property
    def url(self) -> str:
        """The address as a URL."""
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{authority(self.host, self.port)}"


def open_door(
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    token: str | None = None,
    allowed_hosts: Iterable[str] = (),
    certificate: Certificate | None = None,
) -> Door:
    """Listen at once. A ServeError states the obstacle, or refuses a public address without a token.

    Port 0 is any free one.
    """
    if not token and not is_loopback(host):
        raise ServeError(f"host={host!r} can be reached from other machines: give a token, or serve on 127.0.0.1.")
    tls = None if certificate is None else certificate.context()
    listeners = tuple(_bind(host, port))
    return Door(host, _port(listeners), token, tuple(allowed_hosts), listeners, tls)


def _bind(host: str, port: int) -> list[socket.socket]:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise ServeError(
            f"host={host!r} is no address: {error.strerror}. Give a name or address of this machine."
        ) from None
    listeners: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listeners.append(_listener(family, kind, protocol, (*address[:1], _port(listeners) or port, *address[2:])))
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise ServeError(_hindrance(host, port, error)) from None
    return listeners


def authority(host: str, port: int) -> str:
    """`host:port` as in a URL, where an IPv6 address has brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """True if only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listener(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> socket.socket:
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def _port(listeners: Sequence[socket.socket]) -> int:
    return int(listeners[0].getsockname()[1]) if listeners else 0


def _hindrance(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port={port} on {host} is taken: another program serves there (`ss -ltnp 'sport = :{port}'` says which). "
            "End it, or choose another port with --port."
        )
    if error.errno == errno.EACCES:
        return f"port={port} is not for you: ports below 1024 need more rights. Choose another with --port."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"host={host!r} is no address of this machine. Serve on 127.0.0.1, or on 0.0.0.0 with a token."
    return f"cannot listen on {host}:{port}: {error.strerror}."
