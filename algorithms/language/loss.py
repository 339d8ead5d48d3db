"""Losses of token policies only, and how token losses are averaged. Pure functions of tensors.

Axes: `_K` a flat list of tokens, `_N` samples, `_P` pairs.

A step's loss is `(weight_K * loss_K).sum()`, added up over its micro-batches and learners: the weights carry the
denominators of the whole step. DDP averages the gradients of its ranks, so there the sum is multiplied by their number.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from loomrl.algorithms.losses import FARTHEST
from loomrl.errors import LearnerError


def importance_weight(old_logp_K: Tensor, engine_logp_K: Tensor, *, cap: float) -> Tensor:
    """The ratio of the learner's to the sampling engine's probability of a token, at most `cap`; no gradient."""
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
    """DPO from the log-probabilities of whole answers, and the margin of the chosen one (no gradient)."""
    margin_P = beta * ((chosen_P - chosen_reference_P) - (rejected_P - rejected_reference_P))
    loss_P = -(1 - label_smoothing) * logsigmoid(margin_P) - label_smoothing * logsigmoid(-margin_P)
    return loss_P, margin_P.detach()


def kto_loss(gain_N: Tensor, label_N: Tensor, *, kl: float, beta: float) -> tuple[Tensor, Tensor]:
    """KTO, and by how much each answer is on its side of the baseline (no gradient).

    `gain_N` is the log-probability of a whole answer beyond the reference policy's; `label_N` its weight, negative if
    it is undesirable; `kl` the gain that answers have on average, estimated from mismatched ones.
    """
    margin_N = beta * (gain_N - kl) * label_N.sign()
    return label_N.abs() * (1 - margin_N.sigmoid()), margin_N.detach()


def sum_by_sample(per_token_K: Tensor, sample_K: Tensor, *, samples: int) -> Tensor:
    """The sum over each sample's tokens (`_N`); `sample_K` is the sample of each token."""
    return per_token_K.new_zeros(samples).index_add(0, sample_K, per_token_K)


def mean_by_sample(per_token_K: Tensor, sample_K: Tensor) -> Tensor:
    """For each token the mean over its sample's tokens."""
    samples = int(sample_K.max()) + 1 if len(sample_K) else 0
    count_N = sample_K.bincount(minlength=samples).clamp(min=1)
    return (sum_by_sample(per_token_K, sample_K, samples=samples) / count_N)[sample_K]


def per_token(loss_K: Tensor, logp_K: Tensor, learner: object) -> Tensor:
    """The loss unchanged, or a LearnerError if a learner's `policy_loss` returned anything but one number per token."""
    if loss_K.shape == logp_K.shape:
        return loss_K
    raise LearnerError(
        f"{type(learner).__name__}.policy_loss made numbers of shape {tuple(loss_K.shape)} for {len(logp_K)} action "
        "tokens: return one per token. The learner averages them itself (algorithm.average)."
    )


def token_weights(
    targets_N: NDArray[np.int64],
    *,
    average: Literal["token", "sequence"],
    tokens: int,
    samples: float,
    shares_N: Sequence[float] = (),
) -> NDArray[np.float32]:
    """The weight of every token of each sample, such that a step's weights sum to one.

    `targets_N` counts each sample's trained tokens; `tokens` and `samples` are the totals of the whole step, over
    micro-batches and learners, of those tokens and of the samples that have any. `shares_N` are less than 1 for the
    threads of one attempt, which together count as one sample; without them each sample is an attempt.
    """
    if average == "token":
        return np.full(len(targets_N), 1 / max(tokens, 1), np.float32)
    share_N = np.array(shares_N or 1.0)
    return (share_N / (np.maximum(targets_N, 1) * (samples or 1))).astype(np.float32)
