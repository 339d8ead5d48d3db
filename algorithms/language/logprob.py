"""Log-probabilities and entropies of sampled tokens, without ever holding logits of all tokens at once.

Axes: `_K` a flat list of tokens, `_H` hidden size, `_V` vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

LOGITS_AT_ONCE = 1 << 24
"""Float32 numbers: 64 MiB."""

Head = Callable[[Tensor], Tensor]


def chosen_logprobs(
    hidden_KH: Tensor, head: Head, target_K: Tensor, *, temperature: float = 1.0, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """Of each token: its log-probability and the entropy of its whole distribution, both float32 and with gradient.

    With more than one chunk of tokens the logits of each are computed again in the backward pass. None makes chunks of
    `LOGITS_AT_ONCE`.
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
    logp_KV = torch.log_softmax(head(hidden_KH).float() / temperature, dim=-1)
    return logp_KV.gather(-1, target_K[:, None])[:, 0], -(logp_KV.exp() * logp_KV).sum(-1)
