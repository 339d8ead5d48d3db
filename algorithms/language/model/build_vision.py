"""A small untrained policy with vision from settings: an Idefics3, its tokenizer and its processor."""

from collections.abc import Iterable
from copy import deepcopy

import torch
from transformers import Idefics3Config, Idefics3ForConditionalGeneration, Idefics3Processor, PreTrainedTokenizerFast

from loomrl.algorithms.language.model.build import SPECIAL, build_tokenizer, text_config
from loomrl.config import Architecture
from loomrl.config.language import Eyes
from loomrl.errors import ConfigError
from loomrl.inference.vision import Vision

IMAGE = "<image>"
SEEING = (IMAGE, "<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
"""The names are fixed by Idefics3."""
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>"
    "{% for part in m.content %}{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor %}"
    "<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def build_seeing_tokenizer(texts: Iterable[str], *, vocabulary: int) -> PreTrainedTokenizerFast:
    """`build_tokenizer` with the tokens for pictures."""
    special = (*SPECIAL[:-1], *SEEING, SPECIAL[-1])
    return build_tokenizer(texts, vocabulary=vocabulary, special=special, template=TEMPLATE)


def build_vision(eyes: Eyes, tokenizer: PreTrainedTokenizerFast) -> Vision:
    """The processor of such a model: every picture whole, at one size. It needs Pillow, but not torchvision."""
    try:
        from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

        edge = {"longest_edge": eyes.image_size}
        pictures = Idefics3ImageProcessorPil(do_image_splitting=False, size=edge, max_image_size=edge)
    except ImportError as error:
        raise ConfigError(
            f"model.build.vision: pictures are read with Pillow ({error}). Install: pip install 'loomrl[vision]'."
        ) from None
    own = deepcopy(tokenizer)  # the processor changes which of its tokens are special
    processor = Idefics3Processor(pictures, own, image_seq_len=eyes.tokens)
    return Vision(processor, tokenizer.get_vocab()[IMAGE])


def build_seeing_model(
    architecture: Architecture, eyes: Eyes, tokenizer: PreTrainedTokenizerFast, *, context: int, seed: int
) -> Idefics3ForConditionalGeneration:
    """An Idefics3 of that shape for that tokenizer, in float32. Equal seeds give equal weights."""
    text = text_config(architecture, tokenizer, context=context)
    config = Idefics3Config(
        text_config=text.to_dict(),
        vision_config={
            "hidden_size": eyes.hidden_size,
            "intermediate_size": eyes.intermediate_size,
            "num_hidden_layers": eyes.layers,
            "num_attention_heads": eyes.heads,
            "image_size": eyes.image_size,
            "patch_size": eyes.patch_size,
            "initializer_range": eyes.hidden_size**-0.5,
        },
        scale_factor=eyes.shuffle,
        image_token_id=tokenizer.get_vocab()[IMAGE],
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Idefics3ForConditionalGeneration(config)


def build_seeing(
    architecture: Architecture, texts: Iterable[str], *, context: int, seed: int
) -> tuple[Idefics3ForConditionalGeneration, PreTrainedTokenizerFast, Vision]:
    """Model, tokenizer and vision of an architecture that has one."""
    assert architecture.vision is not None
    tokenizer = build_seeing_tokenizer(texts, vocabulary=architecture.vocabulary)
    model = build_seeing_model(architecture, architecture.vision, tokenizer, context=context, seed=seed)
    return model, tokenizer, build_vision(architecture.vision, tokenizer)
