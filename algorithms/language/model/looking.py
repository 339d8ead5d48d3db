"""The input of a model with vision: embeddings, with pictures in their places. Axes as in `packing`."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from loomrl.inference.vision import Vision, embed_pictures, features


def looked_at(lm: PreTrainedModel, vision: Vision, batch: Mapping[str, Any]) -> Tensor:
    """Embeddings [B, T, H] of a packed micro-batch.

    Without a picture the vision tower still runs on a blank one: learners exchange gradients of all weights at once,
    and each of them must have some.
    """
    ids_BT = batch["ids_BT"]
    pictures = batch["pictures"]
    if pictures:
        row_M, column_M = torch.nonzero((ids_BT == vision.image_token) & batch["shown_BT"], as_tuple=True)
        return embed_pictures(lm, ids_BT, (row_M, column_M), [vision.seen(picture) for picture in pictures])
    words_BTH: Tensor = lm.get_input_embeddings()(ids_BT)
    return words_BTH + 0 * features(lm, [vision.nothing]).sum() if torch.is_grad_enabled() else words_BTH
