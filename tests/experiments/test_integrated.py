"""The short door: a dozen knobs, the same machinery."""

from pathlib import Path
from typing import Any

import pytest

import loomrl
from loomrl.errors import ConfigError
from loomrl.store import open_store
from loomrl.store.runs import RUNS
from loomrl.telemetry.metric import Metric
from tests.algorithms.language_support import ASCII, QUIET


def gym(folder: Path, **changes: Any) -> Any:
    tiny = {"hidden_size": 32, "intermediate_size": 64, "layers": 1, "heads": 2, "vocabulary": 270}
    return loomrl.GymTrainingConfig.parse(
        {
            "enabled_env_types": [ASCII],
            "evaluation_episodes": 8,
            "folder": str(folder / "runs"),
            "model": {"build": tiny, "context": 128},
            "sampling": {"max_tokens": 6},
            "warm_start": {"steps": 0},
            "store_url": f"sqlite:///{folder}/loom.db",
            "artifact_url": str(folder / "artifacts"),
            **changes,
        }
    )


@pytest.mark.system
@pytest.mark.usefixtures("ray_cluster")
@QUIET
@pytest.mark.slow
async def test_trainer_learns_for_at_least_so_many_timesteps(tmp_path: Path) -> None:
    trainer = loomrl.PPOTrainer(loomrl.PPOConfig(learning_rate=1e-2, batch_size=64), gym(tmp_path))
    summary = await trainer.train(total_timesteps=64 * 14 - 10)
    assert (summary.iterations, summary.timesteps) == (14, 64 * 14)
    success = [line[Metric.SUCCESS] for line in summary.history]
    assert summary.success == success[-1] > success[0] + 0.12
    with open_store(f"sqlite:///{tmp_path}/loom.db") as db:
        assert RUNS.require(db, summary.run).kind == "train"


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
@QUIET
async def test_integrated_system_trains_on_two_learners_with_weights_that_arrive_late(tmp_path: Path) -> None:
    ppo = loomrl.PPOConfig(batch_size=32, distributed=True, sync_frequency=2, n_epochs=2)
    system = await loomrl.create_integrated_rl_system(gym(tmp_path), ppo)
    summary = await system.run_training_loop(max_iterations=4)
    assert [line[Metric.STALENESS_MEAN] for line in summary.history] == [0, 1, 0, 1]
    assert max(summary.history[update][Metric.POLICY_DRIFT] for update in (0, 2)) <= 1e-4
    off = [abs(line[Metric.POLICY_IMPORTANCE] - 1) for line in summary.history]
    assert max(off[0], off[2]) <= 1e-5 < min(off[1], off[3])


def test_trainer_without_a_gym_has_that_of_the_demo() -> None:
    trained = loomrl.PPOConfig().experiment(loomrl.GymTrainingConfig(), updates=1)
    assert trained.algorithm.warm_start.steps > 0
    assert trained.environments[0].families
    assert loomrl.PPOConfig().experiment(loomrl.GymTrainingConfig(level=2), updates=1).curriculum.level == 2


def test_batch_that_does_not_divide_into_groups_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="group_size=8"):
        loomrl.PPOConfig(batch_size=60).experiment(gym(tmp_path), updates=1)
