"""The training step that control algorithms share; and the check that a checkpoint belongs to it."""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    ENV_RUNNER_SAMPLING_TIMER,
    EPISODE_LEN_MEAN,
    EPISODE_RETURN_MAX,
    EPISODE_RETURN_MEAN,
    EPISODE_RETURN_MIN,
    LEARNER_RESULTS,
    LEARNER_UPDATE_TIMER,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TIMERS,
)
from typing_extensions import override

from loomrl.algorithms.control.league import open_league
from loomrl.algorithms.control.learner import OURS, ControlWork
from loomrl.algorithms.control.module import ActorModule, seed_without_compiler
from loomrl.algorithms.control.rollout import POLICY_RETURN, Episode, Rollout, Window, spread_of
from loomrl.algorithms.control.runner import ArrayRunner
from loomrl.algorithms.learners import load_state_file, own_settings, training_data, unwrap_errors
from loomrl.algorithms.resources import Placed, ensure_room
from loomrl.algorithms.timing import Phases
from loomrl.control.policy import ControlPolicy
from loomrl.control.space import acts
from loomrl.control.team_policy import TeamPolicy
from loomrl.errors import ArtifactError, ConfigError, EpisodeError
from loomrl.telemetry.metric import Metric

Brought = tuple[list[Any], Any]
"""A runner's result: rollouts or an error, and its counters."""


class ControlStep(Placed):
    """Mixed into RLlib's Algorithm: sample, learn, hand out weights."""

    window: Window
    """The latest episodes."""

    place: dict[str, Any] | None = None
    """Settings of the environments that runners have moved to; None for the configured ones."""

    @override
    def setup(self, config: Any) -> None:
        """Set up RLlib's part, and the state kept between updates."""
        ensure_room(config)
        seed_without_compiler()
        if not config.fallback_reasons:
            config.look()
        config.refuse_unmasked()
        super().setup(config)
        batch = self.config.steps_per_update
        self.window = Window()
        self.windows = {name: Window() for name in self.config.team}
        """The latest episodes of each policy, if there are several."""
        self.phases = Phases()
        """Seconds by phase; a caller that measures part of the training replaces it."""
        self.updates = 0
        """Updates so far."""
        self.league = open_league(self.config)
        """The opponents that runners play against; None unless the environment asks for them."""
        self.checked: deque[Episode] = deque(maxlen=10_000)
        """The latest episodes with a second check; a caller that looks at them clears it."""
        self._spreads: list[Mapping[Metric, float]] = []
        """How actions lay between their bounds since the last metrics."""
        self.planned = -(-(self.config.steps or batch) // batch)
        """Updates of the whole run."""
        apart = self.config.num_env_runners or self.config.num_learners or self.config.num_gpus_per_learner
        self.is_alone = not self.config.fallback_reasons and not apart
        if self.is_alone:  # one process needs no copy of the weights
            module = self.learner_group._learner.module
            self.env_runner.module = module if self.config.team else module[DEFAULT_MODULE_ID]

    @override
    def training_step(self) -> None:
        """One update."""
        if self.config.fallback_reasons:
            super().training_step()
            return
        with self.phases(Metric.TIME_ROLLOUT):
            rollouts = self.collect_rollouts()
        works = [self.work(share) for share in shares(rollouts, max(1, self.config.num_learners))]
        self.update_learners(works)
        if self.is_alone:
            return
        with self.metrics.log_time((TIMERS, SYNCH_WORKER_WEIGHTS_TIMER)), self.phases(Metric.TIME_PUBLISH):
            self.sync_weights()

    def update_learners(self, works: Sequence[ControlWork], updates: int = 1) -> None:
        """Run this number of updates, with each learner's work."""
        with self.metrics.log_time((TIMERS, LEARNER_UPDATE_TIMER)), self.phases(Metric.TIME_LEARN), unwrap_errors():
            results = self.learner_group.update(training_data=training_data(works))
        self.metrics.aggregate(results, key=LEARNER_RESULTS)
        self.updates += updates

    def sync_weights(self) -> None:
        """Give runners, if they have a copy, the learner's weights."""
        if not self.is_alone:
            self.env_runner_group.sync_weights(
                from_worker_or_learner_group=self.learner_group, policies={*self.config.policies}, inference_only=True
            )

    @property
    def env_steps(self) -> int:
        """Environment steps so far, of all runners."""
        return int(self.metrics.peek((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME), default=0))

    @property
    def unit(self) -> str:
        """The unit of `progress`: steps, or updates."""
        return "steps"

    @property
    def progress(self) -> int:
        """How far the run is: the number of its present version."""
        return self.env_steps

    def work(self, share: tuple[Rollout, ...]) -> ControlWork:
        """The work of one learner."""
        return ControlWork(share)

    def collect_rollouts(self, *, random: bool = False) -> list[Rollout]:
        """A rollout of every living runner; with `random`, without asking the policy."""
        if self.league is not None:
            self.league.seat(self)
        with self.metrics.log_time((TIMERS, ENV_RUNNER_SAMPLING_TIMER)):
            found = self.fetch_results(random)
            if not found and self._are_back():
                found = self.fetch_results(random)
        rollouts = [rollout for sample, _ in found for rollout in sample]
        for failed in rollouts:
            if isinstance(failed, EpisodeError):
                raise failed
        if not rollouts:
            raise EpisodeError(
                f"no env runner of {self.config.num_env_runners} returned anything within "
                f"sample_timeout_s={self.config.sample_timeout_s}. Their log says why; a slow environment needs a "
                "longer timeout or a shorter rollout_fragment_length."
            )
        self.record_rollouts(rollouts, [told for _, told in found])
        if self.league is not None:
            self.league.observe(self)
        return rollouts

    def fetch_results(self, random: bool) -> list[Brought]:
        """The results of the runners that answer in time."""
        found: list[Brought] = self.env_runner_group.foreach_env_runner(
            self.make_request(random),
            local_env_runner=self.config.num_env_runners == 0,
            timeout_seconds=self.config.sample_timeout_s,
        )
        return found

    def make_request(self, random: bool) -> Callable[[Any], Brought]:
        """The call that every runner executes for an update."""
        return partial(collect_fragment, random=random)

    def _are_back(self) -> bool:
        """True if all runners had died and some could be replaced; slow runners have not died."""
        group = self.env_runner_group
        until = time.monotonic() + self.config.sample_timeout_s
        while not group.num_healthy_remote_env_runners() and time.monotonic() < until:
            time.sleep(0.1)
            if self.restore_env_runners(group):
                return True
        return False

    def record_rollouts(self, rollouts: Sequence[Rollout], counted: Sequence[Any]) -> None:
        """Count the runners' results, and log the latest episodes."""
        self.metrics.aggregate(list(counted), key=ENV_RUNNER_RESULTS)
        self.window.observe(rollouts)
        for name, window in self.windows.items():
            window.observe(rollout for rollout in rollouts if rollout.policy == name)
            if (means := window.means()) is not None:
                self.metrics.log_value((ENV_RUNNER_RESULTS, POLICY_RETURN, name), means[0], window=1)
        self.checked += [each for rollout in rollouts for each in rollout.episodes if each.unearned is not None]
        module = self.get_module()
        if isinstance(module, ActorModule) and (
            spread := spread_of(rollouts, acts(module.action_space), module.net.distribution)
        ):
            self._spreads.append(spread)
        for name, value in self.window.rllib_results().items():
            self.metrics.log_value((ENV_RUNNER_RESULTS, name), value, window=1)

    @override
    def step(self) -> dict[str, Any]:
        """RLlib's result; returns are NaN until an episode has ended, because Tune needs the metric every time."""
        return _with_returns(super().step())

    @override
    def evaluate(self, parallel_train_future: Any = None) -> dict[str, Any]:
        """RLlib's evaluation; returns are NaN if no episode ended in it."""
        return _with_returns(super().evaluate(parallel_train_future))

    def move_to(self, settings: dict[str, Any]) -> None:
        """Switch to environments with these settings; new episodes begin there."""
        self.place = settings
        self.env_runner_group.foreach_env_runner(
            lambda runner: runner.enter(settings), local_env_runner=self.config.num_env_runners == 0
        )
        self.window = Window()
        self.windows = {name: Window() for name in self.windows}

    @override
    def restore_env_runners(self, env_runner_group: EnvRunnerGroup) -> list[int]:
        """RLlib's method; a new runner moves to the same environments as the others."""
        restored: list[int] = super().restore_env_runners(env_runner_group)
        if restored and self.place is not None and env_runner_group is self.env_runner_group:
            settings = self.place
            env_runner_group.foreach_env_runner(
                lambda runner: runner.enter(settings), remote_worker_ids=restored, local_env_runner=False
            )
        return restored

    def metrics_of(self, result: Mapping[str, Any]) -> dict[str, float]:
        """Our metrics from a result of `train`; unmeasured ones are left out."""
        learnt = [result.get(LEARNER_RESULTS, {}).get(policy, {}) for policy in self.config.policies]
        acted = result.get(ENV_RUNNER_RESULTS, {})
        found: dict[str, Any] = {
            str(name): fmean(each[name] for each in learnt if name in each)
            for name in Metric
            if any(name in each for each in learnt)
        }
        found |= {Metric.RETURN.of(name): mean for name, mean in acted.get(POLICY_RETURN, {}).items()}
        told = {str(Metric.RETURN): acted.get(EPISODE_RETURN_MEAN), Metric.EPISODE_STEPS: acted.get(EPISODE_LEN_MEAN)}
        told[Metric.SUCCESS_TOLD] = self.window.success_of(len(self.window.latest)) if self.window.latest else None
        told |= {name: fmean(each[name] for each in self._spreads) for name in (self._spreads or [{}])[0]}
        self._spreads = []
        if self.league is not None:
            told |= self.league.metrics()
        found |= {name: value for name, value in told.items() if value is not None and not math.isnan(value)}
        return {name: float(value) for name, value in found.items() if value is not None}

    def policy(self) -> ControlPolicy | TeamPolicy:
        """The current policy, frozen, for acting without Ray; or several as one, each in its `policies`."""
        if self.config.team:
            return TeamPolicy({name: self._freeze(name) for name in self.config.team})
        return self._freeze(DEFAULT_MODULE_ID)

    def _freeze(self, name: str) -> ControlPolicy:
        module = self.get_module(name)
        if not isinstance(module, ActorModule):
            if module is None:
                raise ConfigError("policy() is of one policy, and this run teaches several: algo.get_module(its name).")
            why = f" because of {'; '.join(self.config.fallback_reasons)}" if self.config.fallback_reasons else ""
            raise ConfigError(
                f"policy() knows the networks of `network`, and this run teaches a {type(module).__name__}{why}. Leave "
                "out what brings another module, or take that one as it is: algo.get_module()."
            )
        state = self.learner_group.get_state(components=COMPONENT_LEARNER)[COMPONENT_LEARNER]
        learnt = state[COMPONENT_RL_MODULE][name]
        net = deepcopy(module.net)
        net.load_state_dict({key: torch.tensor(learnt[f"net.{key}"]) for key in net.state_dict()})
        return ControlPolicy(net, module.observation_space, module.action_space, module.model_config["network"])

    @override
    def get_state(self, components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state and ours."""
        state: dict[str, Any] = super().get_state(components, **kwargs)
        if components is None:
            state[OURS] = self.state_dict()
        return state

    def state_dict(self) -> dict[str, Any]:
        """The latest episodes, and what the algorithm adds to RLlib's state."""
        state = {"window": self.window.state_dict(), "updates": self.updates, "place": self.place}
        state["windows"] = {name: window.state_dict() for name, window in self.windows.items()}
        if self.league is not None:
            state["league"] = self.league.state_dict()
        if not self.config.fallback_reasons:
            state["origin"] = self._origin()
        return state

    @override
    def set_state(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`; an ArtifactError if it belongs to another environment or network."""
        self._refuse_another(state)
        if OURS in state and state[OURS]["place"] is not None:
            self.move_to(state[OURS]["place"])
        super().set_state(state)
        if not self.config.fallback_reasons and self.config.num_env_runners:  # whose episodes are those of another run
            self.env_runner_group.foreach_env_runner(lambda runner: runner.begin_anew(), local_env_runner=False)
        if OURS in state:
            self.load_state_dict(state[OURS])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state_dict`'s."""
        self.window.load_state_dict(state["window"])
        for name, window in self.windows.items():
            window.load_state_dict(state["windows"][name])
        self.updates = state["updates"]
        if self.league is not None:
            self.league.load_state_dict(state["league"], self._freeze(DEFAULT_MODULE_ID))

    @override
    def restore_from_path(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """RLlib's restore, after checking that the checkpoint belongs to this environment and network."""
        if "component" not in kwargs:
            self._refuse_another(load_state_file(path, self.STATE_FILE_NAME))
        super().restore_from_path(path, *args, **kwargs)

    def take_over(self, path: Any) -> None:
        """Continue from a checkpoint with other settings: its weights, moments and counters, with our settings."""
        with own_settings(self.learner_group):
            self.restore_from_path(path)

    def begin_with(self, folder: Path) -> None:
        """Begin with the weights of another run's checkpoint, and with nothing else of it; an ArtifactError if they
        are of other spaces or another network.
        """
        if self.config.fallback_reasons:
            why = "; ".join(self.config.fallback_reasons)
            raise ConfigError(f"parent: only our runner and learner begin with weights, and not with {why}.")
        weights = {name: load_state_file(folder / MODULES / name, "module_state") for name in self.config.policies}
        if not all(weights.values()):
            raise ArtifactError(
                f"parent: the checkpoint in {folder} has no weights of a policy of control"
                f"{' for each of ' + ', '.join(weights) if self.config.team else ''}."
            )
        refuse_unfit(load_state_file(folder, self.STATE_FILE_NAME), self._origin())
        state = self.learner_group.get_state()
        state["learner"]["rl_module"] |= weights
        self.learner_group.set_state(state)
        self.sync_weights()

    def _refuse_another(self, state: Mapping[str, Any]) -> None:
        if not self.config.fallback_reasons:
            refuse_another(state, self._origin())

    def _origin(self) -> dict[str, Any]:
        return origin(self.config, {name: self.get_module(name) for name in self.config.policies})


def _with_returns(result: dict[str, Any]) -> dict[str, Any]:
    acted = result.setdefault(ENV_RUNNER_RESULTS, {})
    for name in (EPISODE_RETURN_MEAN, EPISODE_RETURN_MIN, EPISODE_RETURN_MAX, EPISODE_LEN_MEAN):
        acted.setdefault(name, math.nan)
    return result


def collect_fragment(runner: ArrayRunner, *, random: bool) -> Brought:
    """A fragment, with the counters since the last one."""
    return runner.sample(random_actions=random), runner.get_metrics()


def shares(rollouts: Sequence[Rollout], learners: int) -> list[tuple[Rollout, ...]]:
    """Rollouts divided so that every learner gets the same number of environments."""
    if learners == 1:
        return [tuple(rollouts)]
    parts = [rollout.split(learners) for rollout in rollouts]
    return [tuple(part[rank] for part in parts) for rank in range(learners)]


MODULES = Path("learner_group", "learner", "rl_module")
"""Place of the modules in a checkpoint of RLlib."""
SHAPE = ("hidden", "activation", "shared", "layer_norm", "memory")
"""The network settings that determine the meaning of its weights. The others only affect initial values."""


def origin(config: Any, modules: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that must be equal for a state to be resumed, as JSON."""
    network = config.settings.network.model_dump(mode="json", include=set(SHAPE))
    module = next(iter(modules.values()))
    observed = {name: str(each.observation_space) for name, each in modules.items()}
    acted = {name: str(each.action_space) for name, each in modules.items()}
    return {
        "environment": str(config.env),
        "observations": str(observed) if config.team else str(module.observation_space),
        "actions": str(acted) if config.team else str(module.action_space),
        "module": type(module).__name__,
        **({"policies": str(config.team)} if config.team else {}),
        "normalize_observations": config.settings.normalize_observations,
        **config.settings.model_dump(mode="json", include=config.shaping),
        **{f"network.{name}": value for name, value in network.items()},
    }


def refuse_another(state: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """An ArtifactError with the differences, if this state has another origin than ours."""
    if differing := _differing(state, ours):
        raise ArtifactError(
            f"this checkpoint is of another run: {'; '.join(differing)}. Restore it with the settings that it was made "
            "with, or begin anew without it."
        )


def refuse_unfit(state: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """An ArtifactError if the weights of this state do not fit our spaces or network. The environment may differ."""
    if differing := _differing(state, {name: value for name, value in ours.items() if name != "environment"}):
        raise ArtifactError(
            f"parent: its weights do not fit: {'; '.join(differing)}. Begin with a version of the same spaces, "
            "algorithm and network, or leave parent out."
        )


def _differing(state: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    theirs = state.get(OURS, {}).get("origin", {})
    return [
        f"{name} is {theirs[name]} there and {ours[name]} here"
        for name in ours
        if name in theirs and theirs[name] != ours[name]
    ]
