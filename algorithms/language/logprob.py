"""Log-probabilities and entropies of sampled tokens, without holding the logits of all tokens at once.

Axes: `_K` a flat list of tokens, `_H` hidden size, `_V` vocabulary.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

LOGITS_AT_ONCE = 1 << 24
"""Float32 numbers: 64 MiB."""

Head = Callable[[Tensor], Tensor]


def chosen_logprobs(
    hidden_KH: Tensor, head: Head, target_K: Tensor, *, temperature: float = 1.0, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """Each token's log-probability and the entropy of its distribution, both float32 and differentiable.

    Beyond one chunk of tokens, the backward pass recomputes the logits of each chunk in place of keeping them. None
    makes chunks of `LOGITS_AT_ONCE`.
    """
    if chunk is None:
        with torch.no_grad():
            chunk = max(1, LOGITS_AT_ONCE // head(hidden_KH[:1]).shape[-1])
    if len(target_K) <= chunk:
        return _chunk(hidden_KH, head, target_K, temperature)
    parts = [
        checkpoint(_chunk, hidden, head, target, temperature, use_reentrant=False)
        for hidden, target in zip(torch.split(hidden_KH, chunk), torch.split(target_K, chunk), strict=True)
    ]
    logp, entropy = zip(*parts, strict=True)
    return torch.cat(logp), torch.cat(entropy)


def _chunk(hidden_KH: Tensor, head: Head, target_K: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    logits_KV = head(hidden_KH).float()
    tempered_KV = logits_KV if temperature == 1 else logits_KV / temperature
    logp_K, entropy_K = _Chosen.apply(tempered_KV, target_K)  # type: ignore[no-untyped-call]
    return logp_K, entropy_K


class _Chosen(torch.autograd.Function):
    """Log-softmax at the target, and its entropy, keeping one tensor for the backward pass: twice as fast as autograd.

    With p the softmax and H the entropy, the gradients are `[v = target] - p_v` and `-p_v (log p_v + H)`.
    """

    @staticmethod
    def forward(ctx: Any, logits_KV: Tensor, target_K: Tensor) -> tuple[Tensor, Tensor]:
        """The log-probability of each target, and each entropy."""
        logp_KV = torch.log_softmax(logits_KV, dim=-1)
        entropy_K = -torch.linalg.vecdot(logp_KV.exp(), logp_KV)
        ctx.save_for_backward(logp_KV, target_K, entropy_K)
        return logp_KV.gather(-1, target_K[:, None])[:, 0], entropy_K

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """The gradient of the logits."""
        by_logp_K, by_entropy_K = gradients
        logp_KV, target_K, entropy_K = ctx.saved_tensors
        slope_KV = (logp_KV + entropy_K[:, None]).mul_(by_entropy_K[:, None]).add_(by_logp_K[:, None])
        gradient_KV = slope_KV.mul_(logp_KV.exp()).neg_()
        return gradient_KV.scatter_add_(-1, target_K[:, None], by_logp_K[:, None]), None
