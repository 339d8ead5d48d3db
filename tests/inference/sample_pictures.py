"""Pictures, and tiny models that see them, for tests."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from loomrl.algorithms.language.build import build_seeing_model, build_seeing_tokenizer, build_vision
from loomrl.config import Architecture, Sampling
from loomrl.config.language import Eyes
from loomrl.inference.engine import Completion, Request
from loomrl.inference.model import save_model
from loomrl.inference.vision import Vision
from loomrl.picture import to_png

EYES = Eyes(image_size=32, hidden_size=32, intermediate_size=64, heads=2)
SHAPE = Architecture(hidden_size=64, intermediate_size=96, layers=2, heads=2, vocabulary=320, vision=EYES)


def noise(seed: int, size: int = 32) -> bytes:
    """A picture of random pixels."""
    return to_png(np.random.default_rng(seed).integers(0, 256, (size, size, 3)).astype(np.uint8))


def seeing_tokenizer() -> PreTrainedTokenizerFast:
    return build_seeing_tokenizer(["What colour is the shape?"] * 9, vocabulary=SHAPE.vocabulary)


def seeing_model(seed: int = 0) -> tuple[PreTrainedModel, Vision]:
    tokenizer = seeing_tokenizer()
    model = build_seeing_model(SHAPE, EYES, tokenizer, context=192, seed=seed).eval()
    return model, build_vision(EYES, tokenizer)


def save_seeing_model(folder: Path, seed: int = 0) -> None:
    model, vision = seeing_model(seed)
    save_model(model, seeing_tokenizer(), folder, vision=vision)


def seeing_request(
    vision: Vision, pictures: Sequence[bytes], seed: int = 0, *, temperature: float = 1.0, max_tokens: int = 6
) -> Request:
    """Random text around pictures; the image token itself is a word of that text, too."""
    rng = np.random.default_rng(seed)
    ids_T = np.concatenate(
        [rng.integers(0, 200, 4), *([vision.image_token, *rng.integers(0, 200, 3)] for _ in pictures)]
    )
    whole_T, sights = vision.expand(ids_T.astype(np.int32), pictures)
    prompt_T = np.concatenate([whole_T, [vision.image_token, 7]]).astype(np.int32)
    return Request(prompt_T, Sampling(temperature=temperature, max_tokens=max_tokens), frozenset(), seed, sights)


def plain_logprobs(model: PreTrainedModel, vision: Vision, asked: Request, given: Completion) -> NDArray[np.float32]:
    """Log-probabilities of sampled tokens by one forward pass of Hugging Face's; text decides where pictures are."""
    ids_T = np.concatenate([asked.prompt_T, given.ids_T]).astype(np.int64)
    embeds = model.get_input_embeddings()(torch.from_numpy(ids_T)[None]).clone()
    with torch.no_grad():
        for sight in asked.sights:
            seen = vision.seen(sight.picture)
            made = model.model.get_image_features(seen.pixels_ICHW[None], seen.mask_IHW[None], return_dict=True)
            embeds[0, vision.places(sight)] = made.pooler_output[0]
        logits = model(inputs_embeds=embeds, use_cache=False).logits[0]
    logp = torch.log_softmax(logits.float(), -1)[len(asked.prompt_T) - 1 : -1]
    return logp.gather(1, torch.from_numpy(given.ids_T.astype(np.int64))[:, None])[:, 0].numpy()
