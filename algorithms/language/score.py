"""A language model's scores of given tokens, in one forward pass. Tensors only: no Ray, no RLlib.

Axes: `_BT` rows of packed tokens, `_K` chosen positions (one per action token), `_H` hidden size.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from loomrl.inference.experts import ExpertHead

LOGITS_AT_ONCE = {"cpu": 1 << 24, "cuda": 1 << 28}
"""Float32 numbers by kind of device: 64 MiB, or 1 GiB where each chunk costs the launch of its kernels."""

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
            chunk = max(1, LOGITS_AT_ONCE[hidden_KH.device.type] // head(hidden_KH[:1]).shape[-1])
    if len(target_K) <= chunk:
        return _chunk(hidden_KH, head, target_K, temperature)
    parts = [
        checkpoint(_chunk, hidden, head, target, temperature, use_reentrant=False)
        for hidden, target in zip(torch.split(hidden_KH, chunk), torch.split(target_K, chunk), strict=True)
    ]
    logp, entropy = zip(*parts, strict=True)
    return torch.cat(logp), torch.cat(entropy)


def _chunk(hidden_KH: Tensor, head: Head, target_K: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    logits_KV = head(hidden_KH)
    tempered_KV = logits_KV if temperature == 1 else logits_KV.float() / temperature
    logp_K, entropy_K = _Chosen.apply(tempered_KV, target_K)  # type: ignore[no-untyped-call]
    return logp_K, entropy_K


class _Chosen(torch.autograd.Function):
    """Log-softmax at the target, and its entropy, in float32; for the backward pass one tensor is kept.

    It takes the time of its reads and writes, so it passes over as few tensors as it can. With p the softmax and H the
    entropy, the gradients are `[v = target] - p_v` and `-p_v (log p_v + H)`.
    """

    @staticmethod
    def forward(ctx: Any, logits_KV: Tensor, target_K: Tensor) -> tuple[Tensor, Tensor]:
        """The log-probability of each target, and each entropy."""
        logp_KV = torch.log_softmax(logits_KV, dim=-1, dtype=torch.float32)
        entropy_K = -torch.linalg.vecdot(logp_KV.exp(), logp_KV)
        ctx.save_for_backward(logp_KV, target_K, entropy_K)
        ctx.set_materialize_grads(False)
        ctx.dtype = logits_KV.dtype
        return logp_KV.gather(-1, target_K[:, None])[:, 0], entropy_K

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor, None]:
        """The gradient of the logits."""
        by_logp_K, by_entropy_K = gradients
        logp_KV, target_K, entropy_K = ctx.saved_tensors
        p_KV = logp_KV.exp()
        by_logp_K = torch.zeros_like(entropy_K) if by_logp_K is None else by_logp_K
        if by_entropy_K is None:
            gradient_KV = p_KV.mul_(-by_logp_K[:, None])
        else:
            offset_K = by_entropy_K * entropy_K + by_logp_K
            gradient_KV = torch.addcmul(-offset_K[:, None], logp_KV, by_entropy_K[:, None], value=-1).mul_(p_KV)
        return gradient_KV.scatter_add_(-1, target_K[:, None], by_logp_K[:, None]).to(ctx.dtype), None


Scores = dict[str, Tensor]
"""`logp_K`, `entropy_K`, and what there are heads for: `value_K` (`[K, X]` of X values), `doubt_K`, and
`log_weights_K` of experts.
"""


def score(
    lm: PreTrainedModel,
    batch: Mapping[str, Any],
    *,
    temperature: float = 1.0,
    value: nn.Module | None = None,
    doubt: nn.Module | None = None,
) -> Scores:
    """Log-probability, entropy and value at each chosen position; `batch` is made by `inputs` from a packed one.

    If it has `embeds_BTH`, they replace the ids.
    """
    embeds_BTH = batch.get("embeds_BTH")
    hidden_BTH = lm.base_model(
        **({"input_ids": batch["ids_BT"]} if embeds_BTH is None else {"inputs_embeds": embeds_BTH}),
        attention_mask=batch["attention"],
        position_ids=batch["positions_BT"],
        use_cache=False,
        **({} if batch.get("reading") is None else {"reading": batch["reading"]}),
    ).last_hidden_state
    hidden_KH = hidden_BTH[batch["row_K"], batch["column_K"]]
    target_K = batch["target_K"]
    head = lm.get_output_embeddings()
    logp_K, entropy_K = chosen_logprobs(hidden_KH, head, target_K, temperature=temperature)
    scores = {"logp_K": logp_K, "entropy_K": entropy_K}
    if isinstance(head, ExpertHead):
        scores["log_weights_K"] = head.log_weights(hidden_KH)
    if value is not None:
        scores["value_K"] = value(hidden_KH.float()).squeeze(-1)
    if doubt is not None:
        scores["doubt_K"] = doubt(hidden_KH.detach().float())
    return scores
