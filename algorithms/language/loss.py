"""What to minimise: one loss per token (or pair), and how they are averaged. Pure functions of tensors.

Axes: `_K` a flat list of tokens, `_N` samples, `_P` pairs.

A step's loss is `(weight_K * loss_K).sum()`, added up over its micro-batches and learners: the weights carry the
denominators of the whole step. DDP averages the gradients of its ranks, so there the sum is multiplied by their number.
"""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from loomrl.config.language import Clip

FARTHEST = 20.0
"""Log-ratios beyond this teach nothing; it keeps their exponentials finite."""


def policy_loss(logp_K: Tensor, old_logp_K: Tensor, advantage_K: Tensor, *, clip: Clip) -> tuple[Tensor, Tensor]:
    """PPO's clipped surrogate, and which tokens the clip keeps from teaching."""
    ratio_K = (logp_K - old_logp_K).clamp(-FARTHEST, FARTHEST).exp()
    free_K = -advantage_K * ratio_K
    bounded_K = -advantage_K * ratio_K.clamp(1 - clip.low, 1 + clip.high)
    loss_K, clipped_K = torch.maximum(free_K, bounded_K), bounded_K > free_K
    if clip.dual is None:
        return loss_K, clipped_K
    runaway_K = (advantage_K < 0) & (ratio_K > clip.dual)
    return torch.where(runaway_K, -advantage_K * clip.dual, loss_K), clipped_K | runaway_K


def value_loss(value_K: Tensor, old_value_K: Tensor, returns_K: Tensor, *, clip: float | None) -> Tensor:
    """Half the squared error; a value that is farther than `clip` from the old one counts as if it were there."""
    error_K = (value_K - returns_K).square()
    if clip is not None:
        near_K = old_value_K + (value_K - old_value_K).clamp(-clip, clip)
        error_K = torch.maximum(error_K, (near_K - returns_K).square())
    return 0.5 * error_K


def kl_estimate(logp_K: Tensor, reference_logp_K: Tensor, *, estimator: Literal["k1", "k2", "k3"]) -> Tensor:
    """KL(policy, reference) from tokens that the policy sampled; k1 and k3 are unbiased, k2 and k3 never negative."""
    behind_K = (reference_logp_K - logp_K).clamp(-FARTHEST, FARTHEST)
    match estimator:
        case "k1":
            return -behind_K
        case "k2":
            return 0.5 * behind_K.square()
        case "k3":
            return behind_K.exp() - 1 - behind_K


def importance_weight(old_logp_K: Tensor, engine_logp_K: Tensor, *, cap: float) -> Tensor:
    """How much likelier the learner's policy made a token than the engine that drew it, at most `cap`; no gradient."""
    return (old_logp_K - engine_logp_K).detach().clamp(max=FARTHEST).exp().clamp(max=cap)


def dpo_loss(
    chosen_P: Tensor,
    rejected_P: Tensor,
    chosen_reference_P: Tensor,
    rejected_reference_P: Tensor,
    *,
    beta: float,
    label_smoothing: float,
) -> tuple[Tensor, Tensor]:
    """DPO from the log-probabilities of whole answers, and by how much the chosen one is preferred (no gradient)."""
    margin_P = beta * ((chosen_P - chosen_reference_P) - (rejected_P - rejected_reference_P))
    loss_P = -(1 - label_smoothing) * logsigmoid(margin_P) - label_smoothing * logsigmoid(-margin_P)
    return loss_P, margin_P.detach()


def sum_by_sample(per_token_K: Tensor, sample_K: Tensor, *, samples: int) -> Tensor:
    """The sum of each sample's tokens (`_N`); `sample_K` says whose token it is."""
    return per_token_K.new_zeros(samples).index_add(0, sample_K, per_token_K)


def token_weights(
    targets_N: NDArray[np.int64], *, average: Literal["token", "sequence"], tokens: int, samples: int
) -> NDArray[np.float32]:
    """What every token of each sample weighs, so that a step's weights sum to one.

    `targets_N` counts each sample's tokens that are learnt; `tokens` and `samples` are the totals of the whole step,
    over micro-batches and learners, of those and of the samples that have any.
    """
    if average == "token":
        return np.full(len(targets_N), 1 / max(tokens, 1), np.float32)
    return (1 / (np.maximum(targets_N, 1) * max(samples, 1))).astype(np.float32)
