"""The network of WEAVE: experts behind a gate, and an ensemble of critics that count as much as they were right.

Axes: `_B` observations, `_F` features, `_M` critics, `_C` columns of value: objectives, then the utility
if it is learnt.
"""

import torch
from torch import Tensor

from loomrl.config.basic import PositiveInt
from loomrl.config.control import Network
from loomrl.control.mixture import open_mixture
from loomrl.control.network import SMALL, ActorCritic
from loomrl.control.space import Acts, Seen
from loomrl.schema import Config

NO_ERROR = 1e-8
"""Squared errors below this earn no more trust."""


class Threads(Config):
    """How many of each there are."""

    experts: PositiveInt = 1
    critics: PositiveInt = 1
    columns: PositiveInt = 1
    is_vector: bool = False
    """Whether values keep their columns; else there is one, and a value is a number."""


class WeaveNet(ActorCritic):
    """An ActorCritic with wider last layers; with one of each it is one, to the last bit."""

    errors_MC: Tensor

    def __init__(self, seen: Seen, acts: Acts, network: Network, threads: Threads, *, normalize: bool) -> None:
        super().__init__(seen, acts, network, normalize=normalize)
        self.threads = threads
        experts, base = threads.experts, self.distribution
        if experts > 1:
            self.distribution = open_mixture(base, experts)
            numbers = base.inputs if self.log_std is None else len(self.log_std)
            self.policy = self._head(experts * (1 + numbers), network, gain=SMALL)
            if self.log_std is not None:
                self.log_std = torch.nn.Parameter(self.log_std.detach().repeat(experts))
        if threads.critics * threads.columns > 1:
            self.critic = self._head(threads.critics * threads.columns, network, gain=1.0)
        self.register_buffer("errors_MC", torch.ones(threads.critics, threads.columns))

    @property
    def trust(self) -> Tensor:
        """αⱼ/Z: the inverse of each critic's recent squared error, all critics' together 1."""
        inverse_MC = 1 / self.errors_MC.clamp(min=NO_ERROR)
        return inverse_MC / inverse_MC.sum(0)

    def values(self, features_BF: Tensor) -> Tensor:
        """Vⱼ: what every critic expects, `[B, M, C]`."""
        return self.critic(features_BF).unflatten(-1, (self.threads.critics, self.threads.columns))  # type: ignore[no-any-return]

    def woven(self, values_BMC: Tensor) -> Tensor:
        """V = Σ αⱼVⱼ / Z, `[B, C]`, or `[B]` where a value is a number."""
        values_BC = (values_BMC * self.trust).sum(1)
        return values_BC if self.threads.is_vector else values_BC[:, 0]

    def value(self, features_BF: Tensor) -> Tensor:
        """What all critics together expect."""
        return self.woven(self.values(features_BF))

    def forward(self, seen_B: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs of the distribution, and what every critic expects."""
        features_BF = self.features(seen_B)
        return self.decide(features_BF), self.values(features_BF)
