"""Opens a network for a model: the fastest one that fits, verified against the model itself."""

import numpy as np
import torch
from transformers import PreTrainedModel

from loomrl.errors import ConfigError
from loomrl.inference.torch.fused import FusedNetwork, is_fusible
from loomrl.inference.torch.network import Network
from loomrl.inference.vision import Vision

TOLERANCE = {torch.float32: 1e-3}
"""Tolerated difference of logits, as a share of the largest; `COARSE` for other dtypes."""
COARSE = 0.05


def open_network(model: PreTrainedModel, *, slots: int, context: int, vision: Vision | None = None) -> Network:
    """A network for a model; a ConfigError if its cached steps differ from the model's own forward pass."""
    if is_fusible(model):
        network: Network = FusedNetwork(model, slots=slots, context=context)
    else:
        network = Network(model, slots=slots, context=context, vision=vision)
    if slots > 1 and context > 6:
        _prove(network)
    return network


@torch.inference_mode()
def _prove(network: Network) -> None:
    """Compare two sequences of different length, read as the engine reads them and in one pass each."""
    model = network.model
    vocabulary = int(model.config.get_text_config().vocab_size)
    whole = [(np.arange(length) * 7 + length).astype(np.int32) % vocabulary for length in (4, 6)]
    network.fill([ids[:-2] for ids in whole], [1, 0], [0, 1])
    for last in (-2, -1):
        ids_N = torch.tensor([whole[1][last], whole[0][last]], device=model.device)
        position_N = torch.tensor([6 + last, 4 + last], device=model.device)
        got_NV = network.step(ids_N.long(), position_N, 7 + last)
    for row, ids in ((0, whole[1]), (1, whole[0])):
        ids_1T = torch.from_numpy(ids).long().to(model.device)[None]
        expected_V = model(input_ids=ids_1T, use_cache=False).logits[0, -1]
        apart = float((got_NV[row] - expected_V).abs().max() / expected_V.abs().max().clamp(min=1))
        if apart > TOLERANCE.get(model.dtype, COARSE):
            raise ConfigError(
                f"model {type(model).__name__}: with cached keys and values its logits are off by {apart:.1%}. "
                "It does not take position_ids, a 4-D mask and a cache as other models do: use another engine."
            )
        network.clear(row)
