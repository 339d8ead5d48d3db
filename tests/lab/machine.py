"""This machine as a lab needs it: what must be here, what must be free, and what is removed in the end."""

import contextlib
import ipaddress
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from loomrl.errors import ClusterError
from tests.lab import own
from tests.lab.plan import Plan, check_name

ROOT = Path("/var/lib/loomrl-lab")
"""A folder for every lab; root's alone, and seen by the hosts."""
HOME = "/tmp/home"
OWN = ("/tmp", "/run", "/etc", "/dev/shm")
"""Folders that a host has for itself, so that it does not see this machine's."""
PROGRAMS = {
    **dict.fromkeys(("ip", "tc"), "iproute2"),
    **dict.fromkeys(("unshare", "nsenter", "setpriv"), "util-linux"),
    "mount": "mount",
    "/usr/sbin/sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
}
"""Program → the package that has it, on Debian."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OLD_ENOUGH_S = 2.0


def check_machine() -> None:
    """A ClusterError unless we may make a lab, can, and its hosts would find this Python."""
    if not sys.platform.startswith("linux"):
        raise ClusterError(f"a lab is made of Linux namespaces; this is {sys.platform}.")
    if os.geteuid() != 0:
        raise ClusterError("a lab needs root: it makes network, mount and process namespaces. Run it as root.")
    missing = {package: program for program, package in PROGRAMS.items() if shutil.which(program) is None}
    if missing:
        raise ClusterError(f"a lab needs {', '.join(missing.values())}: apt-get install {' '.join(missing)}")
    for path in (Path(sys.prefix), Path(sys.base_prefix), Path(__file__).resolve()):
        if not is_seen(path):
            raise ClusterError(f"{path}: hosts of a lab have their own {', '.join(OWN)}. Install LoomRL elsewhere.")


def is_seen(path: Path) -> bool:
    """True if hosts see this folder of the machine."""
    return not any(path.is_relative_to(folder) for folder in OWN)


def refuse_taken(plan: Plan) -> None:
    """A ClusterError if the uplink's network overlaps one of this machine's, or its name is taken."""
    if Path("/sys/class/net", plan.uplink_name).exists():
        raise ClusterError(f"interface {plan.uplink_name!r} is there already. Take another name for the lab.")
    whole = ipaddress.ip_network(plan.network)
    said = subprocess.run(["ip", "-j", "-4", "route", "show", "table", "all"], capture_output=True, check=True).stdout
    for route in json.loads(said):
        if route["dst"] != "default" and ipaddress.ip_network(route["dst"], strict=False).overlaps(whole):
            raise ClusterError(
                f"network={plan.network}: overlaps {route['dst']}, which {route.get('dev', 'this machine')} has. "
                "Take another network, or no uplink."
            )


def names() -> list[str]:
    """The labs of this machine, those too whose tool was killed."""
    return sorted(folder.name for folder in ROOT.iterdir()) if ROOT.is_dir() else []


def remove(name: str) -> None:
    """End a lab and remove it, whatever is left of it. Only its own process 1 is killed; the kernel ends the others."""
    check_name(name)
    folder = ROOT / name
    if not folder.is_dir():
        raise ClusterError(f"lab {name!r}: is not there. Labs: {', '.join(names()) or 'none'}.")
    while own.pid_in(folder / "switch.stat") is None and time.time() - folder.stat().st_mtime < OLD_ENOUGH_S:
        time.sleep(0.05)  # whoever started it was killed, and it is about to say its number
    own.kill(folder / "switch.stat")
    with contextlib.suppress(OSError, ValueError):
        _wait_for_uplink(Plan.from_json((folder / "plan.json").read_text()))
    shutil.rmtree(folder)
    with contextlib.suppress(OSError):  # other labs are there
        ROOT.rmdir()


def environment() -> dict[str, str]:
    """Of everything on a host: this Python first on the path, and nothing of the caller's."""
    python = Path(sys.executable).parent
    return {"PATH": f"{python}:{SYSTEM_PATH}", "LANG": "C.UTF-8"}


def detached(words: Sequence[str], log: Path, *, enter: Sequence[str] = ()) -> None:
    """Start a program that outlives us, as nobody's child; what it says is in the log."""
    script = 'log=$1; shift; "$@" < /dev/null > "$log" 2>&1 &'
    subprocess.run([*enter, "sh", "-c", script, "sh", str(log), *words], start_new_session=True, check=True)


def checked(words: Sequence[str], *, given: str = "") -> None:
    """Run a program of the system; a ClusterError with its own words if it fails."""
    done = subprocess.run(words, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        said = f"{done.stdout}{done.stderr}".strip()
        raise ClusterError(f"{' '.join(words)} ended with {done.returncode}: {said} {given.strip()}")


def _wait_for_uplink(plan: Plan) -> None:
    """The kernel removes it with the network at its other end, a moment later."""
    until = time.monotonic() + own.PATIENCE_S
    while plan.uplink and Path("/sys/class/net", plan.uplink_name).exists() and time.monotonic() < until:
        time.sleep(0.01)
