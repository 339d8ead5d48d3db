"""Algorithms of one's own that are not quite right yet: each is told what to override, and how."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loomrl.algorithms.language.config import LanguageConfig
from loomrl.algorithms.language.learner import LanguageLearner
from loomrl.config import GRPO
from loomrl.errors import ConfigError, LearnerError
from loomrl.experiments.algorithms import open_algorithm
from tests.algorithms.language_support import experiment

pytestmark = [
    pytest.mark.system,
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]


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
    algo.stop()
