"""The network of DQN: the value of every choice, and the ε-greedy policy that follows from it.

Axes: `_B` observations, `_F` features, `_X` numbers that the network puts out, `_A` choices, `_Q` quantiles of a value.
"""

import torch
from torch import Tensor

from loomrl.config.basic import PositiveInt
from loomrl.config.control import Network
from loomrl.control.distribution import FORBIDDEN
from loomrl.control.network import Actor
from loomrl.control.space import ActionView, ObservationView
from loomrl.schema import Config

MOST_EPSILON = 0.99999
"""The best choice stays the likeliest even where all are random: greedy actions are those of the values."""

TINY = 1e-38
"""A probability whose logarithm is finite."""


class QHead(Config):
    """The form in which the last layer puts out values."""

    dueling: bool = False
    """True if a state's value and the choices' advantages are put out apart."""
    quantiles: PositiveInt = 1
    """Quantiles of the return; 1 is its mean."""


class QNet(Actor):
    """Values of choices as a policy whose `inputs` are log-probabilities: of the best one 1 - ε, the rest evenly.

    ε is part of the weights, so that runners, checkpoints and exported policies explore as the training does.
    """

    epsilon: Tensor

    def __init__(
        self, seen: ObservationView, acts: ActionView, network: Network, head: QHead, *, normalize: bool
    ) -> None:
        super().__init__(seen, acts, network, normalize=normalize)
        self.head = head
        self.policy = self._head(head.quantiles * (self.distribution.inputs + head.dueling), network, gain=1.0)
        self.register_buffer("epsilon", torch.ones(()))

    def values(self, features_BF: Tensor) -> Tensor:
        """Every choice's quantiles, `[B, A, Q]`."""
        return self._by_choice(self.policy(features_BF))

    def best(self, values_BAQ: Tensor, seen_B: Tensor) -> Tensor:
        """The choice of the highest mean among those that the observations allow, `[B]`."""
        return self._allowed(values_BAQ, seen_B).argmax(-1)

    def expect(self, features_BF: Tensor, seen_B: Tensor) -> Tensor:
        """The value of the best choice, `[B]`."""
        return self._allowed(self.values(features_BF), seen_B).amax(-1)

    def block(self, inputs_BI: Tensor, seen_B: Tensor) -> Tensor:
        """Log-probabilities of the ε-greedy policy, from what the last layer puts out."""
        best_B = self.best(self._by_choice(inputs_BI), seen_B)
        count = self.distribution.inputs
        is_best_BA = torch.arange(count, device=best_B.device) == best_B[:, None]
        epsilon = self.epsilon.clamp(max=MOST_EPSILON)
        random_BA = epsilon / count
        if self.mask is not None:
            allowed_BA = self._permits(seen_B)
            random_BA = epsilon * allowed_BA / allowed_BA.sum(-1, keepdim=True).clamp(min=1)
        chance_BA = random_BA + (1 - epsilon) * is_best_BA
        return chance_BA.clamp(min=TINY).log().masked_fill(chance_BA == 0, FORBIDDEN)

    def _by_choice(self, said_BX: Tensor) -> Tensor:
        said_BAQ: Tensor = said_BX.unflatten(-1, (self.distribution.inputs + self.head.dueling, self.head.quantiles))
        if not self.head.dueling:
            return said_BAQ
        advantage_BAQ = said_BAQ[:, 1:]
        return said_BAQ[:, :1] + advantage_BAQ - advantage_BAQ.mean(1, keepdim=True)

    def _allowed(self, values_BAQ: Tensor, seen_B: Tensor) -> Tensor:
        return super().block(values_BAQ.mean(-1), seen_B)
