"""The base of algorithms that learn from logged episodes: the data at the learners, and updates without an environment.

Every learner holds its part of the data from the beginning, and draws from it. What it draws follows from its random
generator, which is part of checkpoints; the data are not, and are read again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import torch
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from torch import Tensor
from typing_extensions import override

from loomrl.algorithms.control.algorithm import ControlStep
from loomrl.algorithms.control.config import ControlConfig
from loomrl.algorithms.control.learner import OURS, ControlWork, PartsLearner
from loomrl.algorithms.control.step_replay import Ring
from loomrl.algorithms.learners import unwrap_errors
from loomrl.config import ControlExperiment, LoggedData
from loomrl.config.control import Replay
from loomrl.control.logged import deviation_of_returns, digest, steps_of
from loomrl.control.space import Array
from loomrl.errors import ArtifactError, ConfigError, DataError
from loomrl.feedback.logged import read_logged

Batch = dict[str, Tensor]
LOG_STD = (-5.0, 2.0)
"""Bounds of log standard deviations, those of the IQL paper."""


@dataclass(frozen=True, slots=True)
class LoggedWork(ControlWork):
    """Updates to make from the data."""

    updates: int = 0


class LoggedLearner(PartsLearner):
    """The base of learners that hold logged steps."""

    data: Ring | None = None
    """This learner's part of the data."""

    reward_scale: float = 1.0
    """The divisor of rewards."""

    def hold(self, columns: Mapping[str, Array], *, scale: float) -> None:
        """Hold this learner's part of the steps; observation statistics, if the network has them, become theirs."""
        least = len(columns["rewards"]) // self.ranks  # of equal size, so that all learners draw alike
        if not least:
            raise DataError(f"{len(columns['rewards'])} logged steps are too few for {self.ranks} learners.")
        mine = {name: column[self.rank :: self.ranks][:least] for name, column in columns.items()}
        self.data = self.open_ring(Replay(capacity=least))
        self.reward_scale = scale
        self.data.append({**mine, "rewards": mine["rewards"] / scale})
        self.observe(torch.from_numpy(mine["seen"]))

    def learn(self, work: ControlWork) -> int:
        """The updates of a lesson."""
        assert isinstance(work, LoggedWork)
        for _ in range(work.updates):
            self.improve(self.draw(self.share))
        return work.updates * self.share * self.ranks

    def improve(self, batch: Batch) -> None:
        """One update of everything that is learnt."""
        raise NotImplementedError

    @property
    def share(self) -> int:
        """Steps of an update that are this learner's."""
        return int(max(1, self.config.settings.batch // self.ranks))

    def draw(self, count: int) -> Batch:
        """`count` steps of the data, at random."""
        assert self.data is not None, "the algorithm has given the data"
        return self.on_device(self.data.draw(count).columns)

    def on_device(self, columns: Mapping[str, Array]) -> Batch:
        """The columns as the network's input."""
        return {name: torch.from_numpy(column).to(self._device) for name, column in columns.items()}

    def keep_spread(self) -> None:
        """Keep standard deviations of real-valued actions within bounds: of logs that never vary they would be 0."""
        if self.own.net.log_std is not None:
            with torch.no_grad():
                self.own.net.log_std.clamp_(*LOG_STD)

    @override
    def state_dict(self) -> dict[str, Any]:
        drawn = {} if self.data is None else {"drawn": self.data.chance}
        return super().state_dict() | drawn

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self.data is not None and "drawn" in state:
            self.data.chance = state["drawn"]


class LoggedConfig(ControlConfig):
    """`IQLConfig().environment("CartPole-v1").logged(minari="cartpole/mixed-v0").build_algo()`."""

    stock_learner = TorchLearner
    words: ClassVar[dict[str, Any]]

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class)
        self.logs: LoggedData | None = None
        self.logs_url = ""
        self.updates_per_iteration = 1000
        self.num_envs_per_env_runner = self.rollout_fragment_length = 1

    @classmethod
    @override
    def of(cls, experiment: ControlExperiment, *, run: str | None = None) -> Self:
        """The configuration of this experiment."""
        config = super().of(experiment, run=run)
        config.logs = experiment.data
        config.logs_url = experiment.store_url
        config.updates_per_iteration = experiment.train.tell_every
        return config

    def logged(
        self, *, minari: str | None = None, dataset: str | None = None, store_url: str = "sqlite:///loom.db"
    ) -> Self:
        """The episodes to learn from: a Minari data set, or one of the LoomDB at `store_url`."""
        self.logs = LoggedData.parse({"minari": minari, "dataset": dataset}, origin="logged")
        self.logs_url = store_url
        return self

    def _check_shares(self) -> None:
        if self.is_online_too:  # without rollouts nothing divides steps evenly
            super()._check_shares()

    @property
    def is_online_too(self) -> bool:
        """True if it learns on in the environment."""
        return False

    def tell_rllib(self) -> None:
        """Copy our settings to RLlib's names."""
        settings = self.settings
        self.lr = settings.learning_rate
        self.gamma = settings.gamma
        self.grad_clip = settings.clip_norm
        self.train_batch_size_per_learner = settings.batch
        if not self.is_online_too:
            self.min_sample_timesteps_per_iteration = 0  # it would wait for them
        if self.fallback_reasons:
            raise ConfigError(
                f"{'; '.join(self.fallback_reasons)}: {self.algo_class.__name__} has no runner and learner but ours. "
                "Leave that out, or use RLlib's own algorithms for its own offline data."
            )


class LoggedStep(ControlStep):
    """Mixed into RLlib's Algorithm: updates from logged data, until there are enough."""

    needs_rewards = True

    @override
    def setup(self, config: Any) -> None:
        """Set up, and give every learner its part of the data."""
        if config.logs is None:
            raise ConfigError(
                f"{type(self).__name__} learns from logged episodes: name them, config.logged(minari=ID)."
            )
        with unwrap_errors():
            super().setup(config)
        settings = self.config.settings
        module = self.get_module()
        episodes = read_logged(
            config.logs,
            module.observation_space,
            module.action_space,
            store_url=config.logs_url,
            rewarded=self.needs_rewards,
        )
        self.logged_digest = digest(episodes)
        scale = deviation_of_returns(episodes, gamma=settings.gamma) + 1e-8 if settings.normalize_rewards else 1.0
        hold = partial(_hold, columns=steps_of(episodes, gamma=settings.gamma), scale=scale)
        with unwrap_errors():
            [each.get() for each in self.learner_group.foreach_learner(hold)]
        if not self.config.is_online_too:
            self.planned = self.config.steps or self.config.updates_per_iteration
        self.sync_weights()

    @property
    @override
    def unit(self) -> str:
        return "steps" if self.config.is_online_too else "updates"

    @property
    @override
    def progress(self) -> int:
        return self.env_steps if self.config.is_online_too else self.updates

    @override
    def training_step(self) -> None:
        """The updates of an iteration, or what is left of the run."""
        asked: int = self.config.updates_per_iteration
        count = asked if self.config.steps is None else max(1, min(asked, self.config.steps - self.updates))
        works = [LoggedWork((), updates=count)] * max(1, self.config.num_learners)
        self.update_learners(works, count)
        self.sync_weights()

    @override
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"data": self.logged_digest}

    @override
    def _refuse_another(self, state: Mapping[str, Any]) -> None:
        super()._refuse_another(state)
        theirs = state.get(OURS, {}).get("data")
        if theirs is not None and theirs != self.logged_digest:
            raise ArtifactError(
                f"data set {self.config.logs.name!r} is not what this run began with (SHA-256): was it recorded anew? "
                "Restore it, or begin a run of its own with parent."
            )


def _hold(learner: LoggedLearner, *, columns: Mapping[str, Array], scale: float) -> None:
    learner.hold(columns, scale=scale)
