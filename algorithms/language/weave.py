"""WEAVE over tokens: PPO with several experts, objectives and critics.

π(a|s) = Σ wₖ(s) πₖ(a|s)   experts as the model's last layer: `loomrl.inference.experts`
R(s, a) = Σ βₕ Rₕ(s, a)    objectives by the attempt's preference: `_weighed`
V(s) = Σ αⱼ Vⱼ(s) / Z      critics by their trust: `_woven`

Axes: `_N` samples, `_T` tokens of one sample, `_K` action tokens of one micro-batch, `_M` critics, `_H` objectives that
are paid, `_X` critics by objectives.
"""

import zlib
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from loomrl.algorithms.advantage import has_signal
from loomrl.algorithms.language.advantage import Column, estimate, over_attempts
from loomrl.algorithms.language.batch import LanguageWork
from loomrl.algorithms.language.learner import ADVANTAGE, RETURN, VALUE, LanguageLearner
from loomrl.algorithms.language.packing import attempts_of
from loomrl.algorithms.language.score import Scores
from loomrl.algorithms.losses import value_loss
from loomrl.config import GRPO, LanguageWeave
from loomrl.control.weave import MOST_DOUBT, MOST_SURPRISE, NO_ERROR
from loomrl.telemetry.metric import Metric

DOUBT = "doubt_K"
WEIGHTS = "log_weights_K"
"""Scores of critics' doubts, and of experts' weights."""
WRONG = "wrong"
SHARE = "share"
"""Further columns: squared errors of critics, and each one's share of the samples."""

Floats = NDArray[np.floating]
Shares = Sequence[Sequence[float]]


class WeaveLanguageLearner(LanguageLearner):
    """Learns the value of every objective by every critic. With one of each it is PPO's."""

    @property
    def _settings(self) -> LanguageWeave:
        settings: LanguageWeave = self.config.algorithm
        return settings

    @override
    def _make_targets(self, work: LanguageWork, rewards: Column, scores: Mapping[str, Column]) -> dict[str, Column]:
        settings = self._settings
        if settings.critics == 1 and not settings.objectives:
            return super()._make_targets(work, rewards, scores)
        objectives = max(1, len(settings.tree.leaves))
        values = [value_T.reshape(len(value_T), settings.critics, objectives) for value_T in scores["value_K"]]
        doubts = scores.get(DOUBT, [np.zeros_like(value_TMH) for value_TMH in values])
        woven = [self._woven(*pair) for pair in zip(values, doubts, strict=True)]
        paid = [reward_T.reshape(len(reward_T), objectives) for reward_T in rewards]
        made = [self._estimate(work, _of(paid, h), _of(woven, h)) for h in range(objectives)]
        returns = [np.stack(each, -1) for each in zip(*(one.returns or () for one in made), strict=True)]
        for h in range(objectives):
            self._explain(work, _of(woven, h), _of(returns, h))
        columns: dict[str, Column] = {
            ADVANTAGE: compare_preferred(work, paid, settings.tree.shares_GH)
            if settings.baseline == "group"
            else self._weigh_advantages(work, [one.advantages for one in made]),
            VALUE: [value_TMH.reshape(len(value_TMH), -1) for value_TMH in values],
            RETURN: returns,
        }
        return columns if settings.critics == 1 else columns | self._judge_critics(work, values, returns)

    def _weigh_advantages(self, work: LanguageWork, advantages: list[list[NDArray[np.float64]]]) -> Column:
        """Â = (Σ βₕ Âₕ + Σ λₕ Âₕ) / (1 + Σ λₕ), each normalised by itself; one that never changes teaches nothing."""
        if not self._settings.objectives:
            return advantages[0]
        mask = np.concatenate([sample.mask_T for sample in work.samples])
        tells_H = np.array([has_signal(np.concatenate(one)[mask]) for one in advantages])
        weighed = []
        for index, weight_H in enumerate(_weights(work, self._settings.tree.shares_GH)):
            kept_H = weight_H * tells_H
            weighed.append(sum(weight * one[index] for weight, one in zip(kept_H, advantages, strict=True)))
        return weighed

    @override
    def policy_loss(self, scores: Scores, columns: Mapping[str, Tensor], old_K: Tensor) -> Tensor:
        """PPO's, and a loss for experts that are abandoned, as in `loomrl.algorithms.control.weave_threads`."""
        loss_K = super().policy_loss(scores, columns, old_K)
        if WEIGHTS not in scores:
            return loss_K
        use_K = scores[WEIGHTS].exp().mean(0)
        for k, use in enumerate(use_K):
            self._log(Metric.EXPERT_USE.of(str(k)), use)
        self._log(Metric.EXPERT_IMBALANCE, (use_K * (use_K * len(use_K)).log()).sum())
        least = self._settings.least_use / len(use_K)
        lost: Tensor = loss_K + self._settings.balance * (least / use_K).log().clamp(min=0).sum()
        return lost

    # -- several critics --------------------------------------------------------------------------------------------

    def _woven(self, values_TMH: Floats, doubt_TX: Floats) -> Floats:
        """V = Σ αⱼVⱼ / Z with αⱼ = 1 / σ²ⱼ(s), lowered for disagreement."""
        if values_TMH.shape[1] == 1:
            return values_TMH[:, 0]
        trust_TMH = np.exp(-self._variances(torch.from_numpy(doubt_TX)).cpu().numpy().reshape(values_TMH.shape))
        woven_TH = (values_TMH * trust_TMH).sum(1) / trust_TMH.sum(1)
        lowered_TH: Floats = woven_TH - self._settings.pessimism * values_TMH.std(1, ddof=1)
        return lowered_TH

    def _variances(self, doubt: Tensor) -> Tensor:
        """log σ²: of the usual error, and of how much more or less is expected here."""
        usual_X = self._own.errors_X.to(doubt.device).clamp(min=NO_ERROR).log()
        variances: Tensor = usual_X + doubt.clamp(-MOST_DOUBT, MOST_DOUBT)
        return variances

    def _judge_critics(self, work: LanguageWork, values: list[Floats], returns: list[Floats]) -> dict[str, Column]:
        """Errors of critics on attempts that none has learnt from, and the share of attempts that each learns from."""
        settings = self._settings
        mask = np.concatenate([sample.mask_T for sample in work.samples])
        wrong = [np.square(v - r[:, None]).reshape(len(v), -1) for v, r in zip(values, returns, strict=True)]
        usual_X = torch.from_numpy(np.concatenate(wrong)[mask].mean(0)).to(self._own.errors_X)
        memory = settings.trust_memory
        self._own.errors_X.copy_(memory * self._own.errors_X + (1 - memory) * usual_X)
        self._log(Metric.VALUE_DISAGREEMENT, torch.from_numpy(np.concatenate(values)[mask].std(1, ddof=1)))
        # Drawn from the groups' names, so that all learners draw alike, and a resumed run draws again what it drew.
        rng = np.random.default_rng(zlib.crc32("\n".join(work.groups).encode()))
        share_NM = (rng.random((len(values), settings.critics)) < settings.critic_share) / settings.critic_share
        shares = [np.broadcast_to(share_M, (len(v), len(share_M))) for v, share_M in zip(values, share_NM, strict=True)]
        return {WRONG: wrong, SHARE: shares}

    @override
    def _value_loss(self, scores: Scores, columns: Mapping[str, Tensor]) -> Tensor:
        settings = self._settings
        if settings.critics == 1 and not settings.objectives:
            return super()._value_loss(scores, columns)
        shape = (-1, settings.critics, max(1, len(settings.tree.leaves)))
        old_KMH = columns[VALUE].view(shape)
        returns_K1H = columns[RETURN][:, None]
        loss_KMH: Tensor = value_loss(scores["value_K"].view(shape), old_KMH, returns_K1H, clip=settings.value_clip)
        if settings.critics == 1:
            return loss_KMH.mean((1, 2))
        loss_K = (loss_KMH * columns[SHARE][:, :, None]).mean((1, 2))
        return loss_K + self._doubt_loss(scores[DOUBT], columns[WRONG])

    def _doubt_loss(self, doubt_KX: Tensor, wrong_KX: Tensor) -> Tensor:
        """½ (e² / σ² + log σ²) of errors that are clipped, so that one outlier cannot undo many others."""
        variance_KX = self._variances(doubt_KX)
        surprise_KX = wrong_KX / variance_KX.exp()
        self._log(Metric.VALUE_CALIBRATION, surprise_KX)
        surprise_KX = torch.where(surprise_KX < MOST_SURPRISE, surprise_KX, MOST_SURPRISE)
        return 0.5 * (surprise_KX + variance_KX).mean(1)


def compare_preferred(work: LanguageWork, paid: Column, shares_GH: Shares) -> list[NDArray[np.float64]]:
    """Advantages of what the preference makes of the rewards, `[T, H]` of each sample, within the groups."""
    weights = _weights(work, shares_GH)
    rewards = [paid_TH @ weight_H for paid_TH, weight_H in zip(paid, weights, strict=True)]
    masks = [sample.mask_T for sample in work.samples]
    attempts = attempts_of(work.samples)
    # GRPO's advantages: no positive factor of a group's rewards changes them.
    relative = partial(estimate, GRPO())
    return over_attempts(relative, rewards, masks, groups=work.groups, values=None, attempts=attempts).advantages


def _weights(work: LanguageWork, shares_GH: Shares) -> list[Floats]:
    """For each sample the weight of every objective that is paid, (βₕ + λₕ) / (1 + Σ λₕ)."""
    tree_GH = np.array(shares_GH)
    held_G = np.array(work.multipliers)
    return [(np.array(sample.preference) + held_G) @ tree_GH / (1 + held_G.sum()) for sample in work.samples]


def _of(columns: Column, objective: int) -> list[Floats]:
    """This objective's part of columns `[T, H]`."""
    return [column_TH[:, objective] for column_TH in columns]
