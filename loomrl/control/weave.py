"""The network of WEAVE: weighted experts, and an ensemble of critics weighted by their accuracy.

Axes: `_B` observations, `_F` features, `_M` critics, `_C` columns of value: objectives, then the utility if it is
learnt, then novelty if it is rewarded.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from loomrl.config.basic import NonNegative, PositiveInt
from loomrl.config.control import Network
from loomrl.control.memory import History
from loomrl.control.mixture import Mixture, Ways, open_mixture
from loomrl.control.network import SMALL, ActorCritic
from loomrl.control.space import Acts, Seen
from loomrl.schema import Config

NO_ERROR = 1e-8
"""Squared errors below this add no trust."""
MOST_DOUBT = 5.0
"""Maximum distance, in e-folds, of a critic's doubt about an observation from its mean doubt."""
MOST_SURPRISE = 25.0
"""Squared errors are clipped at this multiple of the expected one."""
FITS = 4
"""Steps per update that fit doubts to errors."""


class Threads(Config):
    """The numbers of experts and critics, and their settings."""

    experts: PositiveInt = 1
    critics: PositiveInt = 1
    columns: PositiveInt = 1
    is_vector: bool = False
    """True if values keep their columns; else there is one, and a value is a number."""
    temperatures: tuple[float, ...] = ()
    epsilons: tuple[float, ...] = ()
    """Exploration per expert, if they differ; see `Ways`."""
    squashed: bool = False
    """True if real-valued actions stay within bounds by a tangent, with state-dependent standard deviations."""
    pessimism: NonNegative = Field(0.0)
    """Standard deviations among critics by which the estimate is lowered."""


class CriticValues(NamedTuple):
    """Every critic's values, with its doubt about them."""

    values_BMC: Tensor
    body_BF: Tensor
    """The input of the critics' last layer."""
    doubt_BMC: Tensor
    """log σ²: logarithm of each critic's expected squared error."""


class WeaveNet(ActorCritic):
    """An ActorCritic with wider last layers; with one expert and critic they are equal, to the last bit."""

    errors_MC: Tensor

    def __init__(self, seen: Seen, acts: Acts, network: Network, threads: Threads, *, normalize: bool) -> None:
        super().__init__(seen, acts, network, normalize=normalize, squashed=threads.squashed)
        self.threads = threads
        experts = threads.experts
        base = self.distribution
        self.distribution = open_mixture(base, experts, Ways(threads.temperatures, threads.epsilons))
        if isinstance(self.distribution, Mixture):
            numbers = base.inputs if self.log_std is None else len(self.log_std)
            self.policy = self._head(experts * (1 + numbers), network, gain=SMALL)
            if self.log_std is not None:
                self.log_std = nn.Parameter(self.log_std.detach().repeat(experts))
        if base.squashed:
            with torch.no_grad():  # where deviations begin
                last_of(self.policy).bias[-experts * acts.count :] = network.log_std
        every = threads.critics * threads.columns
        if every > 1:
            self.critic = self._head(every, network, gain=1.0)
        self.register_buffer("errors_MC", torch.ones(threads.critics, threads.columns))
        self.doubt: nn.Linear | None = None
        """From the critics' body to each one's doubt relative to its mean. Trained separately, see `fit_doubt`."""
        if threads.critics > 1:
            self.doubt = nn.Linear(last_of(self.critic).in_features, every).requires_grad_(False)
            nn.init.zeros_(self.doubt.weight)
            nn.init.zeros_(self.doubt.bias)

    def values(self, features_BF: Tensor) -> Tensor:
        """Vⱼ: every critic's value, `[B, M, C]`."""
        return self._by_critic(self.critic(features_BF))

    def judged(self, features_BF: Tensor) -> CriticValues:
        """The values with each critic's doubt."""
        body_BF = self.critic[:-1](features_BF) if isinstance(self.critic, nn.Sequential) else features_BF
        return CriticValues(self._by_critic(last_of(self.critic)(body_BF)), body_BF, self.doubts(body_BF))

    def doubts(self, body_BF: Tensor) -> Tensor:
        """log σ²ⱼ(s): from the mean of recent errors and the observation, `[B, M, C]`."""
        usual_MC = self.errors_MC.clamp(min=NO_ERROR).log()
        if self.doubt is None:
            return usual_MC.expand(len(body_BF), -1, -1)
        return usual_MC + self._by_critic(self.doubt(body_BF)).clamp(-MOST_DOUBT, MOST_DOUBT)

    def _by_critic(self, numbers_BX: Tensor) -> Tensor:
        numbers_BMC: Tensor = numbers_BX.unflatten(-1, (self.threads.critics, self.threads.columns))
        return numbers_BMC

    def woven(self, judged: CriticValues) -> Tensor:
        """V = Σ αⱼVⱼ / Z with αⱼ = 1 / σ²ⱼ(s), lowered for disagreement; `[B, C]`, or `[B]` for numbers."""
        trust_BMC = (-judged.doubt_BMC).softmax(1)
        values_BC = (judged.values_BMC * trust_BMC).sum(1)
        if self.threads.pessimism and self.threads.critics > 1:
            values_BC = values_BC - self.threads.pessimism * judged.values_BMC.std(1)
        return values_BC if self.threads.is_vector else values_BC[:, 0]

    def value(self, features_BF: Tensor) -> Tensor:
        """The critics' joint value."""
        return self.woven(self.judged(features_BF))

    def forward(self, seen_B: Tensor, history: History | None = None) -> tuple[Tensor, Tensor]:
        """Inputs of the distribution, and every critic's values."""
        features_BF = self.features(seen_B, history)
        return self.decide(features_BF, seen_B), self.values(features_BF)

    def _allowed(self, seen_B: Tensor) -> Tensor:
        """For every expert; any of them may act."""
        allowed_BI = super()._allowed(seen_B)
        if not isinstance(self.distribution, Mixture):
            return allowed_BI
        experts = self.threads.experts
        return torch.cat([allowed_BI.new_ones(len(allowed_BI), experts), allowed_BI.repeat(1, experts)], 1)


def last_of(head: nn.Module) -> nn.Linear:
    """The last linear layer."""
    last = head[-1] if isinstance(head, nn.Sequential) else head
    assert isinstance(last, nn.Linear)
    return last


@torch.no_grad()
def fit_doubt(net: WeaveNet, body_SF: Tensor, wrong_SMC: Tensor, *, reduced: Callable[[Tensor], Tensor]) -> None:
    """Some gradient steps of the doubts towards the likelihood of these squared errors: minimise ½(e²/σ² + log σ²).

    Errors are clipped relative to the doubt, so that one outlier cannot undo many others. `reduced` sums over all
    learners.
    """
    doubt = net.doubt
    if doubt is None:
        return
    count, size = reduced(body_SF.new_tensor([len(body_SF), float(body_SF.square().sum())])).tolist()
    rate = 2 / (size / count + 1)  # what the steepest direction bears
    for _ in range(FITS):
        slope_SX = 0.5 * (1 - (wrong_SMC / net.doubts(body_SF).exp()).clamp(max=MOST_SURPRISE)).flatten(1)
        slope_XF = reduced(torch.cat([slope_SX.T @ body_SF, slope_SX.sum(0)[:, None]], 1)) / count
        doubt.weight.sub_(rate * slope_XF[:, :-1])
        doubt.bias.sub_(rate * slope_XF[:, -1])
