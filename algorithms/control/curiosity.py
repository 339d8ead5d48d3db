"""Random network distillation: a reward for steps that lead to unfamiliar observations. Used by `ppo.py`.

Axes: `_T` steps, `_N` environments, `_S` steps of the table, `_B` steps of a minibatch.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from loomrl.algorithms.control.learner import Adam, ArrayLearner
from loomrl.algorithms.control.rollout import Rollout
from loomrl.config import control as kinds
from loomrl.control.network import Normalizer, open_pixels, tower
from loomrl.control.space import ObservationView, seen
from loomrl.telemetry.metric import Metric

BOUND = 5.0
"""Normalised observations are clipped at this value."""


class NoveltyNet(nn.Module):
    """The error of a trained network in predicting a random one's output for an observation."""

    def __init__(self, view: ObservationView, settings: kinds.Curiosity) -> None:
        super().__init__()
        self.normalizer = Normalizer(view.shape[0], bound=BOUND) if view.kind == "numbers" else None
        self.scale = Normalizer(1)
        """Scale of the errors."""
        self.target = _says(view, settings).requires_grad_(False)
        self.learnt = _says(view, settings)

    def forward(self, seen_S: Tensor) -> Tensor:
        """The mean squared error for each observation."""
        if self.normalizer is not None:
            seen_S = self.normalizer(seen_S)
        error_S: Tensor = (self.learnt(seen_S) - self.target(seen_S)).square().mean(-1)
        return error_S


class CuriosityReward:
    """Rewards for novelty, which shrink for observations seen before."""

    def __init__(self, learner: ArrayLearner, settings: kinds.Curiosity) -> None:
        self._learner = learner
        self._settings = settings
        with torch.random.fork_rng(devices=[]):  # all learners begin with the same, and nothing else begins otherwise
            torch.manual_seed(int(learner.config.seed or 0))
            self._novelty = NoveltyNet(seen(learner.own.observation_space), settings).to(learner._device)
        self._optimizer = Adam(self._novelty.learnt.parameters(), rate=settings.learning_rate)

    def add_reward(self, rollouts: Sequence[Rollout], rewards: Sequence[Tensor]) -> list[Tensor]:
        """Rewards `[T, N]` plus the novelty of the observation that each step led to."""
        if self._novelty.normalizer is not None:
            self._learner.gather(self._novelty.normalizer, self._reached(rollouts))
        errors = []
        for rollout in rollouts:
            with torch.no_grad():
                led = torch.from_numpy(rollout.seen[1:]).flatten(0, 1).to(self._learner._device)
                errors_TN = self._novelty(led).cpu().view(rollout.valid.shape)
            errors.append(errors_TN * torch.from_numpy(rollout.valid))
        made_S = torch.cat([e[torch.from_numpy(r.valid)] for e, r in zip(errors, rollouts, strict=True)])
        self._learner.gather(self._novelty.scale, made_S[:, None])
        worth = self._settings.coefficient / float(self._novelty.scale.variance.sqrt() + 1e-8)
        self._learner.log(Metric.REWARD_CURIOSITY, worth * made_S.mean())
        return [reward + worth * error for reward, error in zip(rewards, errors, strict=True)]

    def learn(self, rollouts: Sequence[Rollout], *, minibatch: int) -> None:
        """Train the predictor for one pass over the observations that the steps led to."""
        for batch in self._learner.minibatches({"led": self._reached(rollouts)}, minibatch):
            self._learner.step(self._novelty(batch["led"]).mean(), self._optimizer, clip_norm=None, is_wrapped=False)

    @staticmethod
    def _reached(rollouts: Sequence[Rollout]) -> Tensor:
        return torch.cat([torch.from_numpy(rollout.seen[1:][rollout.valid]) for rollout in rollouts])

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume."""
        return deepcopy({"novelty": self._novelty.state_dict(), "optimizer": self._optimizer.state_dict()})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        self._novelty.load_state_dict(state["novelty"])
        self._optimizer.load_state_dict(deepcopy(state["optimizer"]))


def _says(view: ObservationView, settings: kinds.Curiosity) -> nn.Module:
    network = kinds.Network(hidden=settings.hidden, activation="relu")
    pixels = open_pixels(view, network)
    if pixels is None:
        return tower(view.shape[0], settings.features, network, gain=1.0)
    return nn.Sequential(pixels, tower(pixels.size, settings.features, network, gain=1.0))
