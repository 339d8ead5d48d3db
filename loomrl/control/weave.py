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
from loomrl.control.distribution import ActionDistribution, Categorical, Gaussian, even
from loomrl.control.memory import History
from loomrl.control.network import SMALL, ActorCritic
from loomrl.control.space import ActionView, ObservationView
from loomrl.errors import ConfigError
from loomrl.schema import Config


class Ways(NamedTuple):
    """Exploration per expert; empty if all explore as the base does."""

    temperatures: tuple[float, ...] = ()
    """Divide logits and multiply standard deviations."""
    epsilons: tuple[float, ...] = ()
    """Probability of a uniformly random choice by the expert."""


NO_WAYS = Ways()


class Mixture:
    """A mixture over the actions of `base`. The network puts out the logits of their weights, then the experts' inputs.

    Outputs with parts (means, then standard deviations) come part by part, and within each part expert by expert: a
    network only needs a wider layer. With one expert every number equals that of `base`, to the last bit.
    """

    def __init__(self, base: ActionDistribution, experts: int, ways: Ways = NO_WAYS) -> None:
        self.base = base
        self.experts = experts
        self.ways = ways
        self.squashed = base.squashed
        self.inputs = experts * (1 + base.inputs)
        self._is_real = isinstance(base, Gaussian)
        if self._is_real and any(ways.epsilons):
            raise ConfigError("epsilon: real-valued actions are not chosen evenly. Use a temperature above 1 for them.")

    def log_weights(self, inputs_BI: Tensor) -> Tensor:
        """Logarithms of the experts' weights, `[B, K]`."""
        return inputs_BI[:, : self.experts].log_softmax(-1)

    def each(self, inputs_BI: Tensor) -> Tensor:
        """The inputs of each expert's distribution, `[B, K, I]`."""
        said = inputs_BI[:, self.experts :]
        heat_K1 = said.new_tensor(self.ways.temperatures)[:, None] if self.ways.temperatures else None
        if not self._is_real:
            logits_BKI = said.view(-1, self.experts, self.base.inputs)
            return logits_BKI if heat_K1 is None else logits_BKI / heat_K1
        mean_BKD, log_std_BKD = said.view(-1, 2, self.experts, self.base.inputs // 2).unbind(1)
        return torch.cat([mean_BKD, log_std_BKD if heat_K1 is None else log_std_BKD + heat_K1.log()], -1)

    def joint(self, inputs_BI: Tensor, actions: Tensor) -> Tensor:
        """log wₖ πₖ(a): the joint log-probability of action and expert, `[B, K]`; exact."""
        if isinstance(self.base, Categorical):
            return self._choices(inputs_BI).gather(-1, actions[:, None, None].expand(-1, self.experts, 1))[:, :, 0]
        each_BKI = self.each(inputs_BI)
        repeated = actions.repeat_interleave(self.experts, 0)
        logp_BK = self.base.logp(each_BKI.flatten(0, 1), repeated).view(-1, self.experts)
        if self.ways.epsilons:
            even_B1 = self.base.logp(even(each_BKI[:, 0]), actions)[:, None]
            logp_BK = self._mix_uniform(logp_BK, even_B1)
        return self.log_weights(inputs_BI) + logp_BK

    def fold(self, inputs_BI: Tensor) -> tuple[ActionDistribution, Tensor]:
        """The same distribution for repeated use: for one choice, `base` with its inputs."""
        if isinstance(self.base, Categorical):
            return self.base, self._choices(inputs_BI).logsumexp(1)
        return self, inputs_BI

    def logp(self, inputs_BI: Tensor, actions: Tensor) -> Tensor:
        """Log-probability; exact."""
        return self.joint(inputs_BI, actions).logsumexp(-1)

    def entropies(self, inputs_BI: Tensor) -> Tensor:
        """Entropy of every expert, `[B, K]`, without its random choices."""
        return self.base.entropy(self.each(inputs_BI).flatten(0, 1)).view(-1, self.experts)

    def entropy(self, inputs_BI: Tensor) -> Tensor:
        """Exact for one choice; else a lower bound, the weighted mean of the experts' (exact if they agree)."""
        if isinstance(self.base, Categorical):
            logp_BI = self._choices(inputs_BI).logsumexp(1)
            return -(logp_BI.exp() * logp_BI).sum(-1)
        return (self.log_weights(inputs_BI).exp() * self.entropies(inputs_BI)).sum(-1)

    def kl(self, inputs_BI: Tensor, other_BI: Tensor) -> Tensor:
        """Exact for one choice; else an upper bound: the weights' divergence and the weighted mean of the experts'."""
        if isinstance(self.base, Categorical):
            logp_BI, other_logp_BI = (self._choices(x).logsumexp(1) for x in (inputs_BI, other_BI))
            return (logp_BI.exp() * (logp_BI - other_logp_BI)).sum(-1)
        logw_BK = self.log_weights(inputs_BI)
        pairs = self.each(inputs_BI).flatten(0, 1), self.each(other_BI).flatten(0, 1)
        apart_BK = logw_BK - self.log_weights(other_BI) + self.base.kl(*pairs).view(-1, self.experts)
        return (logw_BK.exp() * apart_BK).sum(-1)

    def noise(self, *shape: int, generator: torch.Generator | None = None) -> Tensor:
        """Gumbel noise to draw an expert, a uniform number if experts choose at random, then noise of the one drawn."""
        noises = [Categorical(self.experts).noise(*shape, generator=generator)]
        if self.ways.epsilons:
            noises.append(torch.rand(*shape, 1, generator=generator))
        return torch.cat([*noises, self.base.noise(*shape, generator=generator)], -1)

    def sample(self, inputs_BI: Tensor, noise_BW: Tensor) -> Tensor:
        """An expert by its weight, then one of its actions."""
        chosen_B = (inputs_BI[:, : self.experts] + noise_BW[:, : self.experts]).argmax(-1)
        taken_BI = self.each(inputs_BI)[torch.arange(len(chosen_B)), chosen_B]
        first = self.experts
        if self.ways.epsilons:
            strays_B = noise_BW[:, first] < noise_BW.new_tensor(self.ways.epsilons)[chosen_B]
            taken_BI = torch.where(strays_B[:, None], even(taken_BI), taken_BI)
            first = first + 1
        return self.base.sample(taken_BI, noise_BW[:, first:])

    def mode(self, inputs_BI: Tensor) -> Tensor:
        """For one choice the likeliest; else the likeliest of the experts' own modes."""
        each_BKI = self.each(inputs_BI)
        if self.experts == 1:
            return self.base.mode(each_BKI[:, 0])
        if isinstance(self.base, Categorical):
            return self._choices(inputs_BI).logsumexp(1).argmax(-1)
        modes = [self.base.mode(each_BKI[:, k]) for k in range(self.experts)]
        best_B = torch.stack([self.logp(inputs_BI, mode) for mode in modes]).argmax(0)
        return _chosen(torch.stack(modes, 1), best_B)

    def _choices(self, inputs_BI: Tensor) -> Tensor:
        """For one choice: the joint log-probability of choice and expert, `[B, K, I]`."""
        each_BKI = self.each(inputs_BI)
        logp_BKI = each_BKI.log_softmax(-1)
        if self.ways.epsilons:
            logp_BKI = self._mix_uniform(logp_BKI, even(each_BKI).log_softmax(-1))
        return self.log_weights(inputs_BI)[:, :, None] + logp_BKI

    def _mix_uniform(self, logp_BK: Tensor, even_BK: Tensor) -> Tensor:
        """Mixed with each expert's uniform random choices; experts are the second axis."""
        epsilon_K = logp_BK.new_tensor(self.ways.epsilons).view(-1, *[1] * (logp_BK.dim() - 2))
        return torch.logaddexp((-epsilon_K).log1p() + logp_BK, epsilon_K.log() + even_BK)


def information(joint_BK: Tensor, logw_BK: Tensor) -> Tensor:
    """Nats of information that an action gives about its expert: Σ rₖ log(rₖ / wₖ), with rₖ = p(k | s, a)."""
    responsible_BK = joint_BK.log_softmax(-1)
    return (responsible_BK.exp() * (responsible_BK - logw_BK)).sum(-1)


def _chosen(each_BKX: Tensor, which_B: Tensor) -> Tensor:
    """`[B, X]`: the selected entry of every row."""
    return each_BKX.gather(1, which_B[:, None, None].expand(-1, 1, each_BKX.shape[2]))[:, 0]


def open_mixture(base: ActionDistribution, experts: int, ways: Ways = NO_WAYS) -> ActionDistribution:
    """`base` itself for a single expert without exploration of its own: it needs no weights."""
    return base if experts == 1 and ways == NO_WAYS else Mixture(base, experts, ways)


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


class CriticJudgement(NamedTuple):
    """Every critic's values, with its doubt about them."""

    values_BMC: Tensor
    body_BF: Tensor
    """The input of the critics' last layer."""
    doubt_BMC: Tensor
    """log σ²: logarithm of each critic's expected squared error."""


class WeaveNet(ActorCritic):
    """An ActorCritic with wider last layers; with one expert and critic they are equal, to the last bit."""

    errors_MC: Tensor

    def __init__(
        self, seen: ObservationView, acts: ActionView, network: Network, threads: Threads, *, normalize: bool
    ) -> None:
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

    def judge(self, features_BF: Tensor) -> CriticJudgement:
        """The values with each critic's doubt."""
        body_BF = self.critic[:-1](features_BF) if isinstance(self.critic, nn.Sequential) else features_BF
        return CriticJudgement(self._by_critic(last_of(self.critic)(body_BF)), body_BF, self.doubts(body_BF))

    def doubts(self, body_BF: Tensor) -> Tensor:
        """log σ²ⱼ(s): from the mean of recent errors and the observation, `[B, M, C]`."""
        usual_MC = self.errors_MC.clamp(min=NO_ERROR).log()
        if self.doubt is None:
            return usual_MC.expand(len(body_BF), -1, -1)
        return usual_MC + self._by_critic(self.doubt(body_BF)).clamp(-MOST_DOUBT, MOST_DOUBT)

    def _by_critic(self, numbers_BX: Tensor) -> Tensor:
        numbers_BMC: Tensor = numbers_BX.unflatten(-1, (self.threads.critics, self.threads.columns))
        return numbers_BMC

    def woven(self, judged: CriticJudgement) -> Tensor:
        """V = Σ αⱼVⱼ / Z with αⱼ = 1 / σ²ⱼ(s), lowered for disagreement; `[B, C]`, or `[B]` for numbers."""
        trust_BMC = (-judged.doubt_BMC).softmax(1)
        values_BC = (judged.values_BMC * trust_BMC).sum(1)
        if self.threads.pessimism and self.threads.critics > 1:
            values_BC = values_BC - self.threads.pessimism * judged.values_BMC.std(1)
        return values_BC if self.threads.is_vector else values_BC[:, 0]

    def value(self, features_BF: Tensor) -> Tensor:
        """The critics' joint value."""
        return self.woven(self.judge(features_BF))

    def forward(self, seen_B: Tensor, history: History | None = None) -> tuple[Tensor, Tensor]:
        """Inputs of the distribution, and every critic's values."""
        features_BF = self.features(seen_B, history)
        return self.decide(features_BF, seen_B), self.values(features_BF)

    def _permits(self, seen_B: Tensor) -> Tensor:
        """For every expert; any of them may act."""
        allowed_BI = super()._permits(seen_B)
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
