"""More processes than this machine has cores for: refused by name within seconds, before any of them starts."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import tune

from loomrl.algorithms.control.ppo import PPO
from loomrl.algorithms.control.sac import SACConfig
from loomrl.config.placement import PER_CORE
from loomrl.errors import ConfigError
from loomrl.experiments.algorithms import ray_running
from loomrl.experiments.shipped import resolve
from loomrl.experiments.train import train
from loomrl.gym.check.run import check_all
from tests.algorithms.control_support import ppo
from tests.algorithms.language_support import QUIET, experiment
from tests.experiments.runs import places

pytestmark = [QUIET, pytest.mark.filterwarnings("ignore::UserWarning")]
CORES = os.cpu_count() or 1


@pytest.fixture(scope="module")
def own_ray() -> Iterator[None]:
    """One that LoomRL starts itself, for a run that asks for a thousand CPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        with ray_running(1001):
            yield


@pytest.mark.system
@pytest.mark.usefixtures("own_ray", "control_environments")
class TestOnARayOfItsOwn:
    def test_it_has_no_more_than_two_processes_to_a_core(self) -> None:
        assert ray.cluster_resources()["CPU"] == PER_CORE * CORES

    @pytest.mark.parametrize(
        ("kind", "changes", "said"),
        [
            ("language", {"rollout.runners": 40 * CORES}, "rollout.runners={} with 1 each: that is {} CPU"),
            ("language", {"rollout.runners": 1000}, "rollout.runners=1000 with 1 each: that is 1000 CPU"),
            ("language", {"algorithm.learners.count": 1000}, "algorithm.learners.count=1000 with 1 each"),
            ("language", {"engine": {"kind": "vllm", "count": 1000}}, "engine.count=1000 with 1 each"),
            ("control", {"rollout.runners": 1000}, "rollout.runners=1000 with 1 each"),
            ("control", {"learners.count": 1000, "rollout.environments": 2000}, "learners.count=1000 with 1 each"),
        ],
    )
    def test_a_run_that_asks_for_more_is_refused(
        self, kind: str, changes: dict[str, Any], said: str, tmp_path: Path
    ) -> None:
        pole = resolve(["control/cartpole"]).override(places(tmp_path))
        small = experiment(tmp_path) if kind == "language" else pole
        before = len(workers())
        with pytest.raises(ConfigError, match=said.format(40 * CORES, 40 * CORES)):
            train(small.override(changes), run="r")
        assert len(workers()) <= before

    def test_so_is_what_rllib_or_tune_is_asked_for_under_rllibs_own_names(self, tmp_path: Path) -> None:
        run = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
        asked = [kind().environment("CartPole-v1").env_runners(num_env_runners=1000) for kind in (ppo, SACConfig)]
        for attempt in (
            *(each.build_algo for each in asked),
            tune.Tuner(PPO, param_space=asked[0], run_config=run).fit,
        ):
            with pytest.raises(ConfigError, match="num_env_runners=1000 with 1 each: that is 1000 CPU"):
                attempt()


def workers() -> list[str]:
    """Ray's actors that are alive on this machine, by their titles."""
    import psutil

    below = psutil.Process().children(recursive=True)
    return [title for process in below if (title := process.name()).startswith("ray::") and "IDLE" not in title]


def test_more_checks_at_a_time_than_there_are_cores_for_are_refused() -> None:
    with pytest.raises(ConfigError, match="--jobs=1000: this machine has cores for"):
        check_all(["Math"], jobs=1000)
