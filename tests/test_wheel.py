"""The wheel, in a fresh environment, used from an empty folder."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that holds our wheel; its dependencies are borrowed from this one."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(build, check=True, timeout=240)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "fresh")], check=True, timeout=240)
    python = folder / "fresh" / "bin" / "python"
    (wheel,) = folder.glob("loomrl-*.whl")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", str(wheel)], check=True, timeout=240)
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
    from_wheel = run(installed, tmp_path, "python", "-c", "import loomrl; print(loomrl.__file__)").stdout
    assert str(installed.parent) in from_wheel


@pytest.mark.parametrize("name", ["envs", "algorithms", "cluster", "experiments"])
def test_folder_that_shadows_ours_is_named_by_the_first_command(installed: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    done = run(installed, tmp_path, "loomrl", "show", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert str(tmp_path / name) in done.stderr
    assert "Rename" in done.stderr
    assert run(installed, tmp_path, "loomrl", "show").returncode == 0
