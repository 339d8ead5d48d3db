"""No remote learner, one, or two: one path to all of them, and checkpoints that any number goes on from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from ray.rllib.core import DEFAULT_MODULE_ID

from loomrl.algorithms.control.ppo import PPOConfig
from loomrl.algorithms.control.sac import SACConfig
from loomrl.algorithms.language.config import LanguageConfig
from loomrl.algorithms.learners import share_of, training_data
from loomrl.algorithms.resources import parts_of
from loomrl.errors import LearnerError
from loomrl.experiments.shipped import resolve
from tests.algorithms.control_support import Weights, agreed, ppo, sac, same, weave, weights
from tests.algorithms.language_support import experiment

pytestmark = [
    pytest.mark.usefixtures("one_thread", "control_environments"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def boxed_sac() -> SACConfig:
    made = sac(keywords={"kind": "box"}, sample=100, network={"hidden": [16, 16], "activation": "relu"}, n_step=3)
    return made.env_runners(num_envs_per_env_runner=4, rollout_fragment_length=8)


KINDS: dict[str, Callable[[], Any]] = {
    "ppo": lambda: ppo(normalize_observations=True),
    "sac": boxed_sac,
    "weave": lambda: weave(experts=2, critics=2),
}


def updated(algo: Any) -> Weights:
    """After two more updates; all learners have the same weights, which are not those of before."""
    before = weights(algo)
    for _ in range(2):
        told = algo.train()
    assert told["learners"][DEFAULT_MODULE_ID]["num_module_steps_trained_lifetime"] > 0
    after = agreed(algo)
    assert not same(before, after)
    return after


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_learner_is_dealt_its_own_share(count: int) -> None:
    given = training_data(range(count))
    given.validate()
    assert [share_of(dealt) for dealt, _ in given.shard(num_shards=count)] == list(range(count))


def test_the_local_learner_takes_the_whole_list_of_one() -> None:
    assert share_of(training_data(["work"])) == "work"


@pytest.mark.parametrize(
    ("count", "called", "each"),
    [
        (0, "=0 (one in this process)", {"GPU": 0.5}),
        (1, "=1", {"CPU": 0, "GPU": 0.5}),
        (2, "=2", {"CPU": 0, "GPU": 0.5}),
    ],
)
def test_gpus_of_learners_are_asked_for_wherever_they_are(
    count: int, called: str, each: dict[str, float], tmp_path: Path
) -> None:
    asked = {"count": count, "gpus": 0.5}
    control = PPOConfig.of(resolve(["control/cartpole"]).override({"learners": asked}))  # type: ignore[arg-type]
    language = LanguageConfig.of(experiment(tmp_path, **{"algorithm.learners": asked}))
    for config, name in ((control, "learners.count"), (language, "algorithm.learners.count")):
        config.validate()
        assert (f"{name}{called}", max(1, count), each) in parts_of(config)


@pytest.mark.system
@pytest.mark.usefixtures("ray_cluster")
class TestInOneRay:
    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["ppo", "weave"])
    def test_one_remote_learner_learns_what_one_in_this_process_does_and_its_death_is_told(self, kind: str) -> None:
        alone, apart = (KINDS[kind]().learners(num_learners=learners).build_algo() for learners in (0, 1))
        theirs = updated(alone)
        ours = updated(apart)
        assert all(torch.allclose(theirs[name], ours[name], atol=1e-5) for name in theirs)
        ray.kill(apart.learner_group._workers[0])
        with pytest.raises(LearnerError, match=r"a remote learner died, or its node: .*--resume"):
            apart.train()

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", KINDS)
    def test_any_number_of_learners_goes_on_where_another_stopped(self, kind: str, tmp_path: Path) -> None:
        learnt: Weights = {}
        for turn, count in enumerate((0, 1, 2, 2, 1, 0)):
            algo = KINDS[kind]().learners(num_learners=count).build_algo()
            if turn:
                algo.restore_from_path(tmp_path / f"{turn - 1}")
                assert same(learnt, agreed(algo))
            learnt = updated(algo)
            assert all(torch.isfinite(value).all() for value in learnt.values())
            algo.save_to_path(tmp_path / f"{turn}")
            algo.stop()
