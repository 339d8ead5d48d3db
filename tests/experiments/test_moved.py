"""A run's folder and its database may move together; what is gone is named as gone."""

import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import gymnasium
import pytest

from loomrl.config import Network
from loomrl.control.network import ActorCritic
from loomrl.control.policy import ControlPolicy
from loomrl.control.space import acts, seen
from loomrl.errors import ArtifactError
from loomrl.experiments.shipped import resolve
from loomrl.experiments.train_control import ControlTraining
from loomrl.store import open_store
from tests.command_line import typed_json


class Still:
    """An algorithm that learns nothing: what a course keeps of one and gives back to it, without Ray."""

    unit = "steps"
    league = None

    def __init__(self) -> None:
        self.env_steps = 0
        self._environment = gymnasium.make("CartPole-v1")

    @property
    def progress(self) -> int:
        return self.env_steps

    def policy(self) -> ControlPolicy:
        observed, acted = self._environment.observation_space, self._environment.action_space
        network = Network(hidden=(4,))
        return ControlPolicy(
            ActorCritic(seen(observed), acts(acted), network, normalize=False), observed, acted, network
        )

    def save_to_path(self, path: str) -> None:
        Path(path).mkdir()
        Path(path, "state").write_text("512")

    def take_over(self, path: str) -> None:
        self.env_steps = int(Path(path, "state").read_text())


def begun() -> int:
    """The steps of the run after it was begun, or gone on with, in this folder."""
    small = {"evaluation.episodes": 2, "evaluation.every": None}
    experiment = resolve(["control/cartpole"]).override(small)
    with open_store("sqlite:///loom.db") as db:
        training = ControlTraining.opened(Still(), experiment, "pole", db, clock=time.time)
        training.begin()
        if not training.done:
            training.done = 512
            training.keep()
        return training.done


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert begun() == 512
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
    judged = typed_json("evaluate", "pole", "--episodes", "2")["policies"]
    assert judged["pole"]["overall"]["episodes"] == 2
    exported = typed_json("policies", "export", version(moved), "out")["policy"]
    assert exported == version(moved)
    assert typed_json("policies", "show", exported)["url"] == last(moved)
    assert begun() == 512
    assert not list(moved.parent.glob("first*"))


def test_moved_run_is_found_beside_its_database_from_any_folder(
    moved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = f"sqlite:///{moved}/loom.db"
    assert typed_json("policies", "export", "pole", "out", "--store", store)["policy"] == version(moved)
    assert not (tmp_path / "artifacts").exists()


@pytest.mark.parametrize("gone", ["{last}/.complete.json", "{last}", "runs"])
def test_what_was_deleted_is_named_before_anything_is_trained_again(
    moved: Path, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(moved)
    name = last(moved)
    place = moved / "artifacts" / gone.format(last=name)
    place.unlink() if place.is_file() else shutil.rmtree(place)
    for go_on in (
        partial(typed_json, "evaluate", "pole"),
        partial(typed_json, "policies", "export", "pole", "out"),
        begun,
    ):
        with pytest.raises(ArtifactError) as caught:
            go_on()
        said = str(caught.value)
        assert "on record" in said
        assert name in said
        assert ".complete.json" in said
        assert "half-written" not in said
