"""Nobody at another address gets in: what commands listen on, and who can join the Ray that they start."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from loomrl.own_ray import ADDRESS, LOOPBACK, TOKEN
from loomrl.store import open_store
from loomrl.store.endpoints import Arm, set_endpoint
from tests.cluster.stranger import ROOT, alone, beside, listeners
from tests.needs import needs
from tests.serving.control_support import control_policy

pytestmark = [pytest.mark.system, needs("namespaces")]

RUN = """
import sys
import ray
ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
print(ray.get(ray.remote(num_cpus=0)(lambda: 6 * 7).remote()))
"""
JOIN = (
    """
import sys
from loomrl.cluster.address import refuse_silent
from loomrl.errors import ClusterError
try:
    refuse_silent(sys.argv[1])
except ClusterError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""
    + RUN
)
HERE = """
import signal, sys
from loomrl.own_ray import own_ray
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with own_ray(num_cpus=1):
    print("a Ray of its own", flush=True)
    signal.pause()
"""
STRANGERS = {"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "x" * 64}
LINES = {
    "train": [
        *("control/cartpole", "rollout.runners=1", "train.steps=100000000", "train.stop.target=1e9"),
        "evaluation.every=null",
    ],
    "sweep": ["cartpole"],
    "serve": ["pole", "--port", "8123", "--json"],
    "console": ["--port", "8010", "--launch", "launched"],
    "loop": ["loop/tiny", "--port", "8100"],
}


def has_trained(folder: Path) -> bool:
    return any(file.stat().st_size for file in folder.glob("runs/*/metrics.jsonl"))


def says(text: str) -> Callable[[Path], bool]:
    return lambda folder: text in (folder / "out").read_text()


READY: Mapping[str, Callable[[Path], bool]] = {
    "ray": says("a Ray of its own"),
    "train": has_trained,
    "sweep": has_trained,
    "serve": says('"curl"'),
    "console": says("console of"),
    "loop": says("training service of"),
}


@contextmanager
def running(folder: Path, name: str, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """A command on a network of its own, from when it is at work until the context ends."""
    if name in ("serve", "console", "loop"):
        control_policy().save(folder / "pole")
        with open_store(f"sqlite:///{folder}/loom.db") as db:
            set_endpoint(db, "policy", [Arm(name="stable", policy=str(folder / "pole"))], at=1.0)
    away = ("RAY_AUTH", "RAY_ADDRESS", LOOPBACK)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(away)}
    env = kept | {"HOME": str(folder), "RAY_TMPDIR": str(folder), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    program = ["-c", HERE] if name == "ray" else ["-m", "loomrl", name, *LINES[name], *words]
    with (folder / "out").open("w") as out:
        process = alone([sys.executable, "-P", *program], cwd=folder, env=env, stdout=out, stderr=out)
    try:
        while not READY[name](folder):
            assert process.poll() is None, (folder / "out").read_text()[-3000:]
            time.sleep(0.1)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def join(
    process: "subprocess.Popen[str]", place: Path, program: str, limit_s: float = 120.0, **auth: str
) -> subprocess.CompletedProcess[str]:
    """A program that joins the Ray whose folder this is, from the same machine and with these credentials."""
    env = {"HOME": str(place), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), LOOPBACK: "0"} | auth
    words = [sys.executable, "-P", "-c", program, (place / ADDRESS).read_text()]
    return beside(process, words, env=env, cwd=place, timeout=limit_s)


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short name, which Ray's sockets want."""
    folder = Path("/tmp") / f"loom-{os.getpid()}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
def test_a_ray_of_ours_is_on_loopback_and_lets_in_who_has_its_token(short: Path) -> None:
    with running(short, "ray") as process:
        found = listeners(process)
        assert len(found) > 8, found
        assert [each for each in found if each.open_at] == []

        (place,) = short.glob("loomrl-*")
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        assert stat.S_IMODE((place / TOKEN).stat().st_mode) == 0o600

        for stranger in STRANGERS:
            refused = join(process, place, JOIN, **stranger)
            assert refused.stdout == ""
            assert "ClusterError" in refused.stderr
            assert "expects another token" in refused.stderr
        friend = join(process, place, JOIN, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(place / TOKEN))
        assert friend.stdout == "42\n", friend.stderr
    assert not place.exists()
    assert not (short / ".ray").exists(), "a token in the user's home"


@pytest.mark.slow
def test_ray_itself_lets_nobody_run_code_without_the_token(short: Path) -> None:
    with running(short, "ray") as process:
        (place,) = short.glob("loomrl-*")
        for stranger in STRANGERS:
            printed = ""
            with suppress(subprocess.TimeoutExpired):  # Ray may try for minutes
                refused = join(process, place, RUN, limit_s=30.0, **stranger)
                assert refused.returncode != 0
                printed = refused.stdout
            assert not printed


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LINES)
def test_nothing_listens_beyond_loopback_unasked(short: Path, name: str) -> None:
    with running(short, name) as process:
        found = listeners(process)
        assert found
        assert [each for each in found if each.open_at] == []
    assert not (short / ".ray").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
@needs("HAProxy")
def test_of_a_service_on_all_addresses_only_its_front_is_reached(short: Path) -> None:
    with running(short, "serve", "--host", "0.0.0.0") as process:
        opened = {each.port for each in listeners(process) if each.open_at}
    told = json.loads((short / "out").read_text().splitlines()[-1])
    assert opened == {int(told["url"].rpartition(":")[2])} == {8123}
