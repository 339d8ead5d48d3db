"""Several experts side by side: none is abandoned, they may differ, each explores in its own way.

Axes: `_B` steps of a minibatch, `_S` of the table, `_K` experts.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from loomrl.algorithms.control.learner import ArrayLearner
from loomrl.algorithms.control.rollout import Rollout
from loomrl.config.weave import Weave
from loomrl.control.mixture import Mixture, information
from loomrl.telemetry.metric import Metric


class Experts:
    """The learner's terms for its experts; nothing without a mixture."""

    def __init__(self, learner: ArrayLearner, settings: Weave) -> None:
        self._learner = learner
        self._settings = settings
        self._mixture = learner.distribution if isinstance(learner.distribution, Mixture) else None
        self._eager_K = torch.tensor([way.entropy - 1 for way in settings.exploration])
        self._curious_K = torch.tensor([way.curiosity for way in settings.exploration] or [1.0] * settings.experts)

    def loss(self, inputs: Tensor, actions: Tensor, entropy: float) -> Tensor:
        """Losses for abandoned experts, for similar experts, and for low entropy of those that should explore more.

        The less an expert acts, the weaker the gradient of its weight; the loss for abandoned experts does not fade
        this way.
        """
        mixture = self._mixture
        settings = self._settings
        if mixture is None:
            return inputs.new_zeros(())
        logw_BK = mixture.log_weights(inputs)
        use_K = logw_BK.exp().mean(0)
        self._learner.log(Metric.EXPERT_IMBALANCE, (use_K * (use_K * len(use_K)).log()).sum())
        least = settings.least_use / len(use_K)
        loss: Tensor = settings.balance * (least / use_K).log().clamp(min=0).sum()
        if settings.diversity:
            loss = loss - settings.diversity * information(mixture.joint(inputs, actions), logw_BK).mean()
        if entropy and self._eager_K.any():
            more_B = (logw_BK.exp() * mixture.entropies(inputs)) @ self._eager_K.to(logw_BK.device)
            loss = loss - entropy * more_B.mean()
        return loss

    def tell(self, rollouts: Sequence[Rollout]) -> None:
        """Log each expert's use in these steps, and how much an action tells about its expert."""
        if self._mixture is None:
            return
        inputs, actions = (
            torch.cat([torch.from_numpy(getattr(rollout, name)[rollout.valid]) for rollout in rollouts])
            for name in ("inputs", "actions")
        )
        logw_SK = self._mixture.log_weights(inputs)
        for k, use in enumerate(logw_SK.exp().mean(0)):
            self._learner.log(Metric.EXPERT_USE.of(str(k)), use)
        told_S = information(self._mixture.joint(inputs, actions), logw_SK)
        self._learner.log(Metric.EXPERT_DIVERSITY, told_S.mean())

    def curious(self, inputs: Tensor, actions: Tensor) -> Tensor:
        """The weight of novelty for each action, by the experts that may have taken it and their probabilities."""
        settings = self._settings
        weight = settings.wonder + (settings.curiosity.coefficient if settings.curiosity is not None else 0.0)
        if self._mixture is None:
            return torch.full((len(inputs),), weight * float(self._curious_K[0]))
        curious_S: Tensor = self._mixture.joint(inputs, actions).softmax(-1) @ self._curious_K
        return weight * curious_S
