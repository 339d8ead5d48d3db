"""Implicit Q-learning (Kostrikov and others, 2021), from logged episodes and on in the environment.

V(s) = expectile of min Q(s, a) over the data's actions, Q(s, a) = r + γ V(s′), and the policy makes an action as likely
as exp(β (Q − V)) weighs it. No value of an action outside the data is ever asked for.

Axes: `_B` steps that are drawn, `_2` the two critics, `_D` numbers of an action.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from torch import Tensor
from torch.nn.functional import one_hot
from typing_extensions import override

from loomrl.algorithms.control import translation
from loomrl.algorithms.control.algorithm import ControlStep
from loomrl.algorithms.control.learner import ControlWork
from loomrl.algorithms.control.module import ControlModule
from loomrl.algorithms.control.offline import (
    Batch,
    LoggedConfig,
    LoggedLearner,
    LoggedStep,
    LoggedWork,
)
from loomrl.algorithms.control.step_replay import NStep
from loomrl.config import control as settings
from loomrl.control.network import Twins
from loomrl.control.space import ActionView, acts, seen
from loomrl.errors import ConfigError
from loomrl.telemetry.metric import Metric

ACTOR = "actor"
VALUE = "value"
CRITICS = "critics"
"""The three optimizers."""


class IQLModule(ControlModule):
    """A policy with its value function, and two critics of actions with target networks."""

    @override
    def setup(self) -> None:
        """Build from `model_config`: `network`, `normalize`."""
        view = seen(self.observation_space)
        kind = acts(self.action_space)
        if view.kind == "pixels":
            raise ConfigError(f"iql sees numbers, not {self.observation_space}. Use bc.")
        super().setup()
        self.critics = Twins(self.net.size + width(kind), 1, self.model_config["network"])
        self.targets = deepcopy(self.critics).requires_grad_(False)


class IQLLearner(LoggedLearner):
    """Learns value function, critics and policy, from the data and the memory of what was done online."""

    @override
    def build(self) -> None:
        """Build, with an empty memory of the environment's steps if they are learnt from."""
        super().build()
        settings = self.config.settings
        kind = acts(self.own.action_space)
        self._numbers = numbers_of(kind)
        self._bounds = (np.array(kind.low), np.array(kind.high)) if kind.kind == "box" else None
        self._critics = list(self.own.critics.parameters())
        self._targets = list(self.own.targets.parameters())
        self.recent = None if settings.online is None else self.open_ring(settings.online.replay)
        self.parts["ring"] = self.recent
        self._steps = NStep(1, settings.gamma, share=(self.rank, self.ranks))

    @override
    def learn(self, work: ControlWork) -> int:
        """The updates of a lesson; of rollouts, those that are due."""
        if isinstance(work, LoggedWork):
            return super().learn(work)
        online = self.config.settings.online
        recent = self.recent
        assert recent is not None, "there are no rollouts else"
        for rollout in work.rollouts:
            if self._bounds is not None:  # as the environment took them, and as data sets have them
                rollout = replace(rollout, actions=np.clip(rollout.actions, *self._bounds))
            recent.append(self._steps(rollout, rollout.rewards / self.reward_scale))
            self.owed += rollout.env_steps() * online.updates_per_step
        due = self.least(int(self.owed)) if self.least(recent.steps) else 0
        self.owed -= due
        for _ in range(due):
            self.improve(self.mix_batch(recent, online.data_share))
        return due * self.share * self.ranks

    def mix_batch(self, recent: Any, data_share: float) -> Batch:
        """Steps of the data and of the environment, by their shares."""
        old = round(data_share * self.share)
        parts = [self.draw(old)] if old else []
        if old < self.share:
            parts.append(self.on_device(recent.draw(self.share - old).columns))
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    @override
    def improve(self, batch: Batch) -> None:
        """A step of the value function, the policy and the critics, then of the target networks."""
        settings = self.config.settings
        own = self.own
        features_B = own.net.features(batch["seen"])
        acted = torch.cat([features_B, self._numbers(batch["actions"])], 1)
        with torch.no_grad():
            worth_B = own.targets(acted).amin(0).squeeze(-1)
        surplus_B = worth_B - own.net.value(features_B)
        value = expectile_loss(surplus_B, settings.expectile).mean()
        self.tend(VALUE, value)
        with torch.no_grad():
            advantage_B = worth_B - own.net.value(features_B)
            weight_B = (settings.sharpness * advantage_B).exp().clamp(max=settings.most_weight)
            wanted_B = batch["rewards"] + batch["ahead"] * own.net.value(own.net.features(batch["after"]))
        inputs = own.net.decide(features_B, batch["seen"])
        policy = -(weight_B * self.distribution.logp(inputs, batch["actions"])).mean()
        self.tend(ACTOR, policy)
        self.keep_spread()
        critics = (own.critics(acted).squeeze(-1) - wanted_B).square().mean(1).sum()
        self.tend(CRITICS, critics)
        with torch.no_grad():
            torch._foreach_lerp_(self._targets, self._critics, settings.tau)
        self.log(Metric.POLICY_LOSS, policy)
        self.log(Metric.VALUE_LOSS, critics)
        self.log(Metric.POLICY_ENTROPY, self.distribution.entropy(inputs).mean())

    # -- RLlib's hooks ----------------------------------------------------------------------------------------------

    @override
    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Adam, three times."""
        own = self._module[module_id]
        value = list(own.net.critic.parameters())
        policy = [p for name, p in own.net.named_parameters() if not name.startswith("critic.")]
        for name, parameters in ((ACTOR, policy), (VALUE, value), (CRITICS, list(own.critics.parameters()))):
            self.adam(module_id, name, parameters, rate=self.config.settings.learning_rate)


class IQLConfig(LoggedConfig):
    """`IQLConfig().environment("CartPole-v1").logged(minari="cartpole/mixed-v0").build_algo()`."""

    settings_class = settings.IQL
    words = translation.OFFLINE
    fast_learner = IQLLearner

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class or IQL)

    @property
    @override
    def is_online_too(self) -> bool:
        return self.settings.online is not None

    def our_spec(self) -> RLModuleSpec:
        """The module that our learner trains."""
        return RLModuleSpec(module_class=IQLModule, model_config=super().our_spec().model_config)


class IQL(LoggedStep):
    """Implicit Q-learning as an RLlib Algorithm."""

    @classmethod
    @override
    def get_default_config(cls) -> IQLConfig:
        """The defaults of `IQL`'s settings."""
        return IQLConfig(cls)

    @override
    def training_step(self) -> None:
        """The updates of an iteration; online, a rollout and the updates that are due."""
        if self.config.is_online_too:
            ControlStep.training_step(self)
        else:
            super().training_step()


def width(kind: ActionView) -> int:
    """Numbers of an action as the critics see it."""
    return kind.count if kind.kind == "box" else sum(kind.sizes)


def numbers_of(kind: ActionView) -> Callable[[Tensor], Tensor]:
    """From actions to the critics' input: real ones as they are, choices as one number each."""
    if kind.kind == "box":
        return lambda actions_BD: actions_BD
    if kind.kind == "multi_binary":
        return lambda actions_BD: actions_BD.float()
    if kind.kind == "discrete":
        return lambda actions_B: one_hot(actions_B, kind.sizes[0]).float()
    return lambda actions_BD: torch.cat(
        [one_hot(actions_BD[:, d], size) for d, size in enumerate(kind.sizes)], 1
    ).float()


def expectile_loss(surplus_B: Tensor, expectile: float) -> Tensor:
    """Squared errors, of which positive ones weigh `expectile` and negative ones the rest."""
    return torch.where(surplus_B > 0, expectile, 1 - expectile) * surplus_B.square()
