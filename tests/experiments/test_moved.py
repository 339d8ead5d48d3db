"""A run's folder and its database may move together; what is gone is named as gone."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from experiments.cli import app
from loomrl.errors import ArtifactError, LoomError

pytestmark = [
    pytest.mark.system,
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]
SMALL = ["train.steps=512", "evaluation.episodes=2", "evaluation.every=null"]


def run_json(*words: str) -> Any:
    done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Path:
    folder = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_json("train", "control/cartpole", *SMALL, "--run", "pole")
    return folder


def last(folder: Path) -> str:
    """The artifact's name of the last version."""
    return max(folder.glob("artifacts/runs/pole/*")).relative_to(folder / "artifacts").as_posix()


def version(folder: Path) -> str:
    return f"pole/{int(last(folder).rpartition('/')[2])}"


@pytest.fixture
def moved(trained: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy elsewhere, with nothing left where it was made."""
    folder = tmp_path / "zweiter Ort, ü"
    shutil.copytree(trained, folder)
    aside = trained.with_name("aside")
    trained.rename(aside)
    yield folder
    aside.rename(trained)


def test_moved_run_is_judged_exported_traced_and_resumed(moved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(moved)
    judged = run_json("evaluate", "pole", "--episodes", "2")["policies"]
    assert judged["pole"]["overall"]["episodes"] == 2
    exported = run_json("export", version(moved), "out")["policy"]
    assert exported == version(moved)
    assert run_json("lineage", exported)["url"] == last(moved)
    resumed = run_json("train", "--resume", "--run", "pole", "control/cartpole")
    assert resumed["policy"] == exported
    assert not list(moved.parent.glob("first*"))


def test_moved_run_is_found_beside_its_database_from_any_folder(
    moved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = f"sqlite:///{moved}/loom.db"
    assert run_json("export", "pole", "out", "--store", store)["policy"] == version(moved)
    assert not (tmp_path / "artifacts").exists()


def test_versions_recorded_with_absolute_urls_are_found_and_gone_on_with(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained)
    shutil.copy("loom.db", tmp_path / "loom.db")
    with sqlite3.connect(tmp_path / "loom.db") as db:
        db.execute("update policies set url = ? || url", [f"{(trained / 'artifacts').as_uri()}/"])
    monkeypatch.chdir(tmp_path)
    assert run_json("export", "pole", "out")["policy"] == version(trained)
    shutil.copytree(trained / "artifacts", "artifacts")
    shutil.copytree(trained / "runs", "runs")
    assert run_json("train", "--resume", "--run", "pole", "control/cartpole")["policy"] == version(trained)


@pytest.mark.parametrize("gone", ["{last}/.complete.json", "{last}", "runs"])
def test_what_was_deleted_is_named_before_anything_is_trained_again(
    moved: Path, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(moved)
    name = last(moved)
    place = moved / "artifacts" / gone.format(last=name)
    place.unlink() if place.is_file() else shutil.rmtree(place)
    for words in (["evaluate", "pole"], ["export", "pole", "out"], ["train", "--resume", "control/cartpole"]):
        with pytest.raises(LoomError) as caught:
            run_json(*words)
        assert isinstance(caught.value, ArtifactError)
        said = str(caught.value)
        assert "on record" in said
        assert name in said
        assert ".complete.json" in said
        assert "half-written" not in said
