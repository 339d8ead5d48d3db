"""Real Ray clusters on this machine, started by their own command, and an interpreter that has no LoomRL."""

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import typer

from loomrl.experiments.cli import app

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-that-only-this-test-knows"
AUTH = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@contextmanager
def process(command: list[str], *, log: Path, env: Mapping[str, str], cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    """In a group of its own, which is ended whole."""
    with log.open("wb") as out:
        started = subprocess.Popen(
            command, env=dict(env), cwd=cwd, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            yield started
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    started.wait(timeout=5)
                os.killpg(started.pid, signal.SIGKILL)
            started.wait(timeout=20)


def bare_python(folder: Path) -> Path:
    """An interpreter with everything that is installed here, but LoomRL."""
    venv.create(folder, symlinks=True)
    site = next((folder / "lib").glob("python*")) / "site-packages"
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "loomrl" not in entry.name.lower() and not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def environment(python: Path, **more: str) -> dict[str, str]:
    """Of a Ray process: nothing of ours on the path."""
    left_out = ("RAY_", "PYTHONPATH", "LOOMRL_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    path = f"{python.parent}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    return env | {"PATH": path, "OMP_NUM_THREADS": "1", "RAY_DISABLE_DOCKER_CPU_WARNING": "1"} | more


def wait_until(is_so: Callable[[], bool], what: str, log: Path, seconds: float = 200) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"{what}:\n{log.read_text()[-3000:]}"
        time.sleep(0.2)


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/api/version", timeout=2).status_code in (200, 401)
    except httpx.HTTPError:
        return False


def cli(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """`loomrl …` in a process of its own, as on a laptop."""
    left_out = ("RAY_",)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return subprocess.run(
        [sys.executable, "-m", "loomrl", *words],
        env=inherited | {"PYTHONPATH": f"{ROOT}", "OMP_NUM_THREADS": "1"} | env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@dataclass
class RayCluster:
    """A head, and nodes that join it, each started by `ray start`."""

    folder: Path
    temporary: str
    ports: Callable[[], int]
    python: Path
    env: Mapping[str, str]
    stack: ExitStack
    address: str
    url: str

    def start(self, name: str, *words: str, cpus: int, resources: Mapping[str, int]) -> subprocess.Popen[bytes]:
        """A Ray process with a log and a folder of this name."""
        own = [f"--temp-dir={self.temporary}/{name}", f"--dashboard-agent-listen-port={self.ports()}"]
        room = [f"--num-cpus={cpus}", f"--resources={json.dumps(resources)}"]
        command = [str(self.python), "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
        started = process([*command, *words, *own, *room], log=self.log(name), env=self.env, cwd=self.folder)
        return self.stack.enter_context(started)

    def join(self, name: str, *, cpus: int = 1, **resources: int) -> subprocess.Popen[bytes]:
        """A node."""
        return self.start(name, f"--address={self.address}", cpus=cpus, resources=resources)

    def log(self, name: str) -> Path:
        """Its log."""
        return self.folder / f"{name}.log"


@contextmanager
def ray_of_its_own(
    folder: Path,
    ports: Callable[[], int],
    *,
    cpus: int,
    python: Path = Path(sys.executable),
    env: Mapping[str, str] | None = None,
    dashboard: bool = True,
    **resources: int,
) -> Iterator[tuple[RayCluster, subprocess.Popen[bytes]]]:
    """A cluster of a head that answers, and the head."""
    temporary = tempfile.mkdtemp(prefix="ray-")  # a short name, for sockets; nodes of other machines share no folder
    address, url = (f"127.0.0.1:{ports()}", f"http://127.0.0.1:{ports()}")
    env = environment(python, **AUTH) if env is None else env
    words = ["--head", f"--port={address.rpartition(':')[2]}", "--node-ip-address=127.0.0.1"]
    words += [f"--ray-client-server-port={ports()}", f"--include-dashboard={str(dashboard).lower()}"]
    words += ["--dashboard-host=127.0.0.1", f"--dashboard-port={url.rpartition(':')[2]}"]
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        made = RayCluster(folder, temporary, ports, python, env, stack, address, url)
        head = made.start("head", *words, cpus=cpus, resources=resources)
        log = made.log("head")
        is_up = (lambda: answers(url)) if dashboard else (lambda: "Ray runtime started" in log.read_text())
        wait_until(is_up, "the head does not answer", log)
        yield made, head


def assert_parses(words: list[str]) -> None:
    """`loomrl WORDS` is a command of ours, with options that it has."""
    root: Any = typer.main.get_command(app)
    command = root
    with root.make_context("loomrl", list(words), resilient_parsing=False) as context:
        while hasattr(command, "commands"):
            name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
            context = command.make_context(name, words, parent=context)
