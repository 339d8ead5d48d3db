"""A language model's scores of given tokens, in one forward pass. Tensors only: no Ray, no RLlib.

Axes: `_BT` rows of packed tokens, `_K` chosen positions (one per action token), `_H` hidden size.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from loomrl.algorithms.language.logprob import chosen_logprobs
from loomrl.inference.experts import ExpertHead

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
