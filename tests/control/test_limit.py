"""Episodes of an evaluation that go on for too long are cut, and that is told."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from rich.console import Console

from loomrl.config import ControlExperiment, GymnasiumEnvironment
from loomrl.control.environment import open_environments
from loomrl.control.play import MOST_STEPS, Scripted, StepLimit, play
from loomrl.control.shared import SharedVector
from loomrl.errors import EpisodeError
from loomrl.experiments.evaluate_control import evaluate_control, render
from loomrl.experiments.train import train
from loomrl.store import open_store
from loomrl.store.policies import EVALUATIONS
from tests.algorithms.control_envs import Endless, EndlessTeam

STAY = Scripted(lambda observations: np.zeros(len(observations), np.int64))


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_only_episodes_that_are_too_long_are_cut_and_the_next_ones_are_whole(kind: Any) -> None:
    environments = kind([partial(Endless, 5)] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    seen: list[Any] = []
    policy = Scripted(lambda observations: (seen.append(observations.copy()), np.zeros(2, np.int64))[1])
    told = play(policy, environments, 6, seed=0, max_steps=20)
    assert (sorted(told.returns), sorted(told.lengths)) == ([5, 5, 20, 20, 20, 20], [5, 5, 20, 20, 20, 20])
    assert (told.cut, told.limit) == (4, 20)
    assert max(map(np.max, seen)) == 19  # the observation after a cut begins the next episode
    environments.close()


def test_an_evaluation_says_how_far_its_longest_episode_is() -> None:
    told: list[tuple[int, str]] = []
    environments = SyncVectorEnv([partial(Endless, 5)], autoreset_mode=AutoresetMode.NEXT_STEP)
    policy = Scripted(lambda observations: np.zeros(1, np.int64))
    play(policy, environments, 2, seed=0, max_steps=200, report=lambda done, note: told.append((done, note)))
    assert {(0, f"the longest is at step {step} of at most 200") for step in (64, 128, 192)} < {*told}
    assert told[-1][0] == 1
    environments.close()


def test_agents_of_one_world_are_cut_together() -> None:
    told = play(STAY, SharedVector(EndlessTeam, 4), 6, seed=0, max_steps=7)
    assert (told.returns, told.cut) == ([7.0] * 6, 6)


def test_the_default_spares_environments_that_limit_themselves() -> None:
    cliffs = open_environments(GymnasiumEnvironment(id="CliffWalking-v1", vectorization="sync"), 1, {})
    assert StepLimit(cliffs).steps == MOST_STEPS
    for id, vectorization in (("CartPole-v1", "auto"), ("Pendulum-v1", "sync"), ("Acrobot-v1", "async")):
        made = open_environments(GymnasiumEnvironment(id=id, vectorization=vectorization), 1, {})
        assert StepLimit(made).steps is None
        assert StepLimit(made, 9).steps == 9
        made.close()


def test_a_vector_form_that_cannot_begin_one_anew_is_named() -> None:
    poles = open_environments(GymnasiumEnvironment(id="CartPole-v1"), 8, {})
    with pytest.raises(EpisodeError, match=r"not ended after 9 steps.*environment.vectorization=sync"):
        play(STAY, poles, 16, seed=0, max_steps=9)  # some have fallen by then
    assert play(STAY, poles, 16, seed=0, max_steps=3).lengths == [3] * 16


def test_what_was_cut_is_on_record_and_in_the_output(tmp_path: Path) -> None:
    experiment = ControlExperiment(
        name="cliffs",
        environment={"id": "CliffWalking-v1", "vectorization": "sync"},
        evaluation={"episodes": 3, "max_steps": 40},
        store_url=f"sqlite:///{tmp_path}/loom.db",
    )
    result = evaluate_control(experiment, ["tests.algorithms.control_envs:stay"])
    with open_store(experiment.store_url) as db:
        (stored,) = EVALUATIONS.latest(db)
    assert stored.report["cut"] == {"max_steps": 40, "episodes": 3}
    assert stored.report["overall"]["steps"] == 40
    console = Console(record=True, width=200)
    render(result, console)
    assert "3 of 3 episodes of tests.algorithms.control_envs:stay were cut after 40 steps" in console.export_text()


@pytest.mark.system
@pytest.mark.usefixtures("ray_cluster", "one_thread")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
def test_a_training_says_that_its_evaluations_were_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    experiment = ControlExperiment(
        name="endless",
        environment={"kind": "custom", "entry_point": "tests.algorithms.control_envs:Endless"},
        algorithm={"kind": "ppo", "minibatch_size": 16},
        rollout={"steps": 8, "environments": 2},
        train={"steps": 32, "checkpoint_every": 32, "tell_every": 16, "folder": str(tmp_path / "runs")},
        evaluation={"episodes": 3, "max_steps": 25},
        store_url=f"sqlite:///{tmp_path}/loom.db",
        artifact_url=str(tmp_path / "artifacts"),
    )
    train(experiment)
    assert "3 of 3 episodes of" in caplog.text
    assert "were cut after 25 steps" in caplog.text
