"""PPO over a gym in a dozen knobs, for a script or a notebook. The same machinery as `loomrl train`.

trainer = PPOTrainer(PPOConfig(learning_rate=3e-4, batch_size=128))
summary = await trainer.train(total_timesteps=5_000)
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import Field

from loomrl.config import PPO, EnvironmentConfig, Experiment, LanguageModel, Sampling, WarmStart
from loomrl.config.basic import Level, NonNegative, Positive, PositiveInt, Seed
from loomrl.errors import ConfigError
from loomrl.experiments.shipped import TRAINED, resolve_language
from loomrl.experiments.train import TrainResult, train
from loomrl.experiments.training import Listener
from loomrl.gym.catalogue import find
from loomrl.gym.manual import ManualEnvironment
from loomrl.gym.task_mixture import resolve_id
from loomrl.schema import Config
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import metrics_file, read_metrics

_log = logging.getLogger(__name__)


def _demo(name: str) -> Any:
    """A default that is what the demo has."""
    return Field(default_factory=lambda: getattr(resolve_language([TRAINED]).algorithm, name))


class GymTrainingConfig(Config):
    """The agent's environments and model. The defaults are those of the demo, which learns on a laptop."""

    enabled_env_types: tuple[str | EnvironmentConfig, ...] = Field(
        default_factory=lambda: resolve_language([TRAINED]).environments, min_length=1
    )
    """Names, or names with families, settings and weights: several make one policy for several tasks."""
    environments_per_type: PositiveInt | None = None
    """Attempts that are open at the same time, per type; None leaves it to `rollout.concurrency`."""
    curriculum_learning: bool = False
    """True: levels rise with success; False: every task is of `level`."""
    target_success_rate: float = Field(0.8, gt=0, lt=1)
    """Success at which `curriculum_learning` keeps each family: above it the level rises."""
    level: Level = 2
    """The initial level, or the only one."""
    group_size: PositiveInt = 8
    model: LanguageModel = _demo("model")
    sampling: Sampling = _demo("sampling")
    warm_start: WarmStart = _demo("warm_start")
    evaluation_episodes: PositiveInt = 100
    """Held-out tasks on which the policy is judged before and after."""
    name: str = "integrated"
    seed: Seed = 0
    store_url: str = "sqlite:///loom.db"
    artifact_url: str = "artifacts"
    folder: str = "runs"
    """Folder of metrics and the page."""

    @property
    def environments(self) -> tuple[EnvironmentConfig, ...]:
        """The types, each as an experiment has it."""
        return tuple(EnvironmentConfig(id=str(e)) if isinstance(e, str) else e for e in self.enabled_env_types)

    def curriculum(self) -> dict[str, Any]:
        """The curriculum of an experiment."""
        if self.curriculum_learning:
            return {"kind": "adaptive", "start_level": self.level, "target": self.target_success_rate}
        if "target_success_rate" in self.model_fields_set:
            raise ConfigError("target_success_rate has no effect without curriculum_learning=True.")
        return {"kind": "fixed", "level": self.level}


class PPOSettings(Config):
    """The main settings of PPO under the names that most libraries give them; `loomrl.PPOConfig`."""

    other_words: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(PPO.model_fields, "an Experiment, whose algorithm has it (docs/notebook.md)"),
        "lr": "learning_rate",
    }
    learning_rate: Positive = 1e-4
    batch_size: PositiveInt = 64
    """Attempts per update."""
    n_epochs: PositiveInt = 1
    clip_epsilon: float = Field(0.2, gt=0, lt=1)
    value_loss_coef: NonNegative = 0.5
    entropy_coef: float = 0.0
    total_episodes: PositiveInt | None = None
    """Attempts in all, where `train` or `run_training_loop` is not told how long."""
    distributed: bool = False
    """Two learners, each with half of every batch, and two runners; else everything in this process."""
    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"
    """Compression of gradients between the two learners."""
    sync_frequency: PositiveInt = 1
    """Updates between two times that the runners get new weights."""
    log_interval: PositiveInt = 1
    """Updates between two lines of the log."""

    def experiment(self, gym: GymTrainingConfig, *, updates: int) -> Experiment:
        """These settings and this gym as an Experiment of so many updates."""
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
                "learners": {"count": 2 if self.distributed else 0, "compression": self.compression},
            }
        )
        rollout: dict[str, Any] = {
            "group_size": gym.group_size,
            "groups_per_update": self.batch_size // gym.group_size,
            "runners": 2 if self.distributed else 0,
            "publish_every": self.sync_frequency,
        }
        if gym.environments_per_type is not None:
            rollout["concurrency"] = gym.environments_per_type * len(gym.environments)
        return Experiment(
            name=gym.name,
            seed=gym.seed,
            environments=gym.environments,
            curriculum=gym.curriculum(),
            algorithm=algorithm,
            rollout=rollout,
            hub={"max_staleness": self.sync_frequency - 1},
            train={"updates": updates, "checkpoint_every": self.sync_frequency, "folder": gym.folder},
            evaluation={"episodes": gym.evaluation_episodes, "levels": [gym.level]},
            store_url=gym.store_url,
            artifact_url=gym.artifact_url,
        )

    def updates(self, attempts: int | None, *, named: str) -> int:
        """Updates that make at least so many attempts, or `total_episodes`."""
        wanted = self.total_episodes if attempts is None else attempts
        if wanted is None:
            raise ConfigError(f"how long? Give {named}, or PPOConfig(total_episodes=…).")
        return max(1, -(-wanted // self.batch_size))


@dataclass(frozen=True, slots=True)
class TrainedPolicy:
    """A policy version, and the LoomDB that knows it: what `RolloutEngine.load_policy` takes."""

    id: str
    store_url: str

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    """The result of a training loop."""

    run: str
    policy: TrainedPolicy
    """The last version."""
    best: TrainedPolicy
    versions: tuple[str, ...]
    """First, best and last: those that are kept."""
    iterations: int
    timesteps: int
    """Attempts."""
    seconds: float
    success_before: Mapping[str, float | None]
    """On held-out tasks by type, sampled as in training; None where every attempt failed."""
    success_after: Mapping[str, float | None]
    page: str
    """Curves and samples, as a file to open in a browser."""
    history: list[dict[str, Any]] = field(repr=False)
    """Every update's metrics (`loomrl.telemetry.metric`)."""

    @property
    def success(self) -> float:
        """Metrics of the last update."""
        return float(self.history[-1][Metric.SUCCESS]) if self.history else 0.0


class GymPPOIntegration:
    """A gym and a PPO learner, wired through the trajectory hub."""

    def __init__(self, gym_config: GymTrainingConfig, ppo_config: PPOSettings) -> None:
        self.gym = gym_config
        self.ppo = ppo_config
        self.summary: TrainingSummary | None = None
        """Result of the latest training."""

    async def run_training_loop(self, *, max_iterations: int | None = None) -> TrainingSummary:
        """Train for so many updates, in a thread of its own."""
        updates = max_iterations or self.ppo.updates(None, named="max_iterations")
        return await asyncio.to_thread(self.run, updates)

    def run(self, updates: int, *, listener: Listener | None = None) -> TrainingSummary:
        """Train for so many updates; the caller waits. `listener` is told of each."""
        experiment = self.ppo.experiment(self.gym, updates=updates)

        def listen(done: int, metrics: Mapping[str, float]) -> None:
            if done % self.ppo.log_interval == 0:
                success = metrics[Metric.SUCCESS]
                reward = metrics[Metric.REWARD_TOTAL]
                _log.info("update %d: success %.3f, reward %.3f", done, success, reward)
            if listener is not None:
                listener(done, metrics)

        result = train(experiment, listener=listen)
        self.summary = _summary(experiment, result)
        return self.summary

    def on(self, environments: Iterable[EnvironmentConfig]) -> "GymPPOIntegration":
        """The same on other environments."""
        changed = self.gym.model_copy(update={"enabled_env_types": tuple(environments)})
        return GymPPOIntegration(changed, self.ppo)


class PPOTrainer:
    """PPO by the number of attempts."""

    def __init__(self, config: PPOSettings, gym: GymTrainingConfig | None = None) -> None:
        self.integration = GymPPOIntegration(gym or GymTrainingConfig(), config)

    async def train(self, *, total_timesteps: int | None = None) -> TrainingSummary:
        """Train for at least so many attempts, or `total_episodes`."""
        updates = self.integration.ppo.updates(total_timesteps, named="total_timesteps")
        return await self.integration.run_training_loop(max_iterations=updates)

    @property
    def policy(self) -> TrainedPolicy:
        """The best version of the latest training."""
        if self.integration.summary is None:
            raise ConfigError("nothing was trained yet: await train() first.")
        return self.integration.summary.best


async def create_integrated_rl_system(gym_config: GymTrainingConfig, ppo_config: PPOSettings) -> GymPPOIntegration:
    """The two as one system, ready to train. What does not fit together is said here."""
    for environment in gym_config.environments:
        find(resolve_id(environment.id))
    ppo_config.experiment(gym_config, updates=1)
    return GymPPOIntegration(gym_config, ppo_config)


def config_of(environment: ManualEnvironment) -> EnvironmentConfig:
    """An environment that was created by hand, as an experiment has it."""
    inside = environment.environment
    return EnvironmentConfig(id=inside.name, settings=inside.settings.model_dump(mode="json"))


def _summary(experiment: Experiment, result: TrainResult) -> TrainingSummary:
    sampled = next(comparison for comparison in result.comparisons if comparison.name == "sampled")
    first = f"{result.run}/0"
    best = result.best or result.policy
    return TrainingSummary(
        run=result.run,
        policy=TrainedPolicy(result.policy, experiment.store_url),
        best=TrainedPolicy(best, experiment.store_url),
        versions=tuple(dict.fromkeys((first, best, result.policy))),
        iterations=result.updates,
        timesteps=result.updates * experiment.rollout.groups_per_update * experiment.rollout.group_size,
        seconds=result.seconds,
        success_before=_by_type(sampled.before),
        success_after=_by_type(sampled.after),
        page=result.page,
        history=list(read_metrics(metrics_file(experiment.train, result.run))),
    )


def _by_type(report: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: score["success"]["mean"] for name, score in report["by_environment"].items()}
