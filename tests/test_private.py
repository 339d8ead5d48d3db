"""Weights, answers and feedback are for the user who made them; others on the machine can read none of it."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from loomrl.artifacts import open_artifacts
from loomrl.bus.bus import Message
from loomrl.bus.client import Spool
from loomrl.config import Records
from loomrl.experiments.coordinate.work import LocalWork
from loomrl.experiments.doctor import close_to_others, exposed
from loomrl.files import make_private, private
from loomrl.run.record import run_folder
from loomrl.telemetry.sink import JsonLines


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, str]:
    """Mode by path, of the root and of all below."""
    return {str(path.relative_to(root.parent)): f"{stat.S_IMODE(path.stat().st_mode):o}"
            for path in (root, *root.rglob("*"))}  # fmt: skip


def test_artifacts_are_private(tmp_path: Path) -> None:
    artifacts = open_artifacts(str(tmp_path / "artifacts"))
    artifacts.put("runs/one/bytes", b"x")
    (tmp_path / "model" / "deep").mkdir(parents=True)
    (tmp_path / "model" / "deep" / "weights").write_bytes(b"y")
    artifacts.put_folder("runs/one/000001", tmp_path / "model")
    found = modes(tmp_path / "artifacts")
    assert {mode for path, mode in found.items() if (tmp_path / path).is_dir()} == {"700"}, found
    assert {mode for path, mode in found.items() if (tmp_path / path).is_file()} == {"600"}, found


def test_runs_spools_and_work_are_private(tmp_path: Path) -> None:
    folder = run_folder(Records(folder=str(tmp_path / "runs")), "mine")
    JsonLines(folder / "metrics.jsonl", step=0).close()
    assert modes(tmp_path / "runs") == {"runs": "700", "runs/mine": "700", "runs/mine/metrics.jsonl": "600"}
    spool = Spool(tmp_path / "spool")
    spool.put(Message(subject="s", payload=b"x", id="1", headers={}))
    assert sorted(modes(spool.folder).values()) == ["600", "700"]
    LocalWork(tmp_path / "work").look("job")
    assert modes(tmp_path / "work") == {"work": "700", "work/job": "700", "work/job/lock": "600"}


def test_a_folder_that_others_share_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o755)
    make_private(tmp_path / "shared")
    make_private(tmp_path / "shared" / "a" / "b")
    assert modes(tmp_path / "shared") == {"shared": "755", "shared/a": "700", "shared/a/b": "700"}


def test_an_opener_makes_private_files(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w", opener=private) as made:
        made.write("x")
    assert f"{stat.S_IMODE((tmp_path / 'file').stat().st_mode):o}" == "600"


def test_the_doctor_names_what_others_can_read_and_how_to_close_it(tmp_path: Path) -> None:
    (tmp_path / "artifacts").mkdir(mode=0o755)
    (tmp_path / "runs").mkdir(mode=0o700)
    for name in ("loom.db", "loom.db-wal", "loom-run 1.db", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "loom-closed.db").touch(mode=0o600)
    found = exposed(tmp_path)
    assert [Path(path).name for path in found] == ["artifacts", "loom-run 1.db", "loom.db", "loom.db-wal"]
    assert os.system(close_to_others(found)) == 0
    assert exposed(tmp_path) == []
