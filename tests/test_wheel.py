"""The wheel and the editable installation: from an empty folder, and from one whose packages are called like ours."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import httpx
import pytest

from tests.cluster.cluster_support import process, ray_of_its_own, wait_until

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.system


@pytest.fixture(scope="module", params=["wheel", pytest.param("editable", marks=pytest.mark.slow)])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that holds LoomRL; its dependencies are borrowed from this one."""
    folder = tmp_path_factory.mktemp(request.param)
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    given = [str(ROOT)] if request.param == "wheel" else ["--editable", str(ROOT)]
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", *given]
    subprocess.run(install, check=True, timeout=240)
    where = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    (Path(where.stdout.strip()) / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return python.parent


def run(
    installed: Path, folder: Path, *words: str, timeout: float = 120, **env: str
) -> "subprocess.CompletedProcess[str]":
    command = [str(installed / words[0]), *words[1:]]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=timeout)


def test_wheel_works_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    words = ("loomrl", "evaluate", "math", "evaluation.episodes=40", "--policy", "oracle", "--json")
    done = run(installed, tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["policies"]["oracle"]["overall"]["success"]["mean"] == 1.0
    where = run(installed, tmp_path, "python", "-c", "import loomrl; print(loomrl.__file__)").stdout
    assert where.startswith((str(installed.parent), str(ROOT)))
    own = run(installed, tmp_path, "python", "-c", "import importlib.util as u; print(u.find_spec('envs'))").stdout
    assert own.strip() == "None"


OWN = ("algorithms", "cluster", "envs", "experiments", "tests")
GUESS = (ROOT / "tests" / "gym" / "sample_envs.py").read_text()
Layout = Literal["packages", "modules"]


def their_folder(folder: Path, layout: Layout) -> Path:
    """A folder whose own packages, or modules, are called like ours; `own.yaml` trains in an environment of theirs."""
    for name in OWN:
        file = folder / name / "__init__.py" if layout == "packages" else folder / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"WHOSE = 'theirs: {name}'\n" + (GUESS if name == "envs" else ""))
    (folder / "own.yaml").write_text(OWN_EXPERIMENT)
    (folder / "own.py").write_text(THEIR_PROGRAM)
    return folder


OWN_EXPERIMENT = """
name: own
environments: [{id: "envs:GuessEnvironment"}]
algorithm:
  kind: grpo
  model: {build: {hidden_size: 64, intermediate_size: 128, layers: 2, heads: 2, vocabulary: 400}, context: 128}
  sampling: {max_tokens: 8}
  warm_start: {steps: 10, batch_size: 16}
rollout: {group_size: 4, groups_per_update: 4}
train: {updates: 2}
evaluation: {episodes: 16, levels: [1]}
"""
THEIR_PROGRAM = f"""
import importlib
for name in {OWN}:
    print(importlib.import_module(name).WHOSE)
import envs, loomrl.algorithms, loomrl.cluster, loomrl.experiments.cli
from loomrl.envs.math import MathEnvironment
print(envs.GuessEnvironment().version, MathEnvironment.name)
"""
COMMANDS = [
    ("loomrl", "--help"),
    ("loomrl", "show", "language/math_tiny", "hub.lease_s=30"),
    ("loomrl", "doctor"),
    ("loomrl", "envs", "list"),
    ("loomrl", "envs", "show", "Math", "--family", "calculus.tangent"),
    ("loomrl", "evaluate", "own.yaml", "--policy", "oracle"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("layout", "path"),
    [
        pytest.param("packages", "", marks=pytest.mark.slow),
        ("packages", "."),
        pytest.param("modules", ".", marks=pytest.mark.slow),
    ],
)
def test_commands_beside_packages_of_somebody_that_are_called_like_ours(
    installed: Path, tmp_path: Path, words: tuple[str, ...], layout: Layout, path: str
) -> None:
    folder = their_folder(tmp_path, layout)
    done = run(installed, folder, *words, **({"PYTHONPATH": path} if path else {}))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("layout", ["packages", "modules"])
def test_a_program_of_somebody_imports_theirs_and_ours(installed: Path, tmp_path: Path, layout: Layout) -> None:
    done = run(installed, their_folder(tmp_path, layout), "python", "own.py")
    assert done.stdout.splitlines() == [*(f"theirs: {name}" for name in OWN), "1.2.0 Math"], done.stderr


TINY = (
    *("algorithm.warm_start.steps=5", "algorithm.warm_start.batch_size=8", "rollout.groups_per_update=2"),
    *("rollout.group_size=4", "train.updates=2", "train.checkpoint_every=1", "evaluation.episodes=8"),
)
MINE = ("train", "language/math_tiny_grpo", "seed=2", "--run", "mine", *TINY)
README = [
    [("train", "language/math_tiny", *TINY)],  # `make demo`
    [
        ("train", "--resume", "--run", "mine"),
        ("evaluate", "mine", "--temperature", "1"),
        ("policies", "show", "mine/2"),
    ],
    [("train", "language/pool_tiny", *TINY)],
    [("train", "own.yaml", "rollout.runners=1", "--run", "own")],
    [
        ("train", "control/cartpole", "seed=1", "--run", "pole", "train.steps=2048", "train.checkpoint_every=2048"),
        ("evaluate", "pole", "--episodes", "5"),
    ],
    [("evaluate", "math", "--policy", "oracle", "--policy", "random", "evaluation.episodes=20")],
    [("envs", "check", "LogicPuzzle", "--jobs", "2")],
    [("sweep", "cartpole", "samples=2", "budget=4096", "scheduler.grace=2048")],
]
"""The README's commands, with less to do. `envs check --all` is the check of each environment."""


@pytest.fixture(scope="module")
def theirs(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody's folder, in which the run `mine` was trained."""
    folder = their_folder(tmp_path_factory.mktemp("theirs"), "packages")
    succeeds(installed, folder, *MINE)
    return folder


def succeeds(installed: Path, folder: Path, *words: str) -> None:
    done = run(installed, folder, "loomrl", *words, timeout=500, **surroundings(folder))
    assert done.returncode == 0, f"loomrl {' '.join(words)}:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"


def surroundings(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": ".", "HOME": str(folder), "PATH": os.environ["PATH"]}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("commands", README, ids=lambda commands: " ".join(commands[0][:2]))
def test_the_readme_works_beside_packages_of_somebody(
    installed: Path, theirs: Path, commands: list[tuple[str, ...]]
) -> None:
    for words in commands:
        succeeds(installed, theirs, *words)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_service_and_a_release_work_beside_packages_of_somebody(
    installed: Path, theirs: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    url, env = f"http://127.0.0.1:{(port := unused_tcp_port_factory())}", surroundings(theirs)
    serve = [str(installed / "loomrl"), "serve", "mine/0", "--port", str(port)]
    with process(serve, log=theirs / "serve.log", env=env, cwd=theirs):
        wait_until(lambda: is_ready(url), "the service does not answer", theirs / "serve.log", seconds=500)
        asked = {"model": "policy", "messages": [{"role": "user", "content": "2 + 2?"}], "max_tokens": 4}
        answer = httpx.post(f"{url}/v1/chat/completions", json=asked, timeout=60)
        assert answer.headers["x-loomrl-version"] == "mine/0", answer.text
        succeeds(installed, theirs, "release", "mine/2", "--to", "policy", "--no-gate", "a test")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_job_is_submitted_beside_packages_of_somebody(
    installed: Path, theirs: Path, tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    env = surroundings(tmp_path)
    path = f"{installed}{os.pathsep}{env['PATH']}"
    there = env | {"PATH": path, "PYTHONPATH": ""}
    with ray_of_its_own(tmp_path, unused_tcp_port_factory, cpus=3, python=installed / "python", env=there) as (
        cluster,
        _,
    ):
        succeeds(installed, theirs, "submit", "own.yaml", "--run", "job", "--address", cluster.url)


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False
