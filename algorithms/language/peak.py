"""The peak memory of one learner, from its settings and the shape of its model: no Ray, no classes of settings.

The factors of activations are fitted to peaks of real learners, by `tests/algorithms/test_footprint.py`.
"""

from typing import Any

from loomrl.algorithms.language.score import LOGITS_AT_ONCE
from loomrl.inference.footprint import BYTES, ModelShape

HIDDEN = 13.0
INTERMEDIATE = 5.0
KEYS = 4.0
"""Numbers that a layer keeps for a token's backward pass, as multiples of its widths: a sixth of it is what the
allocator cannot use.
"""
NARROW = 2.7
"""Bytes of such a number in bfloat16: norms compute in float32."""
NARROW_ON_GPU = 1.6
"""The same on a GPU, from the one peak that is known: 28.4 GiB of 0.5 B parameters (docs/benchmarks.md)."""
ADDED = 1.2
"""Activations with low-rank additions, in relation to those without."""
AGAIN = 3.5
ADDED_AGAIN = 9.0
"""Layers' worth of activations at the peak of a pass that computes layers twice; with low-rank additions."""
LOGITS = 4.0
"""Copies of a pass's logits at the peak."""
STATES = {"float32": 8.0, "8bit": 2.1}
"""Bytes of AdamW's averages of a number; in 8 bits with their scales."""


def learner_bytes(algorithm: Any, shape: ModelShape, tokens: int, *, reference: bool) -> dict[str, float]:
    """Bytes by part in a pass after the first, with gradients and AdamW's averages there. `algorithm` is settings, or
    what has those of them that are asked for here.
    """
    model = algorithm.model
    learners = algorithm.learners
    number = BYTES[model.dtype]
    own = -(-tokens // learners.sequence_parallel)
    shards = learners.count if learners.sharding == "fsdp" else 1
    whole = shape.parameters / shards
    parts = {}
    if model.lora is None:
        trained = whole
        parts["weights"] = whole * (4 + (0 if number == 4 else number))
        if reference:
            parts["reference policy"] = whole * number
    else:
        trained = shape.adapted * model.lora.rank / shards
        parts["weights"] = whole * number + 4 * trained
    parts["AdamW"] = STATES[algorithm.optimizer.states] * trained
    parts["gradients"] = 4 * trained
    narrow = NARROW_ON_GPU if learners.gpus else NARROW
    kept = 4 if number == 4 else narrow
    layer = kept * (HIDDEN * shape.hidden + INTERMEDIATE * shape.intermediate + KEYS * shape.keys)
    layer *= 1 if model.lora is None else ADDED
    each = layer * shape.layers
    if model.recompute == "selective":
        products = 6.0 * shape.hidden + 2.5 * (shape.intermediate + shape.keys)
        each = min(each, layer + number * products * shape.layers)
    if model.recompute == "full":
        again = AGAIN if model.lora is None else ADDED_AGAIN
        each = layer * min(again, shape.layers) + kept * shape.hidden * shape.layers
    logits = 4 * LOGITS * min(own * shape.vocabulary, LOGITS_AT_ONCE["cuda" if learners.gpus else "cpu"])
    parts["activations"] = own * each + logits
    return parts
