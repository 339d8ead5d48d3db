"""A run of a language policy that begins with a version of another."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from loomrl.config import Experiment
from loomrl.errors import ConfigError, StoreError
from loomrl.experiments.data import settled
from loomrl.experiments.policies import exported
from loomrl.experiments.train import train
from loomrl.store import open_store
from loomrl.store.policies import lineage
from loomrl.store.runs import POLICIES
from tests.algorithms.language_support import experiment
from tests.experiments.test_train import same, weights

pytestmark = [
    pytest.mark.system,
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]


def onwards(folder: Path, parent: str, **changes: Any) -> Experiment:
    """Other settings, from the weights of this version."""
    begins = {"parent": parent, "algorithm.model.build": None, "algorithm.warm_start.steps": 0}
    return experiment(folder, "rloo", **{"train.updates": 1, "seed": 9, **begins, **changes})


def test_a_run_begins_with_the_weights_of_a_version_of_another_algorithm(tmp_path: Path) -> None:
    train(experiment(tmp_path, "ppo", **{"train.updates": 2}), run="first")
    last = train(onwards(tmp_path, "first"), run="next")
    assert policy_weights_are(tmp_path, "next", 0, "first", 2)
    assert not policy_weights_are(tmp_path, "next", 1, "first", 2)
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        assert POLICIES.require(db, "next/0").parent == "first/2"
        assert "first/2" in str(lineage(db, last.policy))
        exported("first/2", db, tmp_path / "out")
    loose = settled(onwards(tmp_path, str(tmp_path / "out")))
    assert isinstance(loose, Experiment)
    assert (loose.parent, loose.algorithm.model.path) == (None, str(tmp_path / "out"))  # type: ignore[union-attr]
    again = train(onwards(tmp_path, "first/2"), run="next")
    assert again.policy == last.policy


def policy_weights_are(folder: Path, run: str, number: int, other: str, its: int) -> bool:
    """Without the value heads, of which not every algorithm has one."""
    found = []
    for name, at in ((run, number), (other, its)):
        shutil.rmtree(folder / f"copy-{name}", ignore_errors=True)
        found.append({key: tensor for key, tensor in weights(folder, name, at).items() if "value" not in key})
    return same(*found)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"algorithm.warm_start.steps": 3}, "warm_start.steps is given, and parent=r/1"),
        ({"algorithm.model.build": {"layers": 1}}, "set model.build=null"),
    ],
)
def test_what_a_run_would_not_begin_with_is_refused(tmp_path: Path, changes: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        onwards(tmp_path, "r/1", **changes)


def test_a_parent_that_is_unknown_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nobody"):
        train(onwards(tmp_path, "nobody/3"), run="r")
