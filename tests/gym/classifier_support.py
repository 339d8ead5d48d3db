"""Small sequence classifiers as folders."""

from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForSequenceClassification

from tests.inference.sample_models import tiny_tokenizer

POSITIONS = 256


def llama(folder: Path, *, seed: int = 0, labels: tuple[str, ...] = (), template: bool = True) -> Path:
    """A classifier with random weights; one logit unless there are labels."""
    torch.manual_seed(seed)
    tokenizer = tiny_tokenizer()
    if not template:
        tokenizer.chat_template = None
    named = {"id2label": dict(enumerate(labels)), "label2id": {name: at for at, name in enumerate(labels)}}
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=POSITIONS, initializer_range=0.3, **(named if labels else {"num_labels": 1}),
    )  # fmt: skip
    LlamaForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def bert(folder: Path) -> Path:
    """An encoder with two labels, and a tokenizer without a chat template."""
    torch.manual_seed(1)
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=POSITIONS, initializer_range=0.5, id2label={0: "rude", 1: "polite"},
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def counting(folder: Path, letter: str) -> Path:
    """A classifier whose logit rises with the share of tokens that have this letter."""
    tokenizer = tiny_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
        max_position_embeddings=2048, num_labels=1,
    )  # fmt: skip
    model = LlamaForSequenceClassification(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(float("norm" in name))
        embedding = model.get_input_embeddings().weight
        embedding[:, 1] = 1
        having = [id for id in range(len(tokenizer)) if letter in tokenizer.decode([id])]
        embedding[having, 0] = 1
        layer = model.model.layers[0].self_attn
        layer.v_proj.weight[0, 0] = 1  # queries and keys are zero: every token attends to all before it alike
        layer.o_proj.weight[2, 0] = 5
        model.score.weight[0, 2] = 4
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
