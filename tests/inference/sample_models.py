"""A tiny tokenizer and tiny models, made on the spot, and what a plain forward pass says about their tokens."""

import asyncio
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from loomrl.config import Sampling
from loomrl.inference.engine import Completion, Request

VOCABULARY = 300
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")


def tiny_tokenizer(template: str | None = TEMPLATE) -> PreTrainedTokenizerFast:
    """Bytes, a few merges, and the special tokens of the template."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[AddedToken(name, special=True, normalized=False) for name in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(["What is 1 + 1? The answer is two. What is the answer?"] * 4, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|end|>",
        pad_token="<|end|>",
        additional_special_tokens=list(SPECIAL[1:]),
        chat_template=template,
    )


def tiny_model(kind: str = "llama", *, seed: int = 0, scale: float = 0.3, head_dim: int = 8) -> PreTrainedModel:
    """A model with random weights, large enough that its distributions are far from flat."""
    torch.manual_seed(seed)
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 256,
        "initializer_range": scale,
        "attn_implementation": "sdpa",
    }
    if kind == "gpt2":
        config = GPT2Config(
            vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=256, initializer_range=scale,
            bos_token_id=0, eos_token_id=0, attn_implementation="sdpa",
        )  # fmt: skip
        return GPT2LMHeadModel(config).eval()
    if kind == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**sizes, num_key_value_heads=2, tie_word_embeddings=True)).eval()
    if kind == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**sizes, num_key_value_heads=2, head_dim=16)).eval()
    if kind == "olmo2":
        return Olmo2ForCausalLM(Olmo2Config(**sizes, num_key_value_heads=2)).eval()
    if kind == "mistral":
        return MistralForCausalLM(MistralConfig(**sizes, num_key_value_heads=2, sliding_window=16)).eval()
    return LlamaForCausalLM(
        LlamaConfig(**sizes, num_key_value_heads=4, head_dim=head_dim, tie_word_embeddings=False)
    ).eval()


KINDS = ("llama", "qwen2", "qwen3", "olmo2", "gpt2")


def request(
    prompt: Sequence[int] | np.ndarray, *, seed: int = 0, stop: Iterable[int] = (), **sampling: float
) -> Request:
    """A request with little ceremony."""
    return Request(np.asarray(prompt, np.int32), Sampling(**{"max_tokens": 16, **sampling}), frozenset(stop), seed)


def random_prompt(seed: int, length: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).astype(np.int32)


def logits(model: PreTrainedModel, asked: Request, ids: np.ndarray) -> torch.Tensor:
    """Of the positions at which `ids` were sampled, by one plain forward pass over the whole sequence."""
    whole = torch.tensor(np.concatenate([asked.prompt_T, ids]), dtype=torch.long)[None]
    with torch.inference_mode():
        return model(input_ids=whole, use_cache=False).logits[0, len(asked.prompt_T) - 1 : -1].float()


def logprobs(model: PreTrainedModel, asked: Request, ids: np.ndarray) -> np.ndarray:
    """Log-probabilities of sampled ids by one plain forward pass over the whole sequence."""
    logp = torch.log_softmax(logits(model, asked, ids) / (asked.sampling.temperature or 1.0), -1)
    return logp.gather(1, torch.tensor(ids, dtype=torch.long)[:, None])[:, 0].numpy()


async def answers(engine: object, asked: Sequence[Request]) -> list[Completion]:
    """All completions, requested at once."""
    return list(await asyncio.gather(*(engine.generate(one) for one in asked)))
