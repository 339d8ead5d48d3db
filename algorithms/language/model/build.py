"""A small untrained language policy from settings: a tokenizer fitted to the tasks' texts, and a Llama."""

from collections.abc import Iterable, Sequence

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from loomrl.config import Architecture
from loomrl.errors import ConfigError

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
