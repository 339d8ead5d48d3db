"""The wheel, in a fresh environment, used from an empty folder."""

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.system


@pytest.fixture(scope="module", params=["wheel", "editable"])
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


def run(installed: Path, folder: Path, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
    command = [str(installed / words[0]), *words[1:]]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


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
COMMANDS = [
    ("show", "language/math_tiny"),
    ("doctor",),
    ("envs", "list"),
    ("evaluate", "own.yaml", "--policy", "oracle"),
    pytest.param(("train", "own.yaml", "rollout.runners=1", "--run", "own"), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("path", [pytest.param("", marks=pytest.mark.slow), "."], ids=["", "on-the-path"])
def test_packages_of_somebody_that_are_called_like_ours(
    installed: Path, tmp_path: Path, words: tuple[str, ...], path: str
) -> None:
    for name in OWN:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    (tmp_path / "envs" / "math.py").write_text((ROOT / "tests" / "gym" / "sample_envs.py").read_text())
    (tmp_path / "own.yaml").write_text(OWN_EXPERIMENT)
    done = run(installed, tmp_path, "loomrl", *words, **({"PYTHONPATH": path} if path else {}))
    assert done.returncode == 0, done.stderr


OWN_EXPERIMENT = """
name: own
environments: [{id: "envs.math:GuessEnvironment"}]
algorithm:
  kind: grpo
  model: {build: {hidden_size: 64, intermediate_size: 128, layers: 2, heads: 2, vocabulary: 400}, context: 128}
  sampling: {max_tokens: 8}
  warm_start: {steps: 10, batch_size: 16}
rollout: {group_size: 4, groups_per_update: 4}
train: {updates: 2}
evaluation: {episodes: 16, levels: [1]}
"""
