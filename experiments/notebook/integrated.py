"""The short door for a script or a notebook: PPO over a gym, in a dozen knobs. The same machinery as `loomrl train`.

trainer = PPOTrainer(PPOConfig(learning_rate=3e-4, batch_size=128))
summary = await trainer.train(total_timesteps=5_000)
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from loomrl.config import PPO, EnvironmentConfig, Experiment, LanguageModel, Sampling, WarmStart
from loomrl.config.basic import Level, NonNegative, Positive, PositiveInt, Seed
from loomrl.errors import ConfigError
from loomrl.experiments.algorithms import open_algorithm, ray_running
from loomrl.experiments.shipped import TRAINED, resolve_language
from loomrl.schema import Config
from loomrl.telemetry.metric import Metric

_log = logging.getLogger(__name__)


def _demo(name: str) -> Any:
    """A default that is what the demo has."""
    return Field(default_factory=lambda: getattr(resolve_language([TRAINED]).algorithm, name))


class GymTrainingConfig(Config):
    """Where the agent acts, and with which model. The defaults are those of the demo, which learns on a laptop."""

    environments: tuple[str | EnvironmentConfig, ...] = Field(
        default_factory=lambda: resolve_language([TRAINED]).environments, min_length=1
    )
    """Names, or names with families, settings and weights: several make one policy for several tasks."""
    level: Level = 2
    group_size: PositiveInt = 8
    model: LanguageModel = _demo("model")
    sampling: Sampling = _demo("sampling")
    warm_start: WarmStart = _demo("warm_start")
    name: str = "integrated"
    seed: Seed = 0
    store_url: str = "sqlite:///loom.db"
    artifact_url: str = "artifacts"


class PPOConfig(Config):
    """The knobs of PPO under the names that most libraries give them."""

    learning_rate: Positive = 1e-4
    batch_size: PositiveInt = 64
    """Attempts per update."""
    n_epochs: PositiveInt = 1
    clip_epsilon: float = Field(0.2, gt=0, lt=1)
    value_loss_coef: NonNegative = 0.5
    entropy_coef: float = 0.0
    distributed: bool = False
    """Two learners, each with half of every batch, and two runners; else everything in this process."""
    sync_frequency: PositiveInt = 1
    """Updates between two times that the runners get new weights."""
    log_interval: PositiveInt = 1
    """Updates between two lines of the log."""

    def experiment(self, gym: GymTrainingConfig, *, updates: int) -> Experiment:
        """These knobs and this gym as an Experiment of so many updates."""
        if self.batch_size % gym.group_size:
            raise ConfigError(
                f"batch_size={self.batch_size} is no multiple of group_size={gym.group_size}: choose one that is."
            )
        algorithm = PPO.parse(
            {
                "model": gym.model.model_dump(),
                "sampling": gym.sampling.model_dump(),
                "warm_start": gym.warm_start.model_dump(),
                "optimizer": {"learning_rate": self.learning_rate, "epochs": self.n_epochs},
                "clip": {"low": self.clip_epsilon, "high": self.clip_epsilon},
                "value_coefficient": self.value_loss_coef,
                "entropy_coefficient": self.entropy_coef,
                "learners": {"count": 2 if self.distributed else 0},
            }
        )
        return Experiment(
            name=gym.name,
            seed=gym.seed,
            environments=tuple(EnvironmentConfig(id=e) if isinstance(e, str) else e for e in gym.environments),
            curriculum={"kind": "fixed", "level": gym.level},
            algorithm=algorithm,
            rollout={
                "group_size": gym.group_size,
                "groups_per_update": self.batch_size // gym.group_size,
                "actors": 2 if self.distributed else 0,
                "publish_every": self.sync_frequency,
            },
            hub={"max_staleness": self.sync_frequency - 1},
            train={"updates": updates, "checkpoint_every": self.sync_frequency},
            store_url=gym.store_url,
            artifact_url=gym.artifact_url,
        )


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    """What a training loop did."""

    run: str
    iterations: int
    timesteps: int
    """Attempts."""
    seconds: float
    history: list[dict[str, float]] = field(repr=False)
    """Every update's metrics (`loomrl.telemetry.metric`)."""

    @property
    def success(self) -> float:
        """Of the last update."""
        return self.history[-1][Metric.SUCCESS] if self.history else 0.0


class GymPPOIntegration:
    """A gym and a PPO learner, wired through the trajectory hub."""

    def __init__(self, gym: GymTrainingConfig, ppo: PPOConfig) -> None:
        self.gym = gym
        self.ppo = ppo

    async def run_training_loop(self, *, max_iterations: int) -> TrainingSummary:
        """Train for so many updates, in a thread of its own."""
        return await asyncio.to_thread(self._run, max_iterations)

    def _run(self, updates: int) -> TrainingSummary:
        experiment = self.ppo.experiment(self.gym, updates=updates)
        config, begun = open_algorithm(experiment), time.monotonic()
        history: list[dict[str, float]] = []

        def listen(done: int, metrics: Mapping[str, float]) -> None:
            history.append(dict(metrics))
            if done % self.ppo.log_interval == 0:
                _log.info(
                    "update %d: success %.3f, reward %.3f", done, metrics[Metric.SUCCESS], metrics[Metric.REWARD_TOTAL]
                )

        with ExitStack() as stack:
            stack.enter_context(ray_running(1 + config.needed_cpus))
            algo: Any = config.build_algo()
            stack.callback(algo.stop)
            algo.listen = listen
            while algo.stopped is None:
                algo.train()
            run = algo.line.run
        attempts = updates * self.ppo.batch_size
        return TrainingSummary(run, updates, attempts, time.monotonic() - begun, history)


class PPOTrainer:
    """PPO by the number of attempts."""

    def __init__(self, config: PPOConfig, gym: GymTrainingConfig | None = None) -> None:
        self._loop = GymPPOIntegration(gym or GymTrainingConfig(), config)

    async def train(self, *, total_timesteps: int) -> TrainingSummary:
        """Train for at least so many attempts."""
        batch = self._loop.ppo.batch_size
        return await self._loop.run_training_loop(max_iterations=max(1, -(-total_timesteps // batch)))


def create_integrated_rl_system(gym_config: GymTrainingConfig, ppo_config: PPOConfig) -> GymPPOIntegration:
    """The two as one system, ready to train."""
    return GymPPOIntegration(gym_config, ppo_config)
