"""The calls of the first documents, with the arguments they show. `docs/notebook.md` runs whole in test_notebook.py."""

import asyncio
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import loomrl
from loomrl import (
    AgenticRLSystem,
    EnvironmentType,
    EvaluationPipeline,
    GymPPOIntegration,
    GymTrainingConfig,
    LoomRLGym,
    MultiAgentTaskEnvironment,
    NexusWorker,
    PPOConfig,
    PPOTrainer,
    RewardComponent,
    RolloutEngine,
    create_integrated_rl_system,
    register_environment,
)
from loomrl.errors import ConfigError
from loomrl.experiments.sweep_file import resolve_sweep

KNOBS: dict[str, Any] = {
    "learning_rate": 3e-4,
    "batch_size": 64,
    "n_epochs": 4,
    "clip_epsilon": 0.1,
    "value_loss_coef": 0.25,
    "entropy_coef": 0.01,
    "total_episodes": 1000,
    "distributed": True,
    "sync_frequency": 2,
    "log_interval": 10,
}


def test_every_name_is_at_both_of_its_doors() -> None:
    parts = {
        "loomrl.envs": ("MetaReasoningEnv", "LogicPuzzleEnv", "DialogueEnv", "MemoryBufferEnv"),
        "loomrl.evaluation": ("EvaluationPipeline",),
        "loomrl.rewards": ("RewardComponent",),
        "loomrl.curriculum": ("CurriculumGenerator",),
    }
    for module, exported in parts.items():
        for name in exported:
            assert getattr(importlib.import_module(module), name) is getattr(loomrl, name)


def test_the_ten_types_have_the_names_that_were_promised() -> None:
    promised = "MATH GAME TOOLCALL CODE LANGUAGE MULTIMODAL META_REASONING LOGIC_PUZZLE DIALOGUE MEMORY_BUFFER"
    assert " ".join(sorted(EnvironmentType.__members__)) == " ".join(sorted(promised.split(" ")))


def test_registering_with_the_arguments_of_the_page() -> None:
    made = register_environment(
        name="PageEnv",
        entry_point="pkg.mod:Class",
        version="1.2.0",
        max_episode_steps=1000,
        reward_threshold=500.0,
    )
    assert (made.name, made.version, made.max_episode_steps, made.reward_threshold) == ("PageEnv", "1.2.0", 1000, 500.0)


@pytest.mark.parametrize(
    ("difficulty", "levels"),
    [
        ("beginner", {1, 2, 3}),
        ("intermediate", {4, 5, 6}),
        ("advanced", {7, 8}),
        ("expert", {9, 10}),
        (0.5, {5}),
        (7, {7}),
    ],
)
async def test_a_difficulty_is_a_word_a_share_or_a_level(difficulty: str | float, levels: set[int]) -> None:
    env = await LoomRLGym().create_environment(EnvironmentType.MATH, {"difficulty": difficulty, "max_steps": 50})
    assert {(await env.reset()).task.level for _ in range(40)} == levels  # type: ignore[union-attr]


async def test_an_action_that_is_no_text_is_told_what_this_environment_takes() -> None:
    env = await LoomRLGym().create_environment(EnvironmentType.LOGIC_PUZZLE)
    await env.reset()
    with pytest.raises(TypeError, match=r"action=3 is int; LogicPuzzle takes a text, such as '"):
        await env.step(3)  # type: ignore[arg-type]


def test_every_knob_of_ppo_has_its_effect() -> None:
    config = PPOConfig(**KNOBS)
    gym = GymTrainingConfig(
        environments_per_type=3,
        enabled_env_types=[EnvironmentType.MATH, EnvironmentType.GAME],
        curriculum_learning=True,
        target_success_rate=0.8,
    )
    made = config.experiment(gym, updates=config.updates(None, named="total_timesteps"))
    algorithm, rollout = made.algorithm, made.rollout
    assert (algorithm.optimizer.learning_rate, algorithm.optimizer.epochs) == (3e-4, 4)
    assert (algorithm.clip.low, algorithm.clip.high) == (0.1, 0.1)
    assert (algorithm.value_coefficient, algorithm.entropy_coefficient) == (0.25, 0.01)
    assert rollout.group_size * rollout.groups_per_update == 64
    assert made.train.updates == 16, "1,000 attempts are 16 updates of 64"
    assert (algorithm.learners.count, rollout.runners) == (2, 2)
    assert (rollout.publish_every, made.hub.max_staleness, made.train.checkpoint_every) == (2, 1, 2)
    assert [(each.id, each.weight) for each in made.environments] == [("Math", 1.0), ("Game", 1.0)]
    assert rollout.concurrency == 3 * 2
    assert (made.curriculum.kind, made.curriculum.target) == ("adaptive", 0.8)


def test_a_knob_without_effect_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"target_success_rate has no effect without curriculum_learning=True"):
        PPOConfig().experiment(GymTrainingConfig(target_success_rate=0.8), updates=1)
    with pytest.raises(ConfigError, match=r"how long\? Give total_timesteps, or PPOConfig\(total_episodes=…\)"):
        asyncio.run(PPOTrainer(PPOConfig()).train())
    with pytest.raises(ValueError, match="Did you mean 'batch_size'"):
        PPOConfig.parse({"batchsize": 3})


async def test_both_ways_to_a_system_make_the_same() -> None:
    gym, ppo = GymTrainingConfig(), PPOConfig()
    made = await create_integrated_rl_system(gym, ppo)
    same = GymPPOIntegration(gym, ppo)
    assert (type(made), made.gym, made.ppo) == (type(same), same.gym, same.ppo)
    with pytest.raises(ConfigError, match="group_size=8"):
        await create_integrated_rl_system(gym, PPOConfig(batch_size=20))


@pytest.mark.parametrize(
    ("called", "arguments"),
    [
        (NexusWorker.register_gym_environments, {"environments"}),
        (NexusWorker.distribute_rl_training, {"integration"}),
        (RolloutEngine.load_policy, {"policy"}),
        (RolloutEngine.generate_rollouts, {"states"}),
        (EvaluationPipeline.plot_learning_curve, {"path"}),
        (RewardComponent.__init__, {"name", "weight", "compute_fn"}),
        (AgenticRLSystem.train, {"total_timesteps", "completion_rate"}),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_arguments_that_the_notebook_does_not_name_are_as_promised(called: Any, arguments: set[str]) -> None:
    assert arguments <= inspect.signature(called).parameters.keys()


def test_options_of_the_team_and_its_ranges_are_there() -> None:
    system = AgenticRLSystem(env_class=MultiAgentTaskEnvironment, n_envs=4, batch_normalization=True)
    assert system.experiment.rollout.environments == 4
    assert system.experiment.algorithm.normalize_observations
    searched = resolve_sweep(["team"])
    assert {"algorithm.learning_rate", "algorithm.gamma"} <= searched.space.keys()


def test_a_python_without_what_is_needed_says_which_it_is_and_what_it_lacks() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "loomrl"], cwd=Path(loomrl.__file__).parents[1], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"{sys.executable} has no " in done.stderr
    assert "before `ray start`" in done.stderr
