import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from loomrl.algorithms.language.build import SPECIAL, build_model, build_tokenizer
from loomrl.config import Architecture
from loomrl.errors import ConfigError
from loomrl.gym.answer import ANSWER_FORMAT

TEXTS = [f"What is {n} + {2 * n}?\n\n{ANSWER_FORMAT}" for n in range(300)]
TOKENIZER = build_tokenizer(TEXTS, vocabulary=400)
COLOURS = ("red", "green", "blue", "white", "black", "yellow")
SMALL = Architecture(hidden_size=16, intermediate_size=32, layers=1, heads=2)


@given(st.text())
def test_every_text_comes_back_unchanged(text: str) -> None:
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert TOKENIZER.decode(ids) == text


def test_digits_are_single_tokens() -> None:
    pieces = TOKENIZER.tokenize("12345 + 6007")
    assert [piece for piece in pieces if piece.isdecimal()] == list("123456007")
    assert not any(any(c.isdecimal() for c in piece) for piece in TOKENIZER.get_vocab() if len(piece) > 1)


def test_a_sentence_of_every_task_becomes_one_token() -> None:
    prompt = TOKENIZER(TEXTS[7], add_special_tokens=False)["input_ids"]
    assert TOKENIZER.decode(prompt[-1:]).endswith(ANSWER_FORMAT)


def test_what_is_rare_stays_in_pieces() -> None:
    rare = [f"{a} {b} {c}" for a in COLOURS for b in COLOURS for c in COLOURS]
    tokenizer = build_tokenizer(rare, vocabulary=1000)
    assert {"red", "green", "blue"} <= {piece.strip("Ġ") for piece in tokenizer.get_vocab()}
    assert max(len(tokenizer.decode([index]).split()) for index in tokenizer.get_vocab().values()) == 2


def test_chat_template_frames_messages_with_special_tokens() -> None:
    chat = [{"role": "system", "content": "Hi."}, {"role": "user", "content": "1"}]
    ids = TOKENIZER.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert TOKENIZER.decode(ids) == "<|system|>Hi.<|end|><|user|>1<|end|><|assistant|>"
    assert [i for i in ids if i < len(SPECIAL)] == TOKENIZER.convert_tokens_to_ids(
        ["<|system|>", "<|end|>", "<|user|>", "<|end|>", "<|assistant|>"]
    )


def test_training_a_tokenizer_twice_gives_the_same_one() -> None:
    again = build_tokenizer(iter(TEXTS), vocabulary=400)
    assert again.get_vocab() == TOKENIZER.get_vocab()


def test_the_vocabulary_is_bounded() -> None:
    assert len(build_tokenizer(TEXTS, vocabulary=300)) == 300


def test_a_vocabulary_without_room_for_all_bytes_is_refused() -> None:
    with pytest.raises(ConfigError, match="vocabulary=261: 256 bytes and 6 special tokens"):
        build_tokenizer(TEXTS, vocabulary=261)


def test_equal_seeds_give_equal_weights_and_leave_the_randomness_outside_alone() -> None:
    torch.manual_seed(1)
    first = build_model(SMALL, TOKENIZER, context=64, seed=3).state_dict()
    drawn = torch.rand(1)
    torch.manual_seed(2)
    second = build_model(SMALL, TOKENIZER, context=64, seed=3).state_dict()
    other = build_model(SMALL, TOKENIZER, context=64, seed=4).state_dict()
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(1))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


def test_a_stored_model_loads_as_any_hugging_face_model(tmp_path) -> None:
    model = build_model(SMALL, TOKENIZER, context=64, seed=0)
    model.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    loaded, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    ids = tokenizer("What is 1 + 2?", return_tensors="pt")["input_ids"]
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert loaded.config.tie_word_embeddings
    assert loaded.config.max_position_embeddings == 64
    assert tokenizer.chat_template == TOKENIZER.chat_template
    assert loaded.generation_config.eos_token_id == tokenizer.eos_token_id == TOKENIZER.eos_token_id
    assert loaded.generation_config.pad_token_id == tokenizer.pad_token_id == TOKENIZER.pad_token_id
