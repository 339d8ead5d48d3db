"""Deep Q-learning, for one choice among several. Compare with `sac.py`: the files differ only where the algorithms do.

Axes: `_B` steps that are drawn, `_A` choices, `_Q` quantiles of a value, `_W` quantiles that are wanted of it.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from ray.rllib.algorithms import dqn as stock
from ray.rllib.algorithms.dqn.torch.default_dqn_torch_rl_module import DefaultDQNTorchRLModule
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from torch import Tensor
from torch.nn.functional import smooth_l1_loss
from typing_extensions import override

from loomrl.algorithms.control import translation
from loomrl.algorithms.control.learner import ControlWork
from loomrl.algorithms.control.module import ActorModule
from loomrl.algorithms.control.off_policy import Batch, OffPolicyConfig, OffPolicyStep, ReplayLearner
from loomrl.config import control as kinds
from loomrl.control.q_network import QHead, QNet
from loomrl.control.space import acts, seen
from loomrl.errors import ConfigError
from loomrl.telemetry.metric import Metric

VALUES = "values"
"""The optimizer."""


class DQNModule(ActorModule):
    """A network of values, and its target network."""

    net: QNet

    @override
    def setup(self) -> None:
        """Build from `model_config`: `network`, `normalize`, `head`."""
        kind = acts(self.action_space)
        if kind.kind != "discrete":
            raise ConfigError(f"dqn decides one choice among several, not {self.action_space}. Use ppo or sac.")
        made = self.model_config
        self.net = QNet(seen(self.observation_space), kind, made["network"], made["head"], normalize=made["normalize"])
        self.targets = deepcopy(self.net).requires_grad_(False)
        self.targets.normalizer = self.net.normalizer


class DQNLearner(ReplayLearner):
    """Learns the values of choices from its replay memory."""

    updates = 0
    """Updates so far, for the target network."""
    played = 0
    """Steps of all learners so far, for the exploration."""

    @override
    def build(self) -> None:
        """Build, with the first share of random choices."""
        super().build()
        settings = self.config.settings
        self._targets = list(self.own.targets.parameters())
        self._followed = list(self.own.net.parameters())
        self._target_every = max(1, round(settings.target_every * settings.updates_per_step))
        self._shown_B: Tensor | None = None
        """The observations of the latest update."""
        self._explore()

    @override
    def learn(self, work: ControlWork) -> int:
        """Store the steps and make the updates that are due; the share of random choices falls."""
        trained = super().learn(work)
        self.played += int(self.reduce(torch.tensor(sum(rollout.env_steps() for rollout in work.rollouts))))
        self._explore()
        return trained

    def _explore(self) -> None:
        self.own.net.epsilon.fill_(self.config.settings.exploration.at(self.played))

    @override
    def improve(self) -> None:
        """One step of the values, then of the target network if it is its turn."""
        net = self.own.net
        drawn, batch = self.draw()
        wanted_BW = self._wanted(batch)
        said_BQ = _chosen(net.values(net.features(batch["seen"])), batch["actions"])
        loss_B = quantile_loss(said_BQ, wanted_BW)
        loss = (torch.from_numpy(drawn.weights_B).to(self._device) * loss_B).mean()
        self.tend(VALUES, loss)
        self.updates += 1
        if self.updates % self._target_every == 0:
            with torch.no_grad():
                torch._foreach_lerp_(self._targets, self._followed, self.config.settings.tau)
        error_B = (said_BQ.detach() - wanted_BW).mean(-1)
        if self.config.settings.replay.prioritized is not None:
            self.ring.update_priorities(drawn, error_B.cpu().numpy())
        self.log(Metric.VALUE_LOSS, loss)
        self.judged = error_B, wanted_BW.mean(-1)
        self._shown_B = batch["seen"]

    @torch.no_grad()
    def _wanted(self, batch: Batch) -> Tensor:
        """Quantiles of the return: the rewards, and what the target network expects of the best choice after them."""
        net = self.own.net
        targets = self.own.targets
        after = batch["after"]
        values_BAQ = targets.values(targets.features(after))
        judging_BAQ = net.values(net.features(after)) if self.config.settings.double else values_BAQ
        ahead_BQ = _chosen(values_BAQ, net.best(judging_BAQ, after))
        wanted_BQ: Tensor = batch["rewards"][:, None] + batch["ahead"][:, None] * ahead_BQ
        return wanted_BQ

    @override
    def report_metrics(self, trained: int) -> Any:
        """Also the share of random choices, and the policy's entropy in the observations of the latest update."""
        net = self.own.net
        self.log(Metric.POLICY_RANDOM, net.epsilon.clone())
        if self._shown_B is not None:
            with torch.no_grad():
                inputs = net.decide(net.features(self._shown_B), self._shown_B)
            self.log(Metric.POLICY_ENTROPY, self.distribution.entropy(inputs).mean())
            self._shown_B = None
        return super().report_metrics(trained)

    @override
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"updates": self.updates, "played": self.played}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.updates = state["updates"]
        self.played = state["played"]

    # -- RLlib's hooks ----------------------------------------------------------------------------------------------

    @override
    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Adam."""
        parameters = list(self._module[module_id].net.parameters())
        self.adam(module_id, VALUES, parameters, rate=self.config.settings.learning_rate)


def _chosen(values_BAQ: Tensor, choices_B: Tensor) -> Tensor:
    """The quantiles of these choices, `[B, Q]`."""
    return values_BAQ[torch.arange(len(choices_B), device=choices_B.device), choices_B]


def quantile_loss(said_BQ: Tensor, wanted_BW: Tensor) -> Tensor:
    """Quantile regression with Huber's loss (Dabney and others, 2018), `[B]`: for one quantile it is Huber's."""
    count = said_BQ.shape[1]
    said_BQW, wanted_BQW = torch.broadcast_tensors(said_BQ[:, :, None], wanted_BW[:, None, :])
    huber_BQW = smooth_l1_loss(said_BQW, wanted_BQW, reduction="none")
    place_Q1 = (torch.arange(count, device=said_BQ.device)[:, None] + 0.5) / count
    weight_BQW = (place_Q1 - (wanted_BQW < said_BQW).float()).abs()
    loss_B: Tensor = 2 * (weight_BQW * huber_BQW).mean(2).sum(1)
    return loss_B


class DQNConfig(OffPolicyConfig, stock.DQNConfig):
    """`DQNConfig().environment("CartPole-v1").training(learning_rate=1e-3).build_algo()`."""

    settings_class = kinds.DQN
    words = translation.DQN
    shaping = frozenset({"dueling", "quantiles"})
    fast_learner = DQNLearner
    stock_learner = DQNTorchLearner
    stock_settings = OffPolicyConfig.stock_settings | {
        "learning_rate",
        "double",
        "dueling",
        "target_every",
        "exploration",
    }

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class or DQN)

    def tell_rllib(self) -> None:
        """Copy our settings to RLlib's names, for RLlib's own code and its learner."""
        super().tell_rllib()
        settings = self.settings
        way = settings.exploration
        self.lr = settings.learning_rate
        self.double_q = settings.double
        self.dueling = settings.dueling
        self.target_network_update_freq = settings.target_every
        self.epsilon = [(0, way.begin), (way.steps, way.end)]

    def stock_spec(self) -> RLModuleSpec:
        """RLlib's own module of the same shape."""
        network = self.settings.network
        shape = {"fcnet_hiddens": self.stock_layers(), "head_fcnet_hiddens": []}
        model = self.stock_model(shape | {"fcnet_activation": network.activation})
        return RLModuleSpec(module_class=DefaultDQNTorchRLModule, model_config=model)

    def our_spec(self) -> RLModuleSpec:
        """The module that our learner trains."""
        settings = self.settings
        made = {"network": settings.network, "normalize": settings.normalize_observations}
        made |= {"head": QHead(dueling=settings.dueling, quantiles=settings.quantiles)}
        return RLModuleSpec(module_class=DQNModule, model_config=made)


class DQN(OffPolicyStep, stock.DQN):
    """Deep Q-learning as an RLlib Algorithm."""

    @classmethod
    @override
    def get_default_config(cls) -> DQNConfig:
        """The defaults of `DQN`'s settings."""
        return DQNConfig(cls)
