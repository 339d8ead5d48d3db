"""What control algorithms share beside the learner: their RLlib configuration, and one update as a training step."""

import logging
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar, Self

import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    ENV_RUNNER_SAMPLING_TIMER,
    EPISODE_LEN_MEAN,
    EPISODE_RETURN_MEAN,
    LEARNER_RESULTS,
    LEARNER_UPDATE_TIMER,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TIMERS,
)
from ray.util.debug import log_once

from algorithms.learner import OURS, Work
from algorithms.learners import training_data, unwrapped
from algorithms.module import ControlModule
from algorithms.probe import probe
from algorithms.rollout import Rollout, Window
from algorithms.runner import ArrayRunner, vectorization
from algorithms.slow import reasons
from loomrl.config.control import ControlAlgorithm
from loomrl.control.policy import ControlPolicy
from loomrl.errors import ConfigError, EpisodeError
from loomrl.schema import merge, nest

_log = logging.getLogger(__name__)

AUTO = "auto"
"""`gym_env_vectorize_mode` by which an environment's own vector form is used if it has one."""


class ControlConfig(AlgorithmConfig):  # type: ignore[misc]
    """Mixed into RLlib's configuration of the same algorithm. What is learnt how is in `settings`; the rest is RLlib's.

    `training(learning_rate=1e-3)` changes settings by their names in an experiment. Tune can search any of them:
    `training(learning_rate=tune.grid_search([1e-4, 1e-3]))`.
    """

    settings_class: ClassVar[type[ControlAlgorithm]]
    settings: Any
    fast_learner: ClassVar[type]
    stock_learner: ClassVar[type]
    stock_settings: ClassVar[frozenset[str]] = frozenset({"network", "gamma", "clip_norm"})
    """Those that RLlib's own learner knows, too."""

    def __init__(self, algo_class: type) -> None:
        super().__init__(algo_class)
        self.changes: dict[str, Any] = {}
        self.settings = self.settings_class()
        self.steps: int | None = None
        """Of the whole run, over which schedules stretch."""
        self.slow: tuple[str, ...] = ()
        """Why RLlib's own runner and learner are used; empty where ours are."""
        self.env_runner_cls = ArrayRunner
        self.gym_env_vectorize_mode = AUTO
        self.num_env_runners = 0
        self.num_envs_per_env_runner = 8
        self.rollout_fragment_length = 128

    def training(self, *, steps: int | None = None, **settings: Any) -> Self:
        """Settings of the algorithm by their names, and the steps of the whole run."""
        self.steps = steps if steps is not None else self.steps
        self.changes |= settings
        return self

    def validate(self) -> None:
        """Resolve the settings, choose the way, and tell RLlib what follows."""
        self.settings = self.settings_class.parse(
            merge(self.settings_class.defaults(), nest(self.changes)), origin=type(self).__name__
        )
        self.slow = reasons(self)
        if self.gym_env_vectorize_mode == AUTO:
            self.gym_env_vectorize_mode = "sync" if self.slow else vectorization(self.env)
        self.tell_rllib()
        if self.slow:
            self._go_slowly()
        else:
            self._check_shares()
            self.env_runner_cls = ArrayRunner
        log_once(f"{self.algo_class.__name__}_on_new_api_stack")
        super().validate()

    def tell_rllib(self) -> None:
        """Our settings under RLlib's names."""
        raise NotImplementedError

    def stock_spec(self) -> RLModuleSpec:
        """RLlib's own module of the same shape."""
        raise NotImplementedError

    @property
    def steps_per_update(self) -> int:
        """Of all runners."""
        return int(max(1, self.num_env_runners) * self.num_envs_per_env_runner * self.rollout_fragment_length)

    def _check_shares(self) -> None:
        learners = max(1, self.num_learners)
        if self.num_envs_per_env_runner % learners:
            raise ConfigError(
                f"num_envs_per_env_runner={self.num_envs_per_env_runner} cannot be divided among "
                f"num_learners={learners}: choose a multiple of {learners}."
            )

    def _go_slowly(self) -> None:
        self.env_runner_cls = SingleAgentEnvRunner if self.env_runner_cls is ArrayRunner else self.env_runner_cls
        lost = sorted(set(self.changes) - self.stock_settings)
        if lost:
            raise ConfigError(
                f"{', '.join(lost)}: RLlib's own runner and learner, which are used because of {'; '.join(self.slow)}, "
                "do not know that. Leave it out, or leave out what keeps ours from being used."
            )
        if log_once(f"slow {type(self).__name__} {self.slow}"):
            _log.warning(
                "%s uses RLlib's own runner and learner, which are several times slower, because of: %s.",
                self.algo_class.__name__,
                "; ".join(self.slow),
            )

    def get_default_learner_class(self) -> type:
        """Ours, where it can do the work."""
        return self.stock_learner if self.slow else self.fast_learner

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Ours, where it can do the work."""
        if self.slow:
            return self.stock_spec()
        return self.our_spec()

    def our_spec(self) -> RLModuleSpec:
        """The module that our learner teaches."""
        network = {"network": self.settings.network, "normalize": self.settings.normalize_observations}
        return RLModuleSpec(module_class=ControlModule, model_config=network)


class ControlStep(Algorithm):  # type: ignore[misc]
    """Mixed into RLlib's Algorithm: sample, learn, hand out weights."""

    window: Window
    """The latest episodes."""

    def setup(self, config: AlgorithmConfig) -> None:
        """RLlib's, and what an update needs to know of those before it."""
        if not config.slow:
            probe(config.env, config.env_config)
        super().setup(config)
        batch = self.config.steps_per_update
        self.window = Window()
        self.updates = 0
        """Done so far."""
        self.planned = -(-(self.config.steps or batch) // batch)
        """Of the whole run."""
        self.is_alone = not self.config.slow and self.config.num_env_runners == 0 and self.config.num_learners == 0
        if self.is_alone:  # one process needs no copy of the weights
            self.env_runner.module = self.learner_group._learner.module[DEFAULT_MODULE_ID]

    def training_step(self) -> None:
        """One update."""
        if self.config.slow:
            super().training_step()
            return
        rollouts = self.sampled()
        works = [self.work(share) for share in shares(rollouts, max(1, self.config.num_learners))]
        with self.metrics.log_time((TIMERS, LEARNER_UPDATE_TIMER)), unwrapped():
            results = self.learner_group.update(training_data=training_data(works))
        self.metrics.aggregate(results, key=LEARNER_RESULTS)
        self.updates += 1
        if self.is_alone:
            return
        with self.metrics.log_time((TIMERS, SYNCH_WORKER_WEIGHTS_TIMER)):
            self.env_runner_group.sync_weights(
                from_worker_or_learner_group=self.learner_group, policies={DEFAULT_MODULE_ID}, inference_only=True
            )

    @property
    def env_steps(self) -> int:
        """Taken so far, by all runners."""
        return int(self.metrics.peek((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME), default=0))

    def work(self, share: tuple[Rollout, ...]) -> Work:
        """What one learner is to do."""
        return Work(share)

    def sampled(self, *, random: bool = False) -> list[Rollout]:
        """A rollout of every runner that is alive; `random` ones ask no policy."""
        with self.metrics.log_time((TIMERS, ENV_RUNNER_SAMPLING_TIMER)):
            found = self._asked(random)
            if not found and self._are_back():
                found = self._asked(random)
        rollouts = [rollout for sample, _ in found for rollout in sample]
        for failed in rollouts:
            if isinstance(failed, EpisodeError):
                raise failed
        if not rollouts:
            raise EpisodeError(
                f"no env runner of {self.config.num_env_runners} brought anything home in "
                f"sample_timeout_s={self.config.sample_timeout_s}. Their log says why; a slow environment needs a "
                "longer timeout or a shorter rollout_fragment_length."
            )
        self.brought(rollouts, [told for _, told in found])
        return rollouts

    def _asked(self, random: bool) -> list[tuple[list[Any], Any]]:
        found: list[tuple[list[Any], Any]] = self.env_runner_group.foreach_env_runner(
            lambda runner: (runner.sample(random_actions=random), runner.get_metrics()),
            local_env_runner=self.config.num_env_runners == 0,
            timeout_seconds=self.config.sample_timeout_s,
        )
        return found

    def _are_back(self) -> bool:
        """Whether all runners had died, and some could be replaced; slow ones have not died."""
        group, until = self.env_runner_group, time.monotonic() + self.config.sample_timeout_s
        while not group.num_healthy_remote_env_runners() and time.monotonic() < until:
            time.sleep(0.1)
            if self.restore_env_runners(group):
                return True
        return False

    def brought(self, rollouts: Sequence[Rollout], counted: Sequence[Any]) -> None:
        """Count what the runners brought, and tell of the latest episodes."""
        self.metrics.aggregate(list(counted), key=ENV_RUNNER_RESULTS)
        self.window.observe(rollouts)
        means = self.window.means()
        if means is not None:
            for name, value in zip((EPISODE_RETURN_MEAN, EPISODE_LEN_MEAN), means, strict=True):
                self.metrics.log_value((ENV_RUNNER_RESULTS, name), value, window=1)

    def policy(self) -> ControlPolicy:
        """What was learnt so far, as a policy that acts without Ray; it does not change any more."""
        module = self.get_module()
        state = self.learner_group.get_state(components=COMPONENT_LEARNER)[COMPONENT_LEARNER]
        learnt = state[COMPONENT_RL_MODULE][DEFAULT_MODULE_ID]
        net = deepcopy(module.net)
        net.load_state_dict({name: torch.as_tensor(learnt[f"net.{name}"]) for name in net.state_dict()})
        return ControlPolicy(net, module.observation_space, module.action_space, module.model_config["network"])

    def get_state(self, components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """With the latest episodes."""
        state: dict[str, Any] = super().get_state(components, **kwargs)
        if components is None:
            state[OURS] = {"window": self.window.state_dict(), "updates": self.updates}
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        super().set_state(state)
        if OURS in state:
            self.window.load_state_dict(state[OURS]["window"])
            self.updates = state[OURS]["updates"]


def shares(rollouts: Sequence[Rollout], learners: int) -> list[tuple[Rollout, ...]]:
    """The same number of environments for every learner."""
    if learners == 1:
        return [tuple(rollouts)]
    parts = [rollout.split(learners) for rollout in rollouts]
    return [tuple(part[rank] for part in parts) for rank in range(learners)]
