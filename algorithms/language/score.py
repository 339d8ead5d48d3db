"""A language model's scores of given tokens, in one forward pass. Tensors only: no Ray, no RLlib.

Axes: `_BT` rows of packed tokens, `_K` chosen positions (one per action token), `_H` hidden size.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from loomrl.algorithms.language.logprob import chosen_logprobs

Scores = dict[str, Tensor]
"""`logp_K`, `entropy_K`, and `value_K` if there is a value head."""


def score(
    lm: PreTrainedModel,
    batch: Mapping[str, Any],
    *,
    temperature: float = 1.0,
    value: nn.Module | None = None,
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
    hidden_KH, target_K = hidden_BTH[batch["row_K"], batch["column_K"]], batch["target_K"]
    logp_K, entropy_K = chosen_logprobs(hidden_KH, lm.get_output_embeddings(), target_K, temperature=temperature)
    scores = {"logp_K": logp_K, "entropy_K": entropy_K}
    if value is not None:
        scores["value_K"] = value(hidden_KH.float()).squeeze(-1)
    return scores
