"""Soft actor–critic. Compare with `dqn.py`: the files differ only where the algorithms do.

Axes: `_B` steps that are drawn, `_A` choices, `_X` numbers that a critic puts out, `_2` the two critics.
"""

import logging
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms import sac as stock
from ray.rllib.algorithms.sac.torch.default_sac_torch_rl_module import DefaultSACTorchRLModule
from ray.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from torch import Tensor
from typing_extensions import override

from loomrl.algorithms.control import translation
from loomrl.algorithms.control.learner import MOMENTUM
from loomrl.algorithms.control.module import ActorModule
from loomrl.algorithms.control.off_policy import Batch, OffPolicyConfig, OffPolicyStep, ReplayLearner
from loomrl.algorithms.control.step_replay import ReplaySample
from loomrl.config import control as kinds
from loomrl.control.memory import History
from loomrl.control.network import Actor, Twins
from loomrl.control.space import acts, seen
from loomrl.errors import ConfigError
from loomrl.telemetry.metric import Metric

ACTOR = "actor"
CRITICS = "critics"
TEMPERATURE = "temperature"
"""The three optimizers."""
CROSSQ_MOMENTUM = 0.5
"""CrossQ's β₁: without target networks what is wanted moves faster."""
OF_MOST = 0.7
"""The default target entropy of choices, as a share of the highest."""


class SACModule(ActorModule):
    """A bounded actor, two critics, their target networks if there is no batch normalisation, and the temperature."""

    @override
    def setup(self) -> None:
        """Build from `model_config`: `network`, `normalize`, `temperature`, `noise`, `batch_norm`."""
        view = seen(self.observation_space)
        kind = acts(self.action_space)
        network = self.model_config["network"]
        if kind.kind not in ("box", "discrete") or view.kind == "pixels":
            raise ConfigError(
                f"sac takes numbers and decides real numbers or one choice, not {self.observation_space} and "
                f"{self.action_space}. Use ppo."
            )
        if not all(np.isfinite([*kind.low, *kind.high])):
            raise ConfigError(
                f"sac needs bounds of every action, {self.action_space} has none. Wrap the environment "
                "(gymnasium.wrappers.RescaleAction)."
            )
        if kind.kind == "discrete" and self.model_config["noise"] != "white":
            raise ConfigError(
                f"noise={self.model_config['noise']} has no effect on {self.action_space}: it is of real-valued "
                "actions. Leave it out."
            )
        self.net = Actor(view, kind, network, normalize=self.model_config["normalize"], squashed=True)
        size, out = (self.net.size + kind.count, 1) if kind.kind == "box" else (self.net.size, kind.sizes[0])
        batch_norm = self.model_config["batch_norm"]
        self.critics = Twins(size, out, network, batch_norm=batch_norm).eval()
        if not batch_norm:
            self.targets = deepcopy(self.critics).requires_grad_(False)
        self.log_temperature = torch.nn.Parameter(torch.tensor(float(np.log(self.model_config["temperature"]))))


class SACLearner(ReplayLearner):
    """Learns critics, actor and temperature from its replay memory."""

    @override
    def build(self) -> None:
        """Build, with the entropy to aim at."""
        super().build()
        settings = self.config.settings
        kind = acts(self.own.action_space)
        self._is_box = kind.kind == "box"
        self._critics = list(self.own.critics.parameters())
        self._targets = [] if settings.batch_norm else list(self.own.targets.parameters())
        most = OF_MOST * float(np.log(kind.sizes[0])) if kind.sizes else -float(kind.count)
        self._target_entropy = most if settings.target_entropy is None else settings.target_entropy

    @override
    def improve(self) -> None:
        """One step of the critics, the actor and the temperature, then of the target networks."""
        settings = self.config.settings
        own = self.own
        drawn, batch = self.draw()
        temperature = own.log_temperature.detach().exp()
        error_2B = self._critics_step(batch, temperature)
        logp_B = self._actor_step(batch["seen"], batch["now"].detach(), temperature)
        if settings.temperature_rate:
            surplus = (logp_B + self._wanted_entropy(batch["seen"])).mean()
            self.tend(TEMPERATURE, -own.log_temperature * surplus)
        if self._targets:
            with torch.no_grad():
                torch._foreach_lerp_(self._targets, self._critics, settings.tau)
        if settings.replay.prioritized is not None:
            self.ring.update_priorities(drawn, error_2B.abs().mean(0).cpu().numpy())
        self.log(Metric.POLICY_ENTROPY, -logp_B.mean())

    @override
    def draw(self) -> tuple[ReplaySample, Batch]:
        """Also the features of what was seen before a step, `now`, and after it, `then`; and the weights.

        A memory is run over the sequences from the state that the runner had before them (R2D2's stored state). The
        critics' loss teaches it: the actor's would move the critics' inputs against them.
        """
        drawn, batch = super().draw()
        net = self.own.net
        if net.memory is None:
            weights_B = torch.from_numpy(drawn.weights_B).to(self._device)
            now, then = net.features(batch["seen"]), net.features(batch["after"])
            return drawn, {**batch, "now": now, "then": then, "weights": weights_B}
        acted_TB = batch["valid"].T
        begins_TB = torch.cat([torch.zeros_like(acted_TB[:1]), ~acted_TB])
        seen_TB = batch["seen"].transpose(0, 1)
        features_TBF = net.features(seen_TB.flatten(0, 1), History(batch["state"], begins_TB))
        features_TBF = features_TBF.unflatten(0, begins_TB.shape)
        steps = {name: batch[name].transpose(0, 1)[acted_TB] for name in ("actions", "rewards", "ahead")}
        steps |= {"seen": seen_TB[:-1][acted_TB], "after": seen_TB[1:][acted_TB]}
        steps |= {"now": features_TBF[:-1][acted_TB], "then": features_TBF[1:][acted_TB].detach()}
        return drawn, {**steps, "weights": torch.ones_like(steps["rewards"])}

    def _wanted_entropy(self, seen_B: Tensor) -> Tensor | float:
        """The target entropy; by default, where choices are masked, that of the allowed ones."""
        mask = self.own.net.mask
        if mask is None or self.config.settings.target_entropy is not None:
            return float(self._target_entropy)
        return OF_MOST * mask.permits(seen_B).sum(-1).clamp(min=1).log()  # type: ignore[no-any-return]

    def _critics_step(self, batch: Batch, temperature: Tensor) -> Tensor:
        now_B = batch["now"]
        after_B = batch["then"]
        with torch.no_grad():
            inputs = self.own.net.decide(after_B, batch["after"])
        if self._is_box:
            with torch.no_grad():
                actions, logp_B = self.distribution.draw(inputs, self._noise(len(inputs)))
            now_B = torch.cat([now_B, batch["actions"]], 1)
            said_2BX, next_2BX = self._judge(now_B, torch.cat([after_B, actions], 1))
            said_2B = said_2BX.squeeze(-1)
            next_B = next_2BX.amin(0).squeeze(-1) - temperature * logp_B
        else:
            said_2BX, next_2BX = self._judge(now_B, after_B)
            said_2B = said_2BX.gather(2, batch["actions"].expand(2, -1)[..., None])[..., 0]
            logp_BA = inputs.log_softmax(-1)
            next_B = (logp_BA.exp() * (next_2BX.amin(0) - temperature * logp_BA)).sum(-1)
        wanted_B = batch["rewards"] + batch["ahead"] * next_B
        error_2B: Tensor = said_2B - wanted_B
        loss = 0.5 * (batch["weights"] * error_2B.square()).mean(1).sum()
        self.tend(CRITICS, loss)
        if not self._targets and self.ranks > 1:  # after the gradients, which need the statistics as they were
            self._average([each for each in self.own.critics.buffers() if each.is_floating_point()])
        self.log(Metric.VALUE_LOSS, loss)
        self.judged = error_2B[0].detach(), wanted_B
        return error_2B.detach()

    def _judge(self, now_B: Tensor, after_B: Tensor) -> tuple[Tensor, Tensor]:
        """The critics' outputs, and without gradient those of the targets after the step.

        Batch normalisation needs both in one pass (CrossQ): actions drawn now are distributed unlike stored ones.
        """
        own = self.own
        if self._targets:
            with torch.no_grad():
                next_2BX = own.targets(after_B)
            return own.critics(now_B), next_2BX
        own.critics.train()
        said_2BX, next_2BX = own.critics(torch.cat([now_B, after_B])).chunk(2, 1)
        own.critics.eval()
        return said_2BX, next_2BX.detach()

    def _actor_step(self, seen_B: Tensor, features_B: Tensor, temperature: Tensor) -> Tensor:
        """A step of the actor; returns the log-probability of its actions."""
        own = self.own
        distribution = self.distribution
        inputs = own.net.decide(features_B, seen_B)
        self._teach_critics(False)
        if self._is_box:
            actions, logp_B = distribution.draw(inputs, self._noise(len(inputs)))
            least_B = own.critics(torch.cat([features_B, actions], 1)).amin(0).squeeze(-1)
            loss = (temperature * logp_B - least_B).mean()
        else:
            logp_BA = inputs.log_softmax(-1)
            least_BA = own.critics(features_B).amin(0)
            loss = (logp_BA.exp() * (temperature * logp_BA - least_BA)).sum(-1).mean()
            logp_B = -distribution.entropy(inputs)
        self.tend(ACTOR, loss)
        self._teach_critics(True)
        self.log(Metric.POLICY_LOSS, loss)
        done_B: Tensor = logp_B.detach()
        return done_B

    def _teach_critics(self, is_taught: bool) -> None:
        for parameter in self._critics:
            parameter.requires_grad_(is_taught)

    def _noise(self, count: int) -> Tensor:
        noise: Tensor = self.distribution.noise(count, generator=self._chance)
        return noise.to(self._device)

    # -- RLlib's hooks ----------------------------------------------------------------------------------------------

    @override
    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Adam, three times."""
        own = self._module[module_id]
        settings = self.config.settings
        momentum = CROSSQ_MOMENTUM if settings.batch_norm else MOMENTUM
        memory = [] if own.net.memory is None else list(own.net.memory.parameters())
        taught = {id(each) for each in memory}
        for name, parameters, rate in (
            (ACTOR, [each for each in own.net.parameters() if id(each) not in taught], settings.actor_rate),
            (CRITICS, [*own.critics.parameters(), *memory], settings.critic_rate),
            (TEMPERATURE, [own.log_temperature], settings.temperature_rate),
        ):
            self.adam(module_id, name, parameters, rate=rate, momentum=momentum)


class SACConfig(OffPolicyConfig, stock.SACConfig):
    """`SACConfig().environment("Pendulum-v1").training(batch=256).build_algo()`."""

    settings_class = kinds.SAC
    words = translation.SAC
    shaping = frozenset({"batch_norm"})
    fast_learner = SACLearner
    stock_learner = SACTorchLearner
    stock_settings = OffPolicyConfig.stock_settings | {
        "actor_rate",
        "critic_rate",
        "temperature_rate",
        "initial_temperature",
        "target_entropy",
    }

    @property
    @override
    def noise_color(self) -> str:
        return str(self.settings.noise)

    def __init__(self, algo_class: type | None = None) -> None:
        logging.getLogger(stock.sac.__name__).setLevel(logging.ERROR)  # it recommends the old API stack
        super().__init__(algo_class or SAC)

    def tell_rllib(self) -> None:
        """Copy our settings to RLlib's names, for RLlib's own code and its learner."""
        super().tell_rllib()
        settings = self.settings
        self.actor_lr = settings.actor_rate
        self.critic_lr = settings.critic_rate
        self.alpha_lr = settings.temperature_rate
        self.lr = None
        self.target_entropy = "auto" if settings.target_entropy is None else settings.target_entropy
        self.initial_alpha = settings.initial_temperature
        self.twin_q = True

    def _use_rllib_learner(self) -> None:
        if translation.model_of(self).get("use_lstm"):
            raise ConfigError(
                "use_lstm=True: RLlib's SAC has no networks with memory, ours has network.memory. Use that, or show "
                "what was before (gymnasium.wrappers.FrameStackObservation)."
            )
        super()._use_rllib_learner()

    def stock_spec(self) -> RLModuleSpec:
        """RLlib's own module of the same shape."""
        network = self.settings.network
        first, *rest = self.stock_layers()  # an encoder, then heads
        shape = {"fcnet_hiddens": [first], "head_fcnet_hiddens": rest}
        shape |= {"fcnet_activation": network.activation, "head_fcnet_activation": network.activation}
        return RLModuleSpec(module_class=DefaultSACTorchRLModule, model_config=self.stock_model(shape))

    def our_spec(self) -> RLModuleSpec:
        """The module that our learner trains."""
        settings = self.settings
        made = {"network": settings.network, "normalize": settings.normalize_observations}
        made |= {"temperature": settings.initial_temperature, "noise": settings.noise}
        made |= {"batch_norm": settings.batch_norm}
        return RLModuleSpec(module_class=SACModule, model_config=made)


class SAC(OffPolicyStep, stock.SAC):
    """Soft actor–critic as an RLlib Algorithm."""

    @classmethod
    @override
    def get_default_config(cls) -> SACConfig:
        """The defaults of `SAC`'s settings."""
        return SACConfig(cls)
