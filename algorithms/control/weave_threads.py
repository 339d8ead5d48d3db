"""Several experts and critics side by side: which expert explores how, and which critic to trust where.

Axes: `_B` steps of a minibatch, `_S` of the table, `_K` experts.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from loomrl.algorithms.control.learner import ArrayLearner
from loomrl.algorithms.control.rollout import Rollout
from loomrl.config.weave import Weave
from loomrl.control.network import Normalizer
from loomrl.control.weave import CriticJudgement, Mixture, fit_doubt, information
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


def learn_trust(
    learner: ArrayLearner,
    rollouts: Sequence[Rollout],
    judged: Sequence[CriticJudgement],
    returns: Tensor,
    *,
    memory: float,
) -> None:
    """Learn every critic's error on steps that none was trained on, and where it is larger than usual."""
    net = learner.own.net
    if net.doubt is None:
        return
    values_SMC, body_SF, doubt_SMC = (
        torch.cat([_rows_with_action(rollout, numbers) for rollout, numbers in zip(rollouts, column, strict=True)])
        for column in zip(*judged, strict=True)
    )
    wrong_SMC = (values_SMC - returns.view(len(returns), 1, -1)).square()
    learner.log(Metric.VALUE_DISAGREEMENT, values_SMC.std(1).mean())
    learner.log(Metric.VALUE_CALIBRATION, (wrong_SMC / doubt_SMC.exp()).mean())
    usual_MC = learner.reduce(wrong_SMC.mean(0)) / learner.ranks
    net.errors_MC.copy_(memory * net.errors_MC + (1 - memory) * usual_MC.to(net.errors_MC.device))
    device = net.errors_MC.device
    fit_doubt(net, body_SF.to(device), wrong_SMC.to(device), reduced=learner.reduce)


class Wonder:
    """A reward for disagreement among the critics about the observation that a step led to."""

    def __init__(self, learner: ArrayLearner, worth: float, *, columns: int) -> None:
        self._learner = learner
        self._worth = worth
        self._columns = columns
        self._scale = Normalizer(1)
        """Scale of the disagreement."""

    def reward(self, rollouts: Sequence[Rollout], judged: Sequence[CriticJudgement]) -> list[Tensor]:
        """The reward of every step `[T, N]`, in standard deviations."""
        apart = [
            one.values_BMC[..., : self._columns].std(1).mean(-1).unflatten(0, rollout.seen.shape[:2])[1:]
            * torch.from_numpy(rollout.valid)
            for rollout, one in zip(rollouts, judged, strict=True)
        ]
        made_S = torch.cat([one[torch.from_numpy(r.valid)] for one, r in zip(apart, rollouts, strict=True)])
        self._learner.gather(self._scale, made_S[:, None])
        worth = self._worth / float(self._scale.variance.sqrt() + 1e-8)
        return [worth * one for one in apart]

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume."""
        return deepcopy(self._scale.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        self._scale.load_state_dict(state)


def _rows_with_action(rollout: Rollout, numbers: Tensor) -> Tensor:
    """The rows of observations that were followed by an action."""
    acted_S: Tensor = numbers.unflatten(0, rollout.seen.shape[:2])[:-1][torch.from_numpy(rollout.valid)]
    return acted_S
