"""A whole run over pictures: built, warmed up, published with proof, learnt on two learners, kept and opened again."""

import asyncio
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loomrl.algorithms.language.algorithm import METRICS
from loomrl.config import LanguagePolicy, Sampling
from loomrl.envs.multimodal import MultimodalEnvironment
from loomrl.errors import ConfigError
from loomrl.gym.episode import Attempt, run_episode
from loomrl.inference.policy import open_policy
from loomrl.telemetry.metric import Metric
from loomrl.types import End
from tests.algorithms.language_support import RAY, build

pytestmark = RAY

SEEING = {
    "environments": [{"id": "loomrl.envs.multimodal:MultimodalEnvironment", "families": ["scene.vqa"]}],
    "curriculum": {"kind": "fixed", "level": 1},
    "algorithm.model.build.vocabulary": 330,
    "algorithm.model.build.vision": {"image_size": 16, "patch_size": 4, "hidden_size": 16, "layers": 1, "heads": 2},
    "algorithm.warm_start": {"steps": 10, "batch_size": 8},
    "algorithm.optimizer.learning_rate": 1e-3,
    "rollout.groups_per_update": 4,
    "rollout.group_size": 4,
}


def eyes(algo: Any) -> list[dict[str, torch.Tensor]]:
    """The vision tower of every learner."""
    results = algo.learner_group.foreach_learner(
        lambda learner: {n: p.detach().cpu().clone() for n, p in learner._own.named_parameters() if "vision" in n}
    )
    return [result.get() for result in results]


@pytest.mark.parametrize("learners", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_learners_of_pictures_stay_one_and_what_they_keep_can_be_asked(tmp_path: Path, learners: int) -> None:
    algo = build(tmp_path, "ppo", **SEEING, **{"algorithm.learners.count": learners, "train.checkpoint_every": 1})
    before = eyes(algo)[0]
    lines = [algo.train()[METRICS] for _ in range(2)]
    left, *others = eyes(algo)
    assert len(others) == max(0, learners - 1)
    assert all(torch.equal(left[name], right[name]) for right in others for name in left)
    assert any(not torch.equal(left[name], before[name]) for name in left), "the eyes learn"
    assert max(line[Metric.POLICY_DRIFT] for line in lines) < 1e-4, "engine and learner saw the same"
    assert all(line.get(Metric.FAILURES, 0) == 0 for line in lines)
    algo.stop()
    kept = (tmp_path / "artifacts").rglob("model/processor_config.json")
    (folder,) = (path.parent for path in kept if "000002" in path.parts)
    policy = open_policy(LanguagePolicy(path=str(folder), context=128, sampling=Sampling(max_tokens=6)))
    environment = MultimodalEnvironment({"max_steps": 1})
    task = environment.task("scene.vqa", 1, 0)
    speaker = policy(environment, random.Random(0))
    made = asyncio.run(run_episode(environment, speaker, Attempt(id="a", task=task, group="g")))
    assert made.end is not End.FAILED
    assert np.isfinite(made.tokens.logprobs_T).all()  # type: ignore[union-attr]


def test_a_model_of_text_says_what_it_lacks_before_it_starts(tmp_path: Path) -> None:
    changes = {key: value for key, value in SEEING.items() if key != "algorithm.model.build.vision"}
    with pytest.raises(ConfigError, match=r"algorithm.model.build has no vision"):
        build(tmp_path, "grpo", **changes)
