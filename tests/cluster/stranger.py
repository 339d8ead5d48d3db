"""Commands on a network of their own, and what somebody at another address finds listening there."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ADDRESSES = "10.99.0.1", "fd99::1"
ROOT = Path(__file__).parents[2]
OWN = "&&".join(
    [
        "ip link set lo up",
        *(f"ip address add {address} dev lo" for address in ADDRESSES),
        f"ip route add default dev lo src {ADDRESSES[0]}",
        'exec "$@"',
    ]
)
KNOCK = """
import json, pathlib, socket, sys
ports = {}
for table in ("tcp", "tcp6"):
    for line in pathlib.Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A":  # listens
            ports[words[9]] = int(words[1].rpartition(":")[2], 16)
names = {}
for link in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
    try:
        inode = str(link.readlink()).removeprefix("socket:[").rstrip("]")
        if inode in ports:
            names[inode] = (link.parents[1] / "comm").read_text().strip()
    except OSError:
        pass
found = []
for inode, port in ports.items():
    open_at = []
    for address in sys.argv[1:]:
        try:
            socket.create_connection((address, port), 5).close()
            open_at.append(address)
        except OSError:
            pass
    found.append({"port": port, "process": names.get(inode, ""), "open_at": open_at})
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Listener:
    """A port that a process listens on."""

    port: int
    process: str
    open_at: list[str]
    """The addresses beyond loopback at which it answers."""


def alone(command: Sequence[str], **options: Any) -> "subprocess.Popen[str]":
    """A command on a network of its own, in which this machine has loopback and two other addresses."""
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return subprocess.Popen(["unshare", "--net", *as_root, "sh", "-c", OWN, "sh", *command], text=True, **options)


def beside(
    process: "subprocess.Popen[str]", command: Sequence[str], **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command on the network of another."""
    as_root = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
    words = ["nsenter", "--net", *as_root, f"--target={process.pid}", *command]
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


def listeners(process: "subprocess.Popen[str]") -> list[Listener]:
    """Everything that listens on the network of the process."""
    found = beside(process, [sys.executable, "-c", KNOCK, *ADDRESSES], timeout=120)
    assert found.returncode == 0, found.stderr
    return [Listener(**each) for each in json.loads(found.stdout)]
