"""What control algorithms share beside the learner: their RLlib configuration, and one update as a training step."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, ClassVar, Self

import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.env_runner_group import EnvRunnerGroup
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
from ray.tune.registry import register_env
from ray.util.debug import log_once

from algorithms.learner import OURS, Work
from algorithms.learners import own_settings, training_data, unwrapped
from algorithms.module import ActorModule, ControlModule
from algorithms.origin import origin, peeked, refuse_another
from algorithms.phase import Phases
from algorithms.probe import probe, registered
from algorithms.resources import Placed, ensure_room, needed_cpus, place
from algorithms.rollout import Rollout, Window
from algorithms.runner import ArrayRunner
from algorithms.slow import reasons
from loomrl.config import ControlExperiment, CustomAlgorithm, Placement
from loomrl.config.control import ControlAlgorithm
from loomrl.control.environment import NATIVE, SYNC, Creator, agents_in, label, native_or_sync, refuse_other_spaces
from loomrl.control.policy import ControlPolicy
from loomrl.errors import ConfigError, EpisodeError
from loomrl.schema import merge, nest
from loomrl.telemetry.metric import Metric

_log = logging.getLogger(__name__)

Brought = tuple[list[Any], Any]
"""What a runner brings home: rollouts, or an error that came up in them, and its counters."""
OUR_LAYERS = ("layer_norm", "orthogonal", "log_std")
"""Settings of a network that RLlib's own modules do not know."""
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
    fast_runner: ClassVar[type[ArrayRunner]] = ArrayRunner
    stock_settings: ClassVar[frozenset[str]] = frozenset({"network", "gamma", "clip_norm"})
    """Those that RLlib's own learner knows, too."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class)
        self.changes: dict[str, Any] = {}
        self.settings = self.settings_class()
        self.steps: int | None = None
        """Of the whole run, over which schedules stretch."""
        self.slow: tuple[str, ...] = ()
        """Why RLlib's own runner and learner are used; empty where ours are."""
        self.env_runner_cls = self.fast_runner
        self.gym_env_vectorize_mode = AUTO
        self.num_env_runners, self.placement = 0, Placement()
        self.num_envs_per_env_runner = 8
        self.rollout_fragment_length = 128

    @classmethod
    def of(cls, experiment: ControlExperiment, *, run: str | None = None) -> Self:
        """The configuration of this experiment; `run` is for those that keep records of their own."""
        config, rollout, choice = cls(), experiment.rollout, experiment.environment
        stages = [settings for settings, _ in experiment.stages]
        refuse_other_spaces(choice, stages)
        name, first = f"{label(choice)}/{choice.vectorization}", stages[0]
        register_env(name, Creator(choice))
        config.environment(name, env_config=first)
        config.env_runners(
            num_env_runners=rollout.runners,
            num_envs_per_env_runner=(rollout.environments or config.num_envs_per_env_runner) * agents_in(choice, first),
            rollout_fragment_length=rollout.steps or config.rollout_fragment_length,
            gym_env_vectorize_mode=NATIVE,
        )
        config.learners(num_learners=experiment.learners.count, num_gpus_per_learner=experiment.learners.gpus)
        place(config, experiment.placement, runners="rollout.runners", learners="learners.count")
        config.fault_tolerance(delay_between_env_runner_restarts_s=0)
        config.reporting(min_sample_timesteps_per_iteration=experiment.train.tell_every)
        config.debugging(seed=experiment.seed)
        return config.training(steps=experiment.train.steps, **_chosen(experiment.algorithm))

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
            alone = self.slow or registered(self.env)
            self.gym_env_vectorize_mode = SYNC if alone else native_or_sync(self.env)
        self.tell_rllib()
        if self.slow:
            self._go_slowly()
        else:
            self._check_shares()
            self.env_runner_cls = self.fast_runner
        log_once(f"{self.algo_class.__name__}_on_new_api_stack")
        super().validate()

    def look(self) -> None:
        """Refuse an environment that cannot be trained on."""
        probe(self.env, self.env_config)

    def tell_rllib(self) -> None:
        """Our settings under RLlib's names."""
        raise NotImplementedError

    def stock_spec(self) -> RLModuleSpec:
        """RLlib's own module of the same shape."""
        raise NotImplementedError

    @property
    def needed_cpus(self) -> int:
        """Of remote learners and runners."""
        return needed_cpus(self)

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
        is_ours = self.env_runner_cls is self.fast_runner
        self.env_runner_cls = SingleAgentEnvRunner if is_ours else self.env_runner_cls
        lost = sorted({*self.changes} - self.stock_settings | self._unknown_of_network())
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

    def _unknown_of_network(self) -> set[str]:
        """What RLlib's own modules cannot do of the settings of a network."""
        ours, usual = self.settings.network, type(self.settings)().network
        return {f"network.{name}" for name in OUR_LAYERS if getattr(ours, name) != getattr(usual, name)}

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


class ControlStep(Placed):
    """Mixed into RLlib's Algorithm: sample, learn, hand out weights."""

    window: Window
    """The latest episodes."""

    place: dict[str, Any] | None = None
    """Settings of the environments that runners have moved to; None where they are as configured."""

    def setup(self, config: AlgorithmConfig) -> None:
        """RLlib's, and what an update needs to know of those before it."""
        ensure_room(config)
        if not config.slow:
            config.look()
        super().setup(config)
        batch = self.config.steps_per_update
        self.window = Window()
        self.phases = Phases()
        """Where the seconds go; whoever wants to know of a part of training puts new ones here."""
        self.updates = 0
        """Done so far."""
        self.planned = -(-(self.config.steps or batch) // batch)
        """Of the whole run."""
        apart = self.config.num_env_runners or self.config.num_learners or self.config.num_gpus_per_learner
        self.is_alone = not self.config.slow and not apart
        if self.is_alone:  # one process needs no copy of the weights
            self.env_runner.module = self.learner_group._learner.module[DEFAULT_MODULE_ID]

    def training_step(self) -> None:
        """One update."""
        if self.config.slow:
            super().training_step()
            return
        with self.phases(Metric.TIME_ROLLOUT):
            rollouts = self.sampled()
        works = [self.work(share) for share in shares(rollouts, max(1, self.config.num_learners))]
        with self.metrics.log_time((TIMERS, LEARNER_UPDATE_TIMER)), self.phases(Metric.TIME_LEARN), unwrapped():
            results = self.learner_group.update(training_data=training_data(works))
        self.metrics.aggregate(results, key=LEARNER_RESULTS)
        self.updates += 1
        if self.is_alone:
            return
        with self.metrics.log_time((TIMERS, SYNCH_WORKER_WEIGHTS_TIMER)), self.phases(Metric.TIME_PUBLISH):
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
            found = self.asked(random)
            if not found and self._are_back():
                found = self.asked(random)
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

    def asked(self, random: bool) -> list[Brought]:
        """What the runners that answer in time bring home."""
        found: list[Brought] = self.env_runner_group.foreach_env_runner(
            self.errand(random),
            local_env_runner=self.config.num_env_runners == 0,
            timeout_seconds=self.config.sample_timeout_s,
        )
        return found

    def errand(self, random: bool) -> Callable[[Any], Brought]:
        """What every runner is to do for an update."""
        return partial(collected, random=random)

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

    def move_to(self, settings: dict[str, Any]) -> None:
        """Go on in environments with these settings, with episodes that begin there."""
        self.place = settings
        self.env_runner_group.foreach_env_runner(
            lambda runner: runner.enter(settings), local_env_runner=self.config.num_env_runners == 0
        )
        self.window = Window()

    def restore_env_runners(self, env_runner_group: EnvRunnerGroup) -> list[int]:
        """RLlib's; a new runner goes where the others are."""
        restored: list[int] = super().restore_env_runners(env_runner_group)
        if restored and self.place is not None and env_runner_group is self.env_runner_group:
            settings = self.place
            env_runner_group.foreach_env_runner(
                lambda runner: runner.enter(settings), remote_worker_ids=restored, local_env_runner=False
            )
        return restored

    def measured(self, result: Mapping[str, Any]) -> dict[str, float]:
        """Our metrics in a result of `train`; what was not measured is left out."""
        learnt, acted = result.get(LEARNER_RESULTS, {}).get(DEFAULT_MODULE_ID, {}), result.get(ENV_RUNNER_RESULTS, {})
        found = {str(name): learnt.get(name) for name in Metric}
        found |= {str(Metric.RETURN): acted.get(EPISODE_RETURN_MEAN), Metric.EPISODE_STEPS: acted.get(EPISODE_LEN_MEAN)}
        return {name: float(value) for name, value in found.items() if value is not None}

    def policy(self) -> ControlPolicy:
        """What was learnt so far, as a policy that acts without Ray; it does not change any more."""
        module = self.get_module()
        if not isinstance(module, ActorModule):
            why = f" because of {'; '.join(self.config.slow)}" if self.config.slow else ""
            raise ConfigError(
                f"policy() knows the networks of `network`, and this run teaches a {type(module).__name__}{why}. Leave "
                "out what brings another module, or take that one as it is: algo.get_module()."
            )
        state = self.learner_group.get_state(components=COMPONENT_LEARNER)[COMPONENT_LEARNER]
        learnt = state[COMPONENT_RL_MODULE][DEFAULT_MODULE_ID]
        net = deepcopy(module.net)
        net.load_state_dict({name: torch.as_tensor(learnt[f"net.{name}"]) for name in net.state_dict()})
        return ControlPolicy(net, module.observation_space, module.action_space, module.model_config["network"])

    def get_state(self, components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """With the latest episodes."""
        state: dict[str, Any] = super().get_state(components, **kwargs)
        if components is None:
            state[OURS] = {"window": self.window.state_dict(), "updates": self.updates, "place": self.place}
            if not self.config.slow:
                state[OURS]["origin"] = origin(self.config, self.get_module())
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken; an ArtifactError where that is another environment or network."""
        self._refuse_another(state)
        if OURS in state and state[OURS]["place"] is not None:
            self.move_to(state[OURS]["place"])
        super().set_state(state)
        if OURS in state:
            self.window.load_state_dict(state[OURS]["window"])
            self.updates = state[OURS]["updates"]

    def restore_from_path(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """As RLlib does, once it is known that what lies there is of this environment and network."""
        if "component" not in kwargs:
            self._refuse_another(peeked(path, self.STATE_FILE_NAME))
        super().restore_from_path(path, *args, **kwargs)

    def take_over(self, path: Any) -> None:
        """Go on from a checkpoint whose settings were others: its weights, moments and counters, and our settings."""
        with own_settings(self.learner_group):
            self.restore_from_path(path)

    def _refuse_another(self, state: Mapping[str, Any]) -> None:
        if not self.config.slow:
            refuse_another(state, origin(self.config, self.get_module()))


def collected(runner: ArrayRunner, *, random: bool) -> Brought:
    """A fragment, and the counters since the last one."""
    return runner.sample(random_actions=random), runner.get_metrics()


def _chosen(algorithm: ControlAlgorithm | CustomAlgorithm) -> dict[str, Any]:
    """What differs from the defaults."""
    if isinstance(algorithm, CustomAlgorithm):
        return algorithm.settings
    chosen, usual = algorithm.model_dump(mode="json", exclude={"kind"}), algorithm.defaults()
    return {name: value for name, value in chosen.items() if value != usual[name]}


def shares(rollouts: Sequence[Rollout], learners: int) -> list[tuple[Rollout, ...]]:
    """The same number of environments for every learner."""
    if learners == 1:
        return [tuple(rollouts)]
    parts = [rollout.split(learners) for rollout in rollouts]
    return [tuple(part[rank] for part in parts) for rank in range(learners)]
