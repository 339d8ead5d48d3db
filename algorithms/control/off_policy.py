"""Algorithms that learn from a replay memory: what SAC and DQN share.

Axes: `_B` steps that are drawn.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.utils.metrics import LEARNER_RESULTS, LEARNER_UPDATE_TIMER, TIMERS
from torch import Tensor
from typing_extensions import override

from loomrl.algorithms.advantage import explained_variance
from loomrl.algorithms.control.algorithm import Brought, ControlStep, collect_fragment
from loomrl.algorithms.control.config import ControlConfig
from loomrl.algorithms.control.learner import ControlWork, PartsLearner
from loomrl.algorithms.control.rollout import Rollout
from loomrl.algorithms.control.step_replay import NStep, ReplaySample, Rows, sequences
from loomrl.algorithms.learners import unwrap_errors
from loomrl.errors import ConfigError
from loomrl.telemetry.metric import Metric

Batch = Mapping[str, Tensor]
AT_ONCE = 20
"""Rollouts per report if everything is in one process and a rollout is a step."""


class ReplayLearner(PartsLearner):
    """Learns from its replay memory, `updates_per_step` times for every new step."""

    judged: tuple[Tensor, Tensor] | None = None
    """Errors of a critic in the latest update, and what was wanted of it."""

    @override
    def build(self) -> None:
        """Build, with an empty replay memory."""
        super().build()
        settings = self.config.settings
        if settings.products == "bfloat16":
            _refuse_slow_products(self._device)
        self.length = 1 if settings.network.memory is None else int(self.config.rollout_fragment_length)
        """Steps of an entry in the replay memory: one, or those of a sequence for the policy's memory."""
        self.ring = self.open_ring(settings.replay, self.length)
        self.parts["ring"] = self.ring
        self._steps = NStep(settings.n_step, settings.gamma, share=(self.rank, self.ranks))
        self.parts["steps"] = self._steps

    def learn(self, work: ControlWork) -> int:
        """Store the steps, then make the updates that are due."""
        settings = self.config.settings
        for rollout, rewards in zip(work.rollouts, self.scale_rewards(work.rollouts), strict=True):
            self.observe(torch.from_numpy(rollout.seen[:-1][rollout.valid]))
            self.ring.append(self._entries(rollout, rewards.numpy()))
            self.owed += rollout.env_steps() * settings.updates_per_step
        if self.least(self.ring.steps) * self.length * self.ranks < settings.warmup:
            self.owed = 0.0
            return 0
        due = self.least(int(self.owed))
        self.owed -= due
        with _products(settings.products):
            for _ in range(due):
                self.improve()
        return due * int(settings.batch)

    def _entries(self, rollout: Rollout, rewards: NDArray[np.float32]) -> Rows:
        """The entries of the replay memory that a rollout becomes."""
        if rollout.state is None:
            return self._steps(rollout, rewards)
        if len(rewards) != self.length:
            raise ConfigError(
                f"environment {self.config.env} begins ended episodes in the same step, which makes sequences of "
                "unequal length, and network.memory needs equal ones. Set environment.vectorization=sync, or use ppo."
            )
        return sequences(rollout, rewards, self.config.settings.gamma)

    def improve(self) -> None:
        """One update from drawn steps."""
        raise NotImplementedError

    def draw(self) -> tuple[ReplaySample, Batch]:
        """Steps to learn from, and their columns on the device."""
        drawn = self.ring.draw(self.config.settings.batch // self.length)
        return drawn, {name: torch.from_numpy(column).to(self._device) for name, column in drawn.columns.items()}

    @override
    def report_metrics(self, trained: int) -> Any:
        """Also how much a critic explains in the latest update; in every one it would cost more than it tells."""
        if self.judged is not None:
            error_B, wanted_B = (each.cpu().numpy() for each in self.judged)
            self.log(Metric.VALUE_EXPLAINED_VARIANCE, torch.tensor(explained_variance(wanted_B + error_B, wanted_B)))
            self.judged = None
        return super().report_metrics(trained)


def _refuse_slow_products(device: torch.device) -> None:
    """A ConfigError if the device multiplies matrices of the usual size in float32 all the same."""
    if multiplies_bfloat16(device):
        return
    raise ConfigError(
        f"products=bfloat16 has no effect on this {device.type.upper()}, which has no instructions for it. "
        "Leave it out."
    )


def multiplies_bfloat16(device: torch.device) -> bool:
    """True if products of 256 by 256 differ; flags of processors do not tell, since torch also looks at the size."""
    numbers = torch.linspace(-1.0, 1.0, 256 * 256, device=device).reshape(256, 256)
    with _products("bfloat16"):
        near = numbers @ numbers
    return not torch.equal(near, numbers @ numbers)


@contextmanager
def _products(kind: str) -> Iterator[None]:
    """Matrix products of float32 numbers are multiplied in this format. Only here: what others compute is theirs."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium" if kind == "bfloat16" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class OffPolicyConfig(ControlConfig):
    """Mixed into RLlib's configuration of an algorithm with a replay memory."""

    max_requests_in_flight_per_env_runner: int
    unshaped = frozenset({"vf_share_layers"})
    stock_settings = ControlConfig.stock_settings | {"tau", "batch", "warmup", "n_step", "replay"}

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class)
        self.num_envs_per_env_runner = 1
        self.rollout_fragment_length = 1
        self.min_sample_timesteps_per_iteration = 1000
        self.min_time_s_per_iteration = 0.0  # or the clock would decide how much an iteration learns

    def tell_rllib(self) -> None:
        """Copy our settings to RLlib's names, for RLlib's own code and its learner."""
        settings = self.settings
        self.gamma = settings.gamma
        self.tau = settings.tau
        self.grad_clip = settings.clip_norm
        self.train_batch_size_per_learner = settings.batch
        self.replay_buffer_config = self._memory()
        self.store_buffer_in_checkpoints = True
        self.n_step = settings.n_step if self.fallback_reasons else 1  # which RLlib's runner would sum up
        self.num_steps_sampled_before_learning_starts = settings.warmup
        if self.max_requests_in_flight_per_env_runner < 2:  # or weights behind a fragment would keep out the next ones
            self.max_requests_in_flight_per_env_runner = 2

    @override
    def _check_sequences(self, learners: int) -> None:
        steps = self.rollout_fragment_length
        if not 1 < steps <= self.settings.batch:
            raise ConfigError(
                f"rollout_fragment_length={steps} (rollout.steps): with network.memory it is the length of the "
                f"sequences to learn from. Choose 2 or more, such as 32, and at most batch={self.settings.batch}."
            )

    def stock_layers(self) -> list[int]:
        """The hidden layers of RLlib's own module; a ConfigError if there are none."""
        if not self.settings.network.hidden:
            raise ConfigError(
                f"network.hidden=[] needs our own runner and learner, and RLlib's are used because of "
                f"{'; '.join(self.fallback_reasons)}. Set network.hidden, or leave out what keeps ours from being used."
            )
        return list(self.settings.network.hidden)

    def _memory(self) -> dict[str, Any]:
        replay = self.settings.replay
        team = "MultiAgent" if self.is_multi_agent else ""
        weights = {} if replay.prioritized is None else replay.prioritized.model_dump()
        kind = "PrioritizedEpisodeReplayBuffer" if weights else "EpisodeReplayBuffer"
        return {"type": team + kind, "capacity": replay.capacity} | weights


class OffPolicyStep(ControlStep):
    """Mixed into RLlib's Algorithm: runners collect while the learner learns."""

    @override
    def setup(self, config: Any) -> None:
        """Set up, with no requests in flight; an error of a remote learner's replay memory keeps its type."""
        self._turns = 0
        """Counts restarts: restored, or moved to another stage."""
        with unwrap_errors():
            super().setup(config)

    def collect_rollouts(self, *, random: bool = False) -> list[Rollout]:
        """Random until there is enough to learn from. Remote runners then continue to sample while the learner
        works.
        """
        rollouts = super().collect_rollouts(random=random or self._is_blind)
        self._ask(random=random or self._is_blind)
        return rollouts

    def fetch_results(self, random: bool) -> list[Brought]:
        """The runners' results requested during the last update; a late one is part of the next."""
        if not self.config.num_env_runners:
            return super().fetch_results(random)
        self._ask(random=random)
        tags = list(self._errands().values())
        if not tags:  # by which RLlib understands all that is under way
            return []
        timeout_s = self.config.sample_timeout_s
        return [told for _, told in self.env_runner_group.fetch_ready_async_reqs(tags=tags, timeout_seconds=timeout_s)]

    def _ask(self, *, random: bool) -> None:
        """Request another fragment from every idle remote runner. New weights reach it between two fragments."""
        group = self.env_runner_group
        for runner, tag in self._errands().items():
            if not group.num_in_flight_async_reqs(tag):
                group.foreach_env_runner_async(
                    partial(collect_fragment, random=random), tag, remote_worker_ids=[runner]
                )

    def _errands(self) -> dict[int, str]:
        """Living remote runners with the names of their requests; a dead one has none in flight."""
        return {runner: f"collect-{self._turns}-{runner}" for runner in self.env_runner_group.healthy_env_runner_ids()}

    @property
    def _is_blind(self) -> bool:
        return self.env_steps < int(self.config.settings.warmup)

    @override
    def training_step(self) -> None:
        """One update; in a single process several, so that reports cost little."""
        if not self.is_alone:
            super().training_step()
            return
        runner = self.env_runner
        learner = self.learner_group._learner
        warmup = self.config.settings.warmup
        count = max(1, AT_ONCE // learner.length)
        rollouts = []
        trained = 0
        steps = self.env_steps
        with self.metrics.log_time((TIMERS, LEARNER_UPDATE_TIMER)):
            for _ in range(count):
                with self.phases(Metric.TIME_ROLLOUT):
                    made = runner.sample(random_actions=steps < warmup)
                with self.phases(Metric.TIME_LEARN):
                    trained += learner.learn(ControlWork(tuple(made)))
                steps += sum(rollout.env_steps() for rollout in made)
                rollouts += made
        self.record_rollouts(rollouts, [runner.get_metrics()])
        self.metrics.aggregate([learner.report_metrics(trained)], key=LEARNER_RESULTS)
        self.updates += count

    @override
    def set_state(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`; rollouts in flight belong to another run and are dropped."""
        super().set_state(state)
        self._turn()

    def move_to(self, settings: dict[str, Any]) -> None:
        """Switch to other environments; rollouts in flight from the old ones are dropped."""
        super().move_to(settings)
        self._turn()

    def _turn(self) -> None:
        """Discard requests in flight; late ones have a name that is no longer used."""
        tags = list(self._errands().values())
        if tags:
            self.env_runner_group.fetch_ready_async_reqs(tags=tags, timeout_seconds=self.config.sample_timeout_s)
        self._turns += 1
