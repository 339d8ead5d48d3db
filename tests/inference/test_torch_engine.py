"""The embedded engine against plain forward passes of the same weights."""

import asyncio

import numpy as np
import pytest
from sample_models import KINDS, answers, logprobs, random_prompt, request, tiny_model

from loomrl.inference.torch_engine import TorchEngine


@pytest.mark.parametrize("kind", KINDS)
def test_reported_logprobs_are_those_of_a_plain_forward_pass(kind: str) -> None:
    model = tiny_model(kind)
    engine = TorchEngine(model, slots=8, context=64)
    asked = [
        request(random_prompt(seed, 1 + 3 * seed), seed=seed, temperature=(0.0, 0.7, 1.0, 1.3)[seed % 4])
        for seed in range(12)
    ]
    for one, completion in zip(asked, asyncio.run(answers(engine, asked)), strict=True):
        assert np.abs(logprobs(model, one, completion.ids_T) - completion.logprobs_T).max() <= 1e-4
