"""A job's parcel: all that it needs, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from loomrl.cluster import bundle as module
from loomrl.cluster.bundle import bundle
from loomrl.errors import ClusterError
from loomrl.experiments.shipped import resolve
from loomrl.load import load


def names(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder that somebody works in."""
    folder = tmp_path / "here"
    for name in (".venv/lib/x.py", "runs/r/metrics.jsonl", "artifacts/a", "loom.db", "my_env.py", "data/huge.bin"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / ".gitignore").write_text("/data/\n")
    return folder


@pytest.mark.parametrize("is_git", [True, False])
def test_a_job_takes_our_packages_your_files_and_the_resolved_experiment(
    here: Path, tmp_path: Path, is_git: bool
) -> None:
    if is_git:
        subprocess.run(["git", "init", "-q"], cwd=here, check=True)
    experiment = resolve(["language/math_tiny", "seed=7"])
    parcel = bundle(experiment, _empty(tmp_path), here=here)
    taken = names(parcel.folder)
    own = {name for name in taken if Path(name).parts[0] != "loomrl"}
    assert {"my_env.py", "experiment.yaml"} <= own
    assert not any(name.startswith((".venv", "runs", "artifacts", "loom.db", ".git")) for name in taken)
    assert ("data/huge.bin" in taken) is not is_git
    assert not any("__pycache__" in name for name in taken)
    assert parcel.files == len(taken)
    assert "MB" in parcel.size
    assert load([parcel.folder / "experiment.yaml"]).sha256 == experiment.sha256


def test_where_nothing_is_installed_the_parcel_announces_our_environments(here: Path, tmp_path: Path) -> None:
    parcel = bundle(resolve(["math"]), _empty(tmp_path), here=here)
    code = "from importlib.metadata import entry_points as e; print([x.value for x in e(group='loomrl.environments')])"
    said = subprocess.run([sys.executable, "-S", "-c", code], cwd=parcel.folder, capture_output=True, text=True)
    assert "loomrl.envs.math:MathEnvironment" in said.stdout
    code = "import loomrl.envs.math, loomrl.experiments.cli as cli; print(loomrl.envs.math.__file__, cli.__file__)"
    said = subprocess.run([sys.executable, "-c", code], cwd=parcel.folder, capture_output=True, text=True)
    assert all(file.startswith(str(parcel.folder)) for file in said.stdout.split()), said


def test_a_folder_that_is_too_large_is_refused_by_name(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIMIT_MB", 3)
    (here / "weights.bin").write_bytes(b"0" * 4_000_000)
    with pytest.raises(ClusterError, match=r"weights.bin \(4 MB\)"):
        bundle(resolve(["math"]), _empty(tmp_path), here=here)


def _empty(tmp_path: Path) -> Path:
    folder = tmp_path / "parcel"
    folder.mkdir()
    return folder
