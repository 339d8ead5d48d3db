"""Algorithms of one's own that are not quite right yet: each is told what to override, and how."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loomrl.algorithms.language.config import LanguageConfig
from loomrl.algorithms.language.learner import LanguageLearner
from loomrl.config import GRPO, Experiment
from loomrl.errors import ConfigError, LearnerError, StoreError
from loomrl.experiments.algorithms import open_algorithm
from loomrl.experiments.data import settled
from loomrl.experiments.policies import exported
from loomrl.experiments.train import train
from loomrl.store import open_store
from loomrl.store.policies import lineage
from loomrl.store.runs import POLICIES
from tests.algorithms.language_support import RAY, experiment
from tests.experiments.test_train import same, weights

pytestmark = RAY


class Bare(LanguageConfig):
    pass


class Averaging(LanguageLearner):
    def policy_loss(self, scores: Any, columns: Any, old_K: Any) -> Any:
        return super().policy_loss(scores, columns, old_K).mean()


class Listing(LanguageLearner):
    def advantages(self, rewards: Any, masks: Any, *, groups: Any, values: Any) -> Any:
        return [np.zeros(len(mask_T)) for mask_T in masks]


def own(folder: Path, name: str, **settings: Any) -> Any:
    base = experiment(folder).model_dump(mode="json")["algorithm"]
    chosen = {key: base[key] for key in ("model", "sampling", "optimizer")} | settings
    algorithm = {"kind": "custom", "entry_point": f"{__name__}:{name}", "settings": chosen}
    return experiment(folder, algorithm=algorithm)


def test_subclass_that_overrides_nothing_is_grpo_with_its_settings(tmp_path: Path) -> None:
    config = open_algorithm(own(tmp_path, "Bare", scale=False)).training(clip={"low": 0.1})
    assert isinstance(config.algorithm, GRPO)
    assert not config.algorithm.scale
    assert config.algorithm.clip.low == 0.1


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        (
            "Averaging",
            {},
            r"'Averaging' is not a subclass of loomrl\.algorithms\.language\.config\.LanguageConfig\. Name",
        ),
        ("Bare", {"scael": 1}, r"algorithm\.settings of .*:Bare: .*scael=1.*Did you mean 'scale'"),
        ("Bare", {"kind": "ppo"}, r"kind='ppo'.*'grpo'"),
    ],
)
def test_what_is_misnamed_is_said_before_anything_runs(
    tmp_path: Path, name: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said.replace(".*", r"(.|\n)*")):
        _ = open_algorithm(own(tmp_path, name, **settings)).algorithm


def test_configuration_itself_is_no_algorithm_of_ones_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Build its subclass .*:Bare, which overrides get_default_learner_class"):
        _ = LanguageConfig.of(own(tmp_path, "Bare")).algorithm


@pytest.mark.parametrize(
    ("learner", "said"),
    [
        (Averaging, r"Averaging\.policy_loss made numbers of shape \(\) for \d+ action tokens: return one per token"),
        (Listing, r"Listing\.advantages made a list that does not fit its masks: return .*Estimate"),
    ],
)
def test_what_a_learner_returns_amiss_is_said_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learner: type, said: str
) -> None:
    monkeypatch.setattr(Bare, "get_default_learner_class", lambda self: learner)
    algo = open_algorithm(own(tmp_path, "Bare"), run="r").build_algo()
    with pytest.raises(LearnerError, match=said):
        algo.train()


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
