"""Losses per action, be it a token or a step. Pure functions of tensors.

Axes: `_K` a flat list of actions.
"""

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

if TYPE_CHECKING:
    from loomrl.config import Clip

FARTHEST = 20.0
"""Log-ratios are clamped at this value, which keeps their exponentials finite."""


def policy_loss(logp_K: Tensor, old_logp_K: Tensor, advantage_K: Tensor, *, clip: "Clip") -> tuple[Tensor, Tensor]:
    """PPO's clipped surrogate, and the actions whose gradient the clip removes."""
    ratio_K = (logp_K - old_logp_K).clamp(-FARTHEST, FARTHEST).exp()
    free_K = -advantage_K * ratio_K
    bounded_K = -advantage_K * ratio_K.clamp(1 - clip.low, 1 + clip.high)
    loss_K = torch.maximum(free_K, bounded_K)
    clipped_K = bounded_K > free_K
    if clip.dual is None:
        return loss_K, clipped_K
    runaway_K = (advantage_K < 0) & (ratio_K > clip.dual)
    return torch.where(runaway_K, -advantage_K * clip.dual, loss_K), clipped_K | runaway_K


def cispo_loss(logp_K: Tensor, old_logp_K: Tensor, advantage_K: Tensor, *, clip: "Clip") -> tuple[Tensor, Tensor]:
    """REINFORCE weighted by the ratio, cut to the range of `clip` and without gradient; and the tokens that are cut."""
    ratio_K = (logp_K - old_logp_K).detach().clamp(max=FARTHEST).exp()
    weight_K = ratio_K.clamp(1 - clip.low, 1 + clip.high)
    return -weight_K * advantage_K * logp_K, weight_K != ratio_K


def value_loss(value_K: Tensor, old_value_K: Tensor, returns_K: Tensor, *, clip: float | None) -> Tensor:
    """Half the squared error; a value further than `clip` from the old one counts as if it were at that distance."""
    error_K = (value_K - returns_K).square()
    if clip is not None:
        near_K = old_value_K + (value_K - old_value_K).clamp(-clip, clip)
        error_K = torch.maximum(error_K, (near_K - returns_K).square())
    return 0.5 * error_K


def kl_estimate(logp_K: Tensor, reference_logp_K: Tensor, *, estimator: Literal["k1", "k2", "k3"]) -> Tensor:
    """KL(policy, reference) from actions that the policy sampled; k1 and k3 are unbiased, k2 and k3 never negative."""
    behind_K = (reference_logp_K - logp_K).clamp(-FARTHEST, FARTHEST)
    match estimator:
        case "k1":
            return -behind_K
        case "k2":
            return 0.5 * behind_K.square()
        case "k3":
            return behind_K.exp() - 1 - behind_K
