"""The RLlib configuration of token policies: an Experiment, and what RLlib wants to know of it."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import gymnasium
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.util.debug import log_once
from typing_extensions import override

from loomrl.algorithms.language.learner import LanguageLearner
from loomrl.algorithms.language.module import LanguageModule
from loomrl.algorithms.language.resolved import Algorithms, Resolved
from loomrl.algorithms.language.runner import IdleRunner, LanguageRunner
from loomrl.algorithms.language.served.learner import ServedLearner
from loomrl.algorithms.language.weave import WeaveLanguageLearner
from loomrl.algorithms.learners import refuse
from loomrl.algorithms.names import NamedConfig
from loomrl.algorithms.resources import Part, place
from loomrl.config import (
    GRPO,
    KTO,
    PPO,
    RAFT,
    CustomAlgorithm,
    Experiment,
    LanguageWeave,
    Remote,
    RewardModel,
    VllmEngineConfig,
)
from loomrl.errors import ConfigError
from loomrl.gym.catalogue import EnvironmentRegistration, list_announced, registrations
from loomrl.gym.task_mixture import resolve_id
from loomrl.inference.engine import Engine
from loomrl.named import named
from loomrl.schema import Tree, merge, nest

LANGUAGE = "loomrl.algorithms.language.algorithm:Language"
"""By name: the class builds itself from this configuration."""
RESOLVED = "_resolved_experiment"


class _Known(NamedTuple):
    """An experiment, and what it was resolved from."""

    tree: Tree
    changes: Mapping[str, Any]
    experiment: Experiment


class LanguageConfig(NamedConfig):
    """An ordinary AlgorithmConfig whose settings are those of an Experiment.

    `LanguageConfig.of(experiment).training(optimizer={"learning_rate": 1e-4}).build_algo()`. Tune can search any
    setting by its path: `config.changes["algorithm.optimizer.learning_rate"] = tune.grid_search([1e-4, 1e-3])`.
    An algorithm of your own is a subclass (docs/custom.md): it names its learner in `get_default_learner_class`, and in
    `settings` what `algorithm.settings` of its experiments may say.
    """

    settings: type[Algorithms] = GRPO
    """For an algorithm of your own: the settings and advantages of one of ours, or a subclass with more settings."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class or named(LANGUAGE, what="algorithm"))
        self.observation_space: gymnasium.Space[Any] = gymnasium.spaces.Discrete(1)
        self.action_space: gymnasium.Space[Any] = gymnasium.spaces.Discrete(1)
        self.tree: Tree = Experiment.defaults() | {"name": "language"}
        self.changes: dict[str, Any] = {}
        self.run: str | None = None
        """Id of the run; an existing one is resumed. None makes a new one."""
        self.registrations: tuple[EnvironmentRegistration, ...] = ()
        """Environments that remote runners have to know."""
        self.shared_engine: Engine | None = None
        """The engine of runners that have none of their own."""

    @classmethod
    def of(cls, experiment: Experiment, *, run: str | None = None) -> Self:
        """The configuration of this experiment."""
        config = cls()
        config.tree = experiment.plain
        config.run = run
        return config

    @override
    def training(self, **settings: Any) -> Self:
        """Settings of the algorithm, by their names in the experiment."""
        own = isinstance(self.experiment.algorithm, CustomAlgorithm)
        for name, value in settings.items():
            self.changes[f"algorithm.settings.{name}" if own else f"algorithm.{name}"] = value
        return self

    @property
    @override
    def ours(self) -> Collection[str]:
        return self.settings.model_fields.keys()

    @override
    def validate(self) -> None:
        """Resolve the experiment and tell RLlib what follows from it."""
        if isinstance(self.algorithm, Remote):
            raise ConfigError(
                "algorithm.kind=remote is on record of a training whose loop was its client's, and cannot be started: "
                "`loomrl serve --train BASE` serves such trainings."
            )
        experiment = self.experiment
        learners = self.algorithm.learners
        parent = experiment.parent
        path = self.algorithm.model.path
        if (parent is not None and path is not None) or (experiment.data is not None and parent is path is None):
            raise ConfigError(
                f"parent={parent!r} and algorithm.model.path={path!r}: a run begins with one policy. Give one of them; "
                "`loomrl train` takes a data set's own."
            )
        if experiment.rollout.replay is not None:
            experiment.rollout.replay.check_algorithm(self.algorithm)  # one of the user's own was not seen before
        for environment in experiment.environments:
            resolve_id(environment.id)
        self.registrations = (*registrations(), *list_announced(each.id for each in experiment.environments))
        self.seed = experiment.seed
        self.env_runner_cls = LanguageRunner if experiment.environments else IdleRunner
        self.num_env_runners = experiment.rollout.runners
        self.create_local_env_runner = not experiment.rollout.runners
        refuse(learners.compression, learners=learners.count, gpus=learners.gpus)
        self.num_learners = learners.count
        self.num_gpus_per_learner = learners.gpus
        place(self, experiment.placement, runners="rollout.runners", learners="algorithm.learners.count")
        self.restart_failed_env_runners = True
        self.delay_between_env_runner_restarts_s = 0.0
        self.lr = self.algorithm.optimizer.learning_rate
        log_once(
            f"{self.algo_class.__name__}_on_new_api_stack"
        )  # said already, so RLlib does not: it has no choice here
        super().validate()

    @property
    def experiment(self) -> Experiment:
        """The resolved experiment; resolved again only where a setting has changed since."""
        known: _Known | None = vars(self).get(RESOLVED)
        if known is None or known.tree is not self.tree or known.changes != self.changes:
            experiment = Experiment.parse(merge(self.tree, nest(self.changes)), origin="LanguageConfig")
            self.__dict__[RESOLVED] = known = _Known(self.tree, dict(self.changes), experiment)
        return known.experiment

    @override
    def to_dict(self) -> dict[str, Any]:
        """RLlib's settings and ours, without what follows from them."""
        told: dict[str, Any] = super().to_dict()
        told.pop(RESOLVED, None)
        return told

    @property
    def algorithm(self) -> Algorithms:
        """The experiment's algorithm; one over token policies."""
        algorithm = self.experiment.algorithm
        if isinstance(algorithm, RewardModel):
            raise ConfigError(
                "algorithm.kind=reward makes a classifier, which is not a policy: `loomrl train` trains it, and a "
                "reward names its folder, rewards.parts=[{kind: classifier, path: runs/RUN/reward_model}]."
            )
        if not isinstance(algorithm, CustomAlgorithm):
            return algorithm
        if type(self) is LanguageConfig:
            raise ConfigError(
                f"algorithm.kind='custom': LanguageConfig itself is none. Build its subclass {algorithm.entry_point}, "
                "which overrides get_default_learner_class, by loomrl.experiments.algorithms.open_algorithm "
                "(docs/custom.md)."
            )
        return self.settings.parse(algorithm.settings, origin=f"algorithm.settings of {algorithm.entry_point}")

    @property
    def engines(self) -> tuple[Part, ...]:
        """Those that are actors of their own."""
        engine = self.experiment.engine
        where = self.experiment.placement.engine
        if not isinstance(engine, VllmEngineConfig):
            return ()
        each = {"CPU": 1.0 if where.cpus is None else where.cpus, "GPU": engine.gpus, **where.resources}
        return ((f"engine.count={engine.count}", engine.count, each),)

    @property
    def resolved(self) -> Resolved:
        """The experiment with its algorithm."""
        return Resolved(self.experiment, self.algorithm)

    @property
    def origin(self) -> Path:
        """The folder of the first weights, on this machine."""
        return self.resolved.origin

    def sampling_from(self, engine: Engine) -> Self:
        """A configuration from which runners know an engine that they share."""
        changed: Self = self.copy(copy_frozen=False)
        changed.shared_engine = engine
        changed.freeze()
        return changed

    def with_tokens(self, tokens: int) -> Self:
        """A configuration whose forward passes have at most so many tokens."""
        changed: Self = self.copy(copy_frozen=False)
        own = isinstance(self.experiment.algorithm, CustomAlgorithm)
        changed.changes[f"algorithm.{'settings.' * own}optimizer.micro_batch_tokens"] = tokens
        changed.freeze()
        return changed

    @override
    def get_default_learner_class(self) -> type[LanguageLearner]:
        """One learner for all that is rewarded or preferred, and one for what was served."""
        if isinstance(self.algorithm, LanguageWeave):
            return WeaveLanguageLearner
        return ServedLearner if isinstance(self.algorithm, KTO | RAFT) else LanguageLearner

    @override
    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """The model; text has no Gymnasium spaces, so they say nothing."""
        algorithm = self.algorithm
        return RLModuleSpec(
            module_class=LanguageModule,
            observation_space=self.observation_space,
            action_space=self.action_space,
            model_config={
                "model": self.resolved.model,
                "artifact_url": self.experiment.artifact_url,
                "built": self.resolved.built_name,
                "values": _values(algorithm),
                "critics": algorithm.critics if isinstance(algorithm, LanguageWeave) else 1,
                "temperature": self.resolved.temperature,
                "compiled": algorithm.learners.compile,
            },
        )


def _values(algorithm: Algorithms) -> int:
    """How many numbers a value head tells."""
    if isinstance(algorithm, LanguageWeave):
        return algorithm.critics * max(1, len(algorithm.tree.leaves))
    return int(isinstance(algorithm, PPO))
