"""A tiny model that vLLM's kernels take, and how far engines are off what it says."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sample_models import logprobs, tiny_model
from transformers import PreTrainedModel

from loomrl.inference.engine import Completion, Request
from loomrl.inference.open import Opening

TOLERANCE = 1e-4


def model(seed: int) -> PreTrainedModel:
    """Heads as wide as vLLM wants them."""
    return tiny_model(seed=seed, head_dim=32)


def opening(folder: Path) -> Opening:
    """Of the model that is saved there."""
    return Opening(origin=folder, context=192, slots=16)


def drift(model: PreTrainedModel, asked: Sequence[Request], got: Sequence[Completion]) -> float:
    """The largest distance of a log-probability from what the model says."""
    pairs = zip(asked, got, strict=True)
    return max(float(np.abs(logprobs(model, one, answer.ids_T) - answer.logprobs_T).max()) for one, answer in pairs)
