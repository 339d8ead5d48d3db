"""Several critics side by side: where to trust which, and the reward for their disagreement.

Axes: `_T` steps, `_N` environments, `_S` steps of the table, `_M` critics, `_C` columns of value, `_F` features.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from loomrl.algorithms.control.learner import ArrayLearner
from loomrl.algorithms.control.rollout import Rollout
from loomrl.control.network import Normalizer
from loomrl.control.weave import CriticValues, fit_doubt
from loomrl.telemetry.metric import Metric


def learn_trust(
    learner: ArrayLearner,
    rollouts: Sequence[Rollout],
    judged: Sequence[CriticValues],
    returns: Tensor,
    *,
    memory: float,
) -> None:
    """Learn every critic's error on steps that none was trained on, and where it is larger than usual."""
    net = learner.own.net
    if net.doubt is None:
        return
    values_SMC, body_SF, doubt_SMC = (
        torch.cat([_acted(rollout, numbers) for rollout, numbers in zip(rollouts, column, strict=True)])
        for column in zip(*judged, strict=True)
    )
    wrong_SMC = (values_SMC - returns.view(len(returns), 1, -1)).square()
    learner.log(Metric.VALUE_DISAGREEMENT, values_SMC.std(1).mean())
    learner.log(Metric.VALUE_CALIBRATION, (wrong_SMC / doubt_SMC.exp()).mean())
    usual_MC = learner.reduced(wrong_SMC.mean(0)) / learner.ranks
    net.errors_MC.copy_(memory * net.errors_MC + (1 - memory) * usual_MC.to(net.errors_MC.device))
    device = net.errors_MC.device
    fit_doubt(net, body_SF.to(device), wrong_SMC.to(device), reduced=learner.reduced)


class Wonder:
    """A reward for disagreement among the critics about the observation that a step led to."""

    def __init__(self, learner: ArrayLearner, worth: float, *, columns: int) -> None:
        self._learner = learner
        self._worth = worth
        self._columns = columns
        self._scale = Normalizer(1)
        """Scale of the disagreement."""

    def paid(self, rollouts: Sequence[Rollout], judged: Sequence[CriticValues]) -> list[Tensor]:
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


def _acted(rollout: Rollout, numbers: Tensor) -> Tensor:
    """The rows of observations that were followed by an action."""
    acted_S: Tensor = numbers.unflatten(0, rollout.seen.shape[:2])[:-1][torch.from_numpy(rollout.valid)]
    return acted_S
