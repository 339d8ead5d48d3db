"""A small untrained language policy from settings: a tokenizer fitted to the tasks' texts, a Llama or an Idefics3."""

from collections.abc import Iterable, Sequence
from copy import deepcopy

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3Processor,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from loomrl.config import Architecture
from loomrl.config.language import Eyes
from loomrl.errors import ConfigError
from loomrl.inference.vision import Vision

PAD = "<|pad|>"
END = "<|end|>"
ROLES = ("system", "user", "assistant", "tool")
SPECIAL = (PAD, *(f"<|{role}|>" for role in ROLES), END)
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
BYTES = 256
COMMON = 100
"""A token must occur at least once in this many texts."""


def build_tokenizer(
    texts: Iterable[str], *, vocabulary: int, special: Sequence[str] = SPECIAL, template: str = TEMPLATE
) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with at most `vocabulary` entries. It round-trips every text.

    Every digit is a token of its own, so that numbers can be computed with. Other text may be joined, across words and
    lines, if it occurs once in a hundred texts: a sentence of every task becomes one token, a whole question does not.
    """
    texts = list(texts)
    if vocabulary < BYTES + len(special):
        raise ConfigError(f"vocabulary={vocabulary}: {BYTES} bytes and {len(special)} special tokens need as many.")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex("[0-9]"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=len(texts) // COMMON,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[token for token in special if token not in (PAD, END)],
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


def build_model(
    architecture: Architecture, tokenizer: PreTrainedTokenizerFast, *, context: int, seed: int
) -> LlamaForCausalLM:
    """A Llama of that shape for that tokenizer, in float32. Equal seeds give equal weights.

    The initial standard deviation preserves the size of signals in a layer of this width; the usual 0.02 suits layers
    of thousands and costs a narrow model its first hundreds of steps.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(text_config(architecture, tokenizer, context=context))


def build_reading(
    architecture: Architecture, texts: Iterable[str], *, context: int, seed: int
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast, None]:
    """Model and tokenizer, and no vision."""
    tokenizer = build_tokenizer(texts, vocabulary=architecture.vocabulary)
    return build_model(architecture, tokenizer, context=context, seed=seed), tokenizer, None


def text_config(architecture: Architecture, tokenizer: PreTrainedTokenizerFast, *, context: int) -> LlamaConfig:
    """The configuration of the language part."""
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=architecture.hidden_size,
        intermediate_size=architecture.intermediate_size,
        num_hidden_layers=architecture.layers,
        num_attention_heads=architecture.heads,
        num_key_value_heads=architecture.heads,
        max_position_embeddings=context,
        initializer_range=architecture.hidden_size**-0.5,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )


IMAGE = "<image>"
SEEING = (IMAGE, "<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
"""The names are fixed by Idefics3."""
SEEING_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>"
    "{% for part in m.content %}{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor %}"
    "<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def build_seeing_tokenizer(texts: Iterable[str], *, vocabulary: int) -> PreTrainedTokenizerFast:
    """`build_tokenizer` with the tokens for pictures."""
    special = (*SPECIAL[:-1], *SEEING, SPECIAL[-1])
    return build_tokenizer(texts, vocabulary=vocabulary, special=special, template=SEEING_TEMPLATE)


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
