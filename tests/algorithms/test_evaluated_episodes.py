"""Environments stay open until they are replaced, and evaluations by RLlib end and have a mean return."""

import math
from functools import partial
from typing import Any

import gymnasium
import pytest
import ray
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from loomrl.algorithms.control.ppo import PPOConfig
from loomrl.config import ControlExperiment
from loomrl.control import play
from loomrl.control.play import RandomPolicy
from loomrl.experiments.evaluate_control import play_evaluation
from tests.algorithms.control_envs import Owner
from tests.algorithms.control_support import MARKS, ppo

pytestmark = [pytest.mark.system, *MARKS]

OWNER = "tests.algorithms.control_envs:Owner"


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    """Owner as a Gymnasium environment, with and without a vector form of its own."""
    gymnasium.register("Owner-v0", entry_point=OWNER)

    def vector(num_envs: int, **settings: Any) -> Any:
        return SyncVectorEnv([partial(Owner, **settings)] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)

    gymnasium.register("OwnerVector-v0", entry_point=OWNER, vector_entry_point=vector)


FORMS: dict[str, dict[str, Any]] = {
    "sync": {"id": "Owner-v0", "vectorization": "sync"},
    "async": {"id": "Owner-v0", "vectorization": "async"},
    "own vector form": {"id": "OwnerVector-v0"},
    "custom, sync": {"kind": "custom", "entry_point": OWNER},
    "custom, async": {"kind": "custom", "entry_point": OWNER, "vectorization": "async"},
}


@pytest.mark.parametrize("form", FORMS)
def test_environments_are_not_closed_before_they_are_replaced(form: str) -> None:
    experiment = ControlExperiment(
        name="owner",
        environment=FORMS[form],
        algorithm={"kind": "ppo", "minibatch_size": 16},
        rollout={"steps": 8, "environments": 2},
        evaluation={"episodes": 3},
        train={"tell_every": 16},
    )
    algo = PPOConfig.of(experiment).build_algo()
    assert algo.train()["env_runners"]["episode_return_mean"] == 3.0
    algo.move_to({"steps": 4})
    assert algo.train()["env_runners"]["episode_return_mean"] == 4.0
    state = algo.get_state()
    algo.set_state(state)
    assert algo.train()["env_runners"]["episode_return_mean"] == 4.0
    algo.stop()
    assert play_evaluation(RandomPolicy(), experiment).returns == [3.0] * 3


@pytest.mark.slow
def test_the_environments_of_a_restarted_runner_are_open() -> None:
    asked = ppo("Owner", minibatch_size=16).env_runners(num_env_runners=1, num_envs_per_env_runner=2)
    algo = asked.fault_tolerance(delay_between_env_runner_restarts_s=0).build_algo()
    algo.train()
    ray.kill(algo.env_runner_group._worker_manager.actors()[1], no_restart=False)
    for _ in range(2):
        assert algo.train()["env_runners"]["episode_return_mean"] == 3.0


EVALUATIONS: dict[str, dict[str, Any]] = {
    "steps": {"evaluation_duration": 160, "evaluation_duration_unit": "timesteps"},
    "auto": {"evaluation_duration": "auto", "evaluation_num_env_runners": 1, "evaluation_parallel_to_training": True},
}


@pytest.mark.parametrize("form", ["steps", pytest.param("auto", marks=pytest.mark.slow)])
def test_an_evaluation_by_steps_or_by_time_has_a_mean_return(form: str) -> None:
    algo = ppo("Countdown", {"steps": 5}).evaluation(evaluation_interval=1, **EVALUATIONS[form]).build_algo()
    means = []
    for _ in range(60):  # while its runner is being started, RLlib has nothing to tell
        told = algo.train()["evaluation"]["env_runners"]
        means.append((told["episode_return_mean"], told["episode_len_mean"]))
        if form == "steps" or not math.isnan(means[-1][0]):
            break
    assert means[-1] == (5.0, 5.0)


def test_an_evaluation_in_which_no_episode_ends_tells_so_as_training_does() -> None:
    asked = ppo("Countdown", {"steps": 99}).evaluation(evaluation_interval=1, **EVALUATIONS["steps"])
    algo = asked.build_algo()
    told = algo.train()["evaluation"]["env_runners"]
    assert math.isnan(told["episode_return_mean"])


def test_an_evaluation_of_episodes_that_never_end_cuts_them_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(play, "MOST_STEPS", 30)
    algo = ppo("Endless").evaluation(evaluation_interval=1, evaluation_duration=12).build_algo()
    told = algo.train()["evaluation"]["env_runners"]
    assert (told["episode_return_mean"], told["episode_len_max"]) == (30.0, 30)
    assert "were cut after 30 steps, and count as truncated" in caplog.text
