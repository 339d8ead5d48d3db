"""vLLM is shown the same pictures as the embedded engine, without torchvision, and forgets them with old weights."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sample_pictures import noise, plain_logprobs, save_seeing_model, seeing_model, seeing_request
from transformers import PreTrainedModel

from loomrl.config.engine import VllmEngineConfig
from loomrl.inference.engine import Completion, Request
from loomrl.inference.open import Opening
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.vllm.engine import VllmEngine
from loomrl.inference.weights.sealed import seal
from tests.needs import needs

VLLM_WARNS = ("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning", "ignore::ResourceWarning")
pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(600),
    needs("vLLM"),
    *(pytest.mark.filterwarnings(name) for name in VLLM_WARNS),
]
TOLERANCE = 1e-4


@pytest.mark.slow
async def test_both_engines_say_the_same_of_pictures_before_and_after_new_weights(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save_seeing_model(folder)
    first, vision = seeing_model()
    second, _ = seeing_model(5)
    asked = [seeing_request(vision, [noise(s) for s in range(n)], seed) for seed, n in enumerate((1, 2, 0, 1, 2))]
    asked += [seeing_request(vision, [noise(picture)] * 9, 7) for picture in (1, 2, 1)]  # more than a cached block
    long = seeing_request(vision, [noise(0)], 9, max_tokens=120)

    def worst(model: PreTrainedModel, pairs: Sequence[tuple[Request, Completion]]) -> float:
        return max(float(np.abs(plain_logprobs(model, vision, a, g) - g.logprobs_T).max()) for a, g in pairs)

    embedded = TorchEngine(first, slots=4, context=192, vision=vision)
    engine = await VllmEngine.open(
        VllmEngineConfig(), Opening(origin=folder, context=192, slots=8), log=tmp_path / "log"
    )
    try:
        served = await asyncio.gather(*map(engine.generate, asked))
        assert worst(first, list(zip(asked, served, strict=True))) < TOLERANCE
        ours = await asyncio.gather(*map(embedded.generate, asked))
        assert worst(first, list(zip(asked, ours, strict=True))) < TOLERANCE
        open_request = asyncio.ensure_future(engine.generate(long))
        await asyncio.sleep(0.2)
        await engine.load(seal(dict(second.state_dict()), 1))
        renewed = await asyncio.gather(*map(engine.generate, asked))
        assert worst(second, list(zip(asked, renewed, strict=True))) < TOLERANCE
        across = await open_request
        new = across.versions_T == 1
        assert new.any(), "the request was to be open while the weights came"
        assert np.abs(plain_logprobs(second, vision, long, across) - across.logprobs_T)[new].max() < TOLERANCE
    finally:
        await engine.close()
