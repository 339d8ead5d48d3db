"""Proximal policy optimisation. Compare with `sac.py` and `weave.py`: the files differ only where the algorithms do.

Axes: `_T` steps, `_N` environments, `_S` steps of the table, `_B` steps of a minibatch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from ray.rllib.algorithms import ppo as stock
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.utils.metrics import LEARNER_RESULTS
from torch import Tensor
from typing_extensions import override

from loomrl.algorithms.advantage import explained_variance, gae
from loomrl.algorithms.control import translation
from loomrl.algorithms.control.algorithm import ControlStep
from loomrl.algorithms.control.config import ControlConfig
from loomrl.algorithms.control.curiosity import CuriosityReward
from loomrl.algorithms.control.learner import Adam, ArrayLearner, ControlWork
from loomrl.algorithms.control.module import HISTORY
from loomrl.algorithms.control.rollout import Rollout, Sequences, Table, flatten_observations
from loomrl.algorithms.control.translation import BATCH, Changes
from loomrl.algorithms.learners import compress, refuse
from loomrl.algorithms.losses import kl_estimate, policy_loss, value_loss
from loomrl.algorithms.schedule import open_schedule
from loomrl.config.control import ControlPPO
from loomrl.control.distribution import ActionDistribution
from loomrl.errors import ConfigError
from loomrl.telemetry.metric import Metric

FRAGMENT = 128
"""Default steps per environment and update."""


class PPOLearner(ArrayLearner):
    """Learns policy and value function from steps of the current policy."""

    @override
    def start(self) -> None:
        """Build the state, with curiosity if configured."""
        super().start()
        asked = self.config.settings.curiosity
        self._curiosity = None if asked is None else CuriosityReward(self, asked)
        self.parts["curiosity"] = self._curiosity

    def learn(self, work: ControlWork) -> int:
        """`epochs` passes over the table in minibatches, or fewer once the policy has moved far enough."""
        settings = self.config.settings
        optimizer = self.get_optimizer(self.policy)
        self._set_optimizer_lr(optimizer, work.rate)
        self.log(Metric.LEARNING_RATE, torch.tensor(work.rate))
        table = self._table(work)
        remembers = work.rollouts[0].state is not None
        sequences = Sequences(work.rollouts, self._device) if remembers else None
        trained = 0
        for _ in range(settings.epochs):
            moved = []
            for batch in self._pass(table, sequences):
                loss, kl = self._loss(batch, work)
                self.step(loss, optimizer, clip_norm=settings.clip_norm)
                trained += len(batch["logp"])
                moved.append(kl)
            if settings.target_kl is not None and self.mean(moved) > settings.target_kl:
                break
        self.observe(table["seen"])
        if self._curiosity is not None:
            self._curiosity.learn(work.rollouts, minibatch=settings.minibatch_size)
        return trained

    def _pass(self, table: Table, sequences: Sequences | None) -> Iterator[Table]:
        """One random pass over the table; with a memory, minibatches have whole sequences."""
        size = self.config.settings.minibatch_size
        if sequences is None:
            return self.minibatches(table, size)
        hands = self.minibatches({"chosen": torch.arange(sequences.count)}, size / sequences.steps)
        return sequences.dealt(table, (hand["chosen"] for hand in hands))

    def _loss(self, batch: Table, work: ControlWork) -> tuple[Tensor, Tensor]:
        inputs, values_B = self.forward(batch)
        value = value_loss(values_B, batch["values"], batch["returns"], clip=self.config.settings.value_clip).mean()
        return self._whole_loss(self.distribution, inputs, value, batch, work)

    def _whole_loss(
        self, distribution: ActionDistribution, inputs: Tensor, value: Tensor, batch: Table, work: ControlWork
    ) -> tuple[Tensor, Tensor]:
        """The loss of policy, value and entropy; and the policy's KL from before the update."""
        settings = self.config.settings
        logp_B = distribution.logp(inputs, batch["actions"])
        loss_B, clipped_B = policy_loss(logp_B, batch["logp"], batch["advantages"], clip=settings.clip)
        policy = loss_B.mean()
        entropy = distribution.entropy(inputs).mean()
        kl = kl_estimate(logp_B.detach(), batch["logp"], estimator="k3").mean()
        self.log(Metric.POLICY_LOSS, policy)
        self.log(Metric.VALUE_LOSS, value)
        self.log(Metric.POLICY_ENTROPY, entropy)
        self.log(Metric.POLICY_STEP_KL, kl)
        self.log(Metric.POLICY_CLIP_FRACTION, clipped_B.float().mean())
        return policy + settings.value_coefficient * value - work.entropy * entropy, kl

    def _table(self, work: ControlWork) -> Table:
        """Every step with an action, with all data that must be computed before the policy changes."""
        rollouts = work.rollouts
        rewards = self.scale_rewards(rollouts)
        if self._curiosity is not None:
            rewards = self._curiosity.add_reward(rollouts, rewards)
        parts = [self._part(rollout, rewards_TN) for rollout, rewards_TN in zip(rollouts, rewards, strict=True)]
        table = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        explained = explained_variance(table["values"].numpy(), table["returns"].numpy())
        self.log(Metric.VALUE_EXPLAINED_VARIANCE, torch.tensor(explained))
        if self.config.settings.normalize_advantages:
            table["advantages"] = self.whiten(table["advantages"])
        return {name: column.to(self._device) for name, column in table.items()}

    def _part(self, rollout: Rollout, rewards_TN: Tensor) -> Table:
        settings = self.config.settings
        seen, history = flatten_observations(rollout, self._device)
        with torch.no_grad():
            values_K = self.own.compute_values({Columns.OBS: seen, HISTORY: history})
        values_TN = values_K.cpu().view(rollout.seen.shape[:2])
        advantages_TN = gae(
            rewards_TN.numpy(),
            values_TN.numpy(),
            rollout.terminated,
            rollout.ended,
            gamma=settings.gamma,
            lam=settings.gae_lambda,
        )
        return self._select_rows(rollout, values_TN, torch.from_numpy(advantages_TN))

    def _select_rows(self, rollout: Rollout, values_TN: Tensor, advantages_TN: Tensor) -> Table:
        """The steps of a rollout that have an action, with their data."""
        valid = torch.from_numpy(rollout.valid)
        actions = torch.from_numpy(rollout.actions)[valid]
        values_S = values_TN[:-1][valid]
        advantages_S = advantages_TN[valid]
        return {
            "seen": torch.from_numpy(rollout.seen)[:-1][valid],
            "actions": actions,
            "logp": self.distribution.logp(torch.from_numpy(rollout.inputs)[valid], actions),
            "advantages": advantages_S,
            "values": values_S,
            "returns": advantages_S + values_S,
        }

    @override
    def _make_modules_ddp_if_necessary(self) -> None:
        super()._make_modules_ddp_if_necessary()
        for module in self.module.values():
            compress(module, self.config.settings.compression)

    @override
    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Adam over all parameters."""
        parameters = list(self.get_parameters(self._module[module_id]))
        optimizer = Adam(parameters, rate=self.config.settings.learning_rate, eps=1e-5)
        self.register_optimizer(
            module_id=module_id,
            optimizer=optimizer,
            params=parameters,
            lr_or_lr_schedule=self.config.settings.learning_rate,
        )


class PolicyLearner(PPOLearner):
    """Learns one of several policies. RLlib's side, modules and optimizers, is that of the whole learner."""

    def __init__(self, whole: PPOLearner, policy: str) -> None:
        vars(self).update(vars(whole))
        self.policy = policy
        self.start()


class TeamLearner(PPOLearner):
    """Learns several policies, each from its own rollouts, as if it were the only one."""

    @override
    def start(self) -> None:
        self.each = {name: PolicyLearner(self, name) for name in self.module._rl_modules}

    @override
    def learn(self, work: ControlWork) -> int:
        """Learn every policy whose agents were there."""
        trained = 0
        for name, one in self.each.items():
            rollouts = tuple(rollout for rollout in work.rollouts if rollout.policy == name)
            if one.least(sum(rollout.env_steps() for rollout in rollouts)):
                steps = one.learn(replace(work, rollouts=rollouts))
                one.log_update(steps)
                trained += steps
        return trained

    @override
    def log_update(self, trained: int) -> None:
        """Nothing: every policy has logged its own."""

    @override
    def state_dict(self) -> dict[str, Any]:
        return {name: one.state_dict() for name, one in self.each.items()}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, one in self.each.items():
            one.load_state_dict(state[name])


class PPOConfig(ControlConfig, stock.PPOConfig):
    """`PPOConfig().environment("CartPole-v1").training(learning_rate=1e-3).build_algo()`."""

    settings_class = ControlPPO
    words = translation.PPO
    by_rllib = frozenset({"minibatch_size"})  # per learner; that of an experiment is over all learners
    fast_learner = PPOLearner
    stock_learner = PPOTorchLearner
    team_learner: ClassVar[type | None] = TeamLearner
    stock_settings = ControlConfig.stock_settings | {
        "learning_rate",
        "gae_lambda",
        "clip",
        "value_coefficient",
        "entropy_coefficient",
        "epochs",
        "minibatch_size",
    }

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class or PPO)
        self.train_batch_size_per_learner = self.minibatch_size = None  # which follow from what else is asked for

    def translate_settings(self, theirs: dict[str, Any]) -> Changes:
        """Our settings for RLlib's; sizes count all learners here, and a batch is what runners collect per update."""
        batch = theirs.pop(BATCH, None)
        if batch is not None:
            self._collect(batch)
        elif self.rollout_fragment_length == "auto":
            self.rollout_fragment_length = FRAGMENT
        changes = super().translate_settings(theirs)
        if "minibatch_size" in theirs:
            changes["minibatch_size"] *= max(1, self.num_learners)
        return changes

    def _collect(self, batch: int) -> None:
        """Set the fragment length for a batch of this many steps per learner."""
        environments = max(1, self.num_env_runners) * self.num_envs_per_env_runner
        steps, over = divmod(batch * max(1, self.num_learners), environments)
        if over or not steps:
            raise ConfigError(
                f"train_batch_size_per_learner={batch}: {environments} environments for {max(1, self.num_learners)} "
                f"learner(s) cannot share it evenly. Choose a multiple of {environments}, or "
                "env_runners(num_envs_per_env_runner=…, rollout_fragment_length=…) alone."
            )
        if self.rollout_fragment_length not in ("auto", FRAGMENT, steps):
            raise ConfigError(
                f"train_batch_size_per_learner={batch} asks for fragments of {steps} steps, and "
                f"rollout_fragment_length={self.rollout_fragment_length}: give one of them."
            )
        self.rollout_fragment_length = steps

    def tell_rllib(self) -> None:
        """Copy our settings to RLlib's names, for RLlib's own code and its learner."""
        settings = self.settings
        refuse(settings.compression, learners=self.num_learners, gpus=self.num_gpus_per_learner)
        self.lr = settings.learning_rate
        self.gamma = settings.gamma
        self.lambda_ = settings.gae_lambda
        if not self.in_evaluation:
            self.train_batch_size_per_learner = self.steps_per_update // max(1, self.num_learners)
        self.num_epochs = settings.epochs
        self.minibatch_size = max(1, settings.minibatch_size // max(1, self.num_learners))
        self.clip_param = settings.clip.low
        self.entropy_coeff = settings.entropy_coefficient
        # ours halves the square
        self.vf_loss_coeff = settings.value_coefficient / 2
        self.vf_clip_param = float("inf")
        self.grad_clip = settings.clip_norm
        self.use_kl_loss = False
        self.kl_coeff = 0.0

    def unknown_to_stock(self) -> set[str]:
        """Includes an asymmetric clip."""
        clip = self.settings.clip
        parts = {"clip.high": clip.high != clip.low, "clip.dual": clip.dual is not None}
        return super().unknown_to_stock() | {name for name, is_set in parts.items() if is_set}

    def stock_spec(self) -> RLModuleSpec:
        """RLlib's own module of the same shape."""
        network = self.settings.network
        shape = {"fcnet_hiddens": list(network.hidden), "fcnet_activation": network.activation}
        return RLModuleSpec(
            module_class=DefaultPPOTorchRLModule,
            model_config=self.stock_model(shape | {"vf_share_layers": network.shared}),
        )


class PPO(ControlStep, stock.PPO):
    """Proximal policy optimisation as an RLlib Algorithm."""

    @classmethod
    @override
    def get_default_config(cls) -> PPOConfig:
        """The defaults of `ControlPPO`."""
        return PPOConfig(cls)

    @override
    def setup(self, config: PPOConfig) -> None:
        """Set up, with a learning rate schedule."""
        super().setup(config)
        settings = self.config.settings
        self._schedule = open_schedule(settings.learning_rate, settings.schedule, self.planned)

    def work(self, share: tuple[Rollout, ...]) -> ControlWork:
        """The learner's work, with learning rate and entropy from the schedules."""
        settings = self.config.settings
        done = min(1.0, self.updates / max(1, self.planned - 1))
        first = settings.entropy_coefficient
        last = settings.entropy_floor
        return ControlWork(
            share, self._schedule.rate(self.updates), first if last is None else first + (last - first) * done
        )

    @override
    def training_step(self) -> None:
        """One update."""
        super().training_step()
        if not self.config.fallback_reasons:
            kls = [(LEARNER_RESULTS, name, Metric.POLICY_STEP_KL) for name in self.config.policies]
            self._schedule.observe(max(self.metrics.peek(kl, default=0.0) for kl in kls))

    @override
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"schedule": self._schedule.state_dict()}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._schedule.load_state_dict(state["schedule"])
