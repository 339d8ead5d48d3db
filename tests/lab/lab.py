"""A lab: hosts as namespaces of this machine's kernel, on a bridge that nobody else sees. It needs root.

Process 1 of the lab holds the bridge and the disks; below it, every host has a process 1 of its own. So to end the lab
is to kill one process, and to cut a host's power is to kill another: the kernel ends what runs below, and removes
networks and mounts with it. Nothing of it is in the machine's own network, mounts or names, but for the uplink, if
one is asked for.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from loomrl.errors import ClusterError
from loomrl.files import write_whole
from tests.lab import own
from tests.lab.machine import (
    HOME,
    ROOT,
    check_machine,
    checked,
    detached,
    environment,
    names,
    refuse_taken,
    remove,
)
from tests.lab.plan import NETWORK, Host, Link, Plan, check_name
from tests.lab.relay import LOOK_S

SCRIPTS = Path(__file__).parent
SSHD = """\
Port 22
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile .ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
UseDNS no
MaxStartups 100
Subsystem sftp internal-sftp
SetEnv {environment}
"""
BALLAST = "ballast"
"""The file that fills a disk."""


class Lab:
    """Hosts that were started. As a context, they end with it."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self.plan = plan

    @classmethod
    def up(
        cls,
        name: str,
        hosts: Sequence[str],
        *,
        network: str = NETWORK,
        disk_mb: int = 2048,
        uplink: bool = False,
    ) -> Self:
        """Start a lab; a ClusterError if this machine cannot, or has one of this name.

        With `uplink`, this machine is in the lab's network too, at its last address.
        """
        plan = Plan.of(name, hosts, network=network, disk_mb=disk_mb, uplink=uplink)
        check_machine()
        if uplink:
            refuse_taken(plan)
        folder = ROOT / name
        ROOT.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            raise ClusterError(
                f"lab {name!r}: is there already. `python -m tests.lab down {name}` removes it; or choose another name."
            ) from None
        lab = cls(folder, plan)
        try:
            lab._build()
        except BaseException:
            lab.down()
            raise
        return lab

    @classmethod
    def open(cls, name: str) -> Self:
        """A lab that another process has started."""
        check_name(name)
        try:
            plan = Plan.from_json((ROOT / name / "plan.json").read_text())
        except OSError:
            raise ClusterError(f"lab {name!r}: is not there. Labs: {', '.join(names()) or 'none'}.") from None
        return cls(ROOT / name, plan)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    @property
    def shared(self) -> Path:
        """A folder that every host sees as /tmp/shared, like a file server's."""
        return self.folder / "shared"

    def down(self) -> None:
        """End everything in the lab and remove it."""
        remove(self.plan.name)

    # -- commands ------------------------------------------------------------------------------------------------------

    def command(
        self, host: str, command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str = HOME
    ) -> list[str]:
        """The command as this machine would start it: it is on the host, and dies with its starter."""
        variables = [
            f"{key}={value}"
            for key, value in (environment() | {"HOME": HOME, "USER": "root"} | dict(env or {})).items()
        ]
        enter = ["nsenter", f"--target={self._pid(host)}", "--net", "--mount", "--uts", "--ipc", "--pid"]
        dying = ["setpriv", "--pdeathsig", "KILL"]
        return [*enter, "env", "-i", f"--chdir={cwd}", *variables, *dying, *command]

    def run(
        self,
        host: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        timeout_s: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host to its end; a ClusterError with its output if it fails and `check` is set."""
        words = self.command(host, command, env=env)
        try:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"{host}: {shlex.join(command)!r} has not ended within {timeout_s:g} s.") from None
        if check and done.returncode:
            said = f"{done.stdout}\n{done.stderr}".strip()[-3000:]
            raise ClusterError(f"{host}: {shlex.join(command)!r} ended with {done.returncode}: {said}")
        return done

    def start(self, host: str, command: Sequence[str], **options: Any) -> "subprocess.Popen[str]":
        """Start a command on a host; options are those of Popen, `env` adds to the host's own."""
        return subprocess.Popen(self.command(host, command, env=options.pop("env", None)), text=True, **options)

    # -- the network ---------------------------------------------------------------------------------------------------

    def link(self, host: str, **changes: Any) -> Link:
        """Change a host's link, keep what is not named: `up`, `mbit`, `rtt_ms`, `loss`."""
        with self._changed() as plan:
            found = plan.host(host)
            found.link = replace(found.link, **changes)
            if self.is_on(host):
                self._shape(found)
        return found.link

    def cut(self, source: str, target: str) -> None:
        """Packets of one host no longer arrive at another; the other way they do."""
        with self._changed() as plan:
            sender = plan.host(source)
            receiver = plan.host(target)
            if source not in receiver.deaf_to:
                receiver.deaf_to.append(source)
                if self.is_on(target):
                    self._ip(target, f"rule add pref {sender.number} from {sender.address} blackhole")

    def heal(self, source: str, target: str) -> None:
        """The end of a cut."""
        with self._changed() as plan:
            sender = plan.host(source)
            receiver = plan.host(target)
            if source in receiver.deaf_to:
                receiver.deaf_to.remove(source)
                if self.is_on(target):
                    self._ip(target, f"rule del pref {sender.number}")

    # -- power, disk, clock --------------------------------------------------------------------------------------------

    def power_off(self, host: str) -> None:
        """SIGKILL for every process of a host, its cable pulled first: its peers are told nothing. Its disk stays."""
        number = self.plan.host(host).number
        if self.is_on(host):
            self._ip(None, f"link set h{number} down")
        own.kill(self.folder / f"host-{host}.stat")
        own.kill(self.folder / f"relay-{host}.stat")
        self._ip(None, f"link del h{number}", f"link del x{number}", check=False)

    def power_on(self, host: str) -> None:
        """Start a host that is off, with its disk and link as they were; its memory, /etc and processes are gone."""
        if self.is_on(host):
            raise ClusterError(f"{host}: is on.")
        plan = self._read()
        self._boot(plan, plan.host(host))

    def fill(self, host: str) -> None:
        """Write the host's disk full, /tmp and home, to the last byte."""
        self.run(host, ["sh", "-c", f"cat /dev/zero > /tmp/{BALLAST} 2>/dev/null; true"])

    def free(self, host: str) -> None:
        """Remove what `fill` wrote."""
        self.run(host, ["rm", "-f", f"/tmp/{BALLAST}"])

    def clock(self, host: str, ahead_s: float) -> None:
        """Set a host's clock ahead, or behind, for programs that start from now on; until its power is cut."""
        if shutil.which("cc") is None:
            raise ClusterError("the clock of a host is a library that is compiled: apt-get install gcc libc6-dev")
        library = self.folder / f"clock-{host}.so"
        self._pid(host)
        library.unlink(missing_ok=True)  # what runs keeps the old one
        ahead = f"-DAHEAD_MS={round(ahead_s * 1000)}L"
        checked(["cc", "-shared", "-fPIC", "-O2", ahead, "-o", str(library), str(SCRIPTS / "clock.c"), "-ldl"])
        self.run(host, ["sh", "-c", f"echo {library} > /etc/ld.so.preload"])

    # -- inside --------------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        plan = self.plan
        self._write(plan)
        self.shared.mkdir()
        self.shared.chmod(0o1777)
        (self.folder / "hosts").write_text(plan.hosts_file())
        lines = (f"export {key}={shlex.quote(value)}\n" for key, value in environment().items())
        (self.folder / "profile").write_text("".join(lines))
        known = [word for host in plan.hosts.values() for word in (host.name, host.address)]
        _make_keys(self.folder / "ssh", known, environment())
        unshare = ["unshare", "--net", "--mount", "--pid", "--fork"]
        script = ["sh", str(SCRIPTS / "switch.sh"), str(self.folder), str(plan.disk_mb), *plan.hosts]
        detached([*unshare, *script], self.folder / "switch.log")
        self._wait("switch")
        if plan.uplink:
            self._connect_us()
        for host in plan.hosts.values():
            self._boot(plan, host)

    def _boot(self, plan: Plan, host: Host) -> None:
        """Start a host's process 1, give it its network, then its sshd."""
        unshare = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork"]
        script = ["sh", str(SCRIPTS / "host.sh"), str(self.folder), host.name]
        detached([*unshare, *script], self.folder / f"host-{host.name}.log", enter=self._switch())
        pid = self._wait(f"host-{host.name}")
        self._ip(None, f"link add h{host.number} type veth peer name eth0 address {host.mac} netns {pid}")
        self._ip(
            host.name,
            f"addr add {host.address}/{plan.prefix} dev eth0",
            "link set eth0 up",
            "route add default dev eth0",
            "rule add pref 1000 lookup local",  # after the cuts
            "rule del pref 0",
            *(
                f"rule add pref {sender.number} from {sender.address} blackhole"
                for sender in map(plan.host, host.deaf_to)
            ),
        )
        self._shape(host)
        self.run(host.name, ["/usr/sbin/sshd", "-f", str(self.folder / "ssh/sshd_config")])

    def _shape(self, host: Host) -> None:
        """Bring a link's settings into force; connections outlive it."""
        n = host.number
        link = host.link
        relay = self.folder / f"relay-{host.name}.stat"
        if link.is_relayed:
            write_whole(self.folder / f"link-{host.name}", f"{link.rtt_ms / 2000} {link.loss}".encode())
            if own.pid_in(relay) is None:
                self._insert_relay(host)
            else:
                time.sleep(2 * LOOK_S)  # until it has read them
        else:
            own.kill(relay)
            self._ip(None, f"link set h{n} master lab")
            self._ip(None, f"link del x{n}", check=False)
        self._ip(None, f"link set h{n} {'up' if link.up else 'down'}")
        for end, device in ((None, f"h{n}"), (host.name, "eth0")):
            self._limit(end, device, link.mbit)

    def _insert_relay(self, host: Host) -> None:
        """Between the host's end and the bridge: a bridge x, a device l, the relay, a device r."""
        n = host.number
        program = [sys.executable, "-I", "-S", str(SCRIPTS / "relay.py")]
        words = [*program, str(self.folder), host.name, f"l{n}", f"r{n}"]
        detached(words, self.folder / f"relay-{host.name}.log", enter=self._switch())
        self._wait(f"relay-{host.name}")
        self._ip(None, f"link del x{n}", check=False)
        self._ip(
            None,
            f"link add x{n} type bridge forward_delay 0 mcast_snooping 0",
            *(f"link set {device} up" for device in (f"x{n}", f"l{n}", f"r{n}")),
            f"link set l{n} master x{n}",
            f"link set r{n} master lab",
            f"link set h{n} master x{n}",
        )

    def _limit(self, host: str | None, device: str, mbit: float | None) -> None:
        """A token bucket on what leaves this device: 20 ms of it at once, but a whole segment of 64 kB at least."""
        enter = ["nsenter", f"--target={self._pid(host)}", "--net", "tc", "qdisc"]
        if mbit is None:
            subprocess.run([*enter, "del", "dev", device, "root"], capture_output=True, check=False)
            return
        burst = max(65_536, int(mbit * 1e6 / 8 * 0.02))
        bucket = ["tbf", "rate", f"{int(mbit * 1000)}kbit", "burst", f"{burst}b", "latency", "200ms"]
        checked([*enter, "replace", "dev", device, "root", *bucket])

    def _connect_us(self) -> None:
        plan = self.plan
        name = self.plan.uplink_name
        self._ip(None, f"link add outside type veth peer name {name} netns {os.getpid()}")
        self._ip(None, "link set outside master lab up")
        checked(["ip", "addr", "add", f"{plan.our_address}/{plan.prefix}", "dev", name])
        checked(["ip", "link", "set", name, "up"])

    def _ip(self, host: str | None, *lines: str, check: bool = True) -> None:
        """Lines for `ip`, in the network of a host or, with None, of the bridge."""
        words = ["nsenter", f"--target={self._pid(host)}", "--net", "ip"]
        for line in lines if not check else ():
            subprocess.run([*words, *line.split()], capture_output=True, check=False)
        if check:
            checked([*words, "-batch", "-"], given="\n".join(lines) + "\n")

    def _switch(self) -> list[str]:
        return ["nsenter", f"--target={self._pid(None)}", "--net", "--mount", "--pid"]

    def _pid(self, host: str | None) -> int:
        """Process 1 of a host, or of the lab, by the number it has here."""
        if host is not None:
            self.plan.host(host)
        file = self.folder / ("switch.stat" if host is None else f"host-{host}.stat")
        pid = own.pid_in(file)
        if pid is None:
            gone = "is not up" if own.pid_in(self.folder / "switch.stat") is None else f"{host} is off"
            raise ClusterError(f"lab {self.plan.name!r}: {gone}.")
        return pid

    def is_on(self, host: str) -> bool:
        """True if a host has power."""
        return own.pid_in(self.folder / f"host-{host}.stat") is not None

    def _wait(self, what: str) -> int:
        return own.wait_for(self.folder / f"{what}.stat", self.folder / f"{what}.log")

    def _read(self) -> Plan:
        self.plan = Lab.open(self.plan.name).plan
        return self.plan

    def _write(self, plan: Plan) -> None:
        write_whole(self.folder / "plan.json", plan.as_json().encode())

    @contextmanager
    def _changed(self) -> Iterator[Plan]:
        """The plan as it is on disk, written back if all went well."""
        plan = self._read()
        yield plan
        self._write(plan)


def _make_keys(folder: Path, names: Iterable[str], environment: Mapping[str, str]) -> None:
    """One key that opens every host, one by which every host is known, and the settings of sshd."""
    folder.mkdir()
    for file in ("id_ed25519", "host_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(folder / file)], check=True
        )
    known = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text(f"{','.join(names)} {known}")
    (folder / "authorized_keys").write_text((folder / "id_ed25519.pub").read_text())
    words = " ".join(f'"{name}={value}"' for name, value in environment.items())
    (folder / "sshd_config").write_text(SSHD.format(folder=folder, environment=words))
