"""The files of a job: LoomRL's own packages, the files of the folder it is submitted from, and its experiment."""

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import loomrl
from loomrl.config import Root
from loomrl.errors import ClusterError
from loomrl.load import dump

PACKAGES = ("loomrl", "loomrl.algorithms", "loomrl.cluster", "loomrl.envs", "loomrl.experiments")
"""In a checkout each has a folder of its own; in a wheel, and in a job's files, they are nested."""
EXPERIMENT = "experiment.yaml"
"""The resolved experiment, at the top level."""
LEFT_OUT = (
    *(".git", ".gitignore", ".venv*", "venv", "__pycache__", "*.py[cod]", "*.egg-info", "node_modules", ".*_cache"),
    *("runs", "artifacts", "wandb", "loom*.db*", ".hypothesis", ".DS_Store"),
)
"""Always excluded, whether git ignores them or not."""
LIMIT_MB = 200


@dataclass(frozen=True, slots=True)
class Bundle:
    """A folder and its contents."""

    folder: Path
    files: int
    bytes: int

    @property
    def size(self) -> str:
        """Its size in words."""
        return f"{self.files} files, {self.bytes / 1e6:.1f} MB"


def bundle(experiment: Root, into: Path, *, here: Path | None = None) -> Bundle:
    """Gather all files in the empty folder `into`; a ClusterError if they are too large for a job."""
    packed(into)
    here = (here or Path.cwd()).resolve()
    for name in _files(here):
        if not (into / name).exists():
            _copy(here / name, into / name)
    (into / EXPERIMENT).write_text(dump(experiment), encoding="utf-8")
    sizes = {str(file.relative_to(into)): file.stat().st_size for file in into.rglob("*") if file.is_file()}
    total = sum(sizes.values())
    if total > LIMIT_MB * 1e6:
        largest = ", ".join(f"{n} ({sizes[n] / 1e6:.0f} MB)" for n in sorted(sizes, key=sizes.__getitem__)[:-4:-1])
        raise ClusterError(
            f"{here}: {total / 1e6:.0f} MB to take along, of at most {LIMIT_MB}. The largest: {largest}. Name what the "
            "job does not need in .gitignore, put data where the cluster can read it, or submit from another folder."
        )
    return Bundle(into, len(sizes), total)


def packed(into: Path) -> None:
    """Copy LoomRL's packages, and the entry points that an installed LoomRL would announce."""
    for package in PACKAGES:
        target = into.joinpath(*package.split("."))
        if not target.exists():
            shutil.copytree(_home(package), target, ignore=shutil.ignore_patterns(*LEFT_OUT))
    announced = [entry for entry in importlib.metadata.entry_points(group="loomrl.environments")
                 if entry.value.startswith("loomrl.")]  # fmt: skip
    facts = into / f"loomrl-{loomrl.__version__}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: loomrl\nVersion: {loomrl.__version__}\n")
    lines = sorted({f"{entry.name} = {entry.value}" for entry in announced})
    (facts / "entry_points.txt").write_text("\n".join(["[loomrl.environments]", *lines, ""]))


def _home(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def _files(folder: Path) -> Iterator[str]:
    """Relative names of a folder's files: those that git does not ignore; without git, all but the excluded ones."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    names = listed.stdout.split("\0") if listed.returncode == 0 else _walk(folder)
    for name in names:
        if name and (folder / name).is_file() and not _is_left_out(name):
            yield name


def _walk(folder: Path) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not _is_left_out(name)]
        yield from (str((Path(place) / name).relative_to(folder)) for name in files)


def _is_left_out(name: str) -> bool:
    return any(fnmatch(part, pattern) for part in Path(name).parts for pattern in LEFT_OUT)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
