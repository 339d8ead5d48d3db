"""Tokens as bytes: joined, they are the text that the tokenizer itself gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_models import SPECIAL, tiny_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from loomrl.inference.chat import Spelling

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def pieces_tokenizer() -> PreTrainedTokenizerFast:
    """As SentencePiece makes them: spaces are ▁, unknown characters are bytes."""
    vocabulary = {"<unk>": 0, **{f"<0x{byte:02X}>": byte + 1 for byte in range(256)}}
    for piece in ("▁", "a", "b", "▁a", "▁b", "ab"):
        vocabulary[piece] = len(vocabulary)
    core = Tokenizer(
        models.BPE(vocabulary, [("▁", "a"), ("▁", "b"), ("a", "b")], byte_fallback=True, unk_token="<unk>")
    )
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>")


@pytest.mark.parametrize("tokenizer", [tiny_tokenizer(), pieces_tokenizer()], ids=["bytes", "pieces"])
def test_joined_bytes_are_the_text(tokenizer: PreTrainedTokenizerFast) -> None:
    spelling = Spelling(tokenizer)

    @given(TEXT)
    def check(text: str) -> None:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert b"".join(spelling[id] for id in ids) == text.encode()
        assert all(len(spelling[id]) <= spelling.longest for id in ids)

    check()


def test_special_tokens_are_their_names_and_unknown_ids_are_nothing() -> None:
    tokenizer = tiny_tokenizer()
    spelling = Spelling(tokenizer)
    for name in SPECIAL:
        assert spelling[int(tokenizer.convert_tokens_to_ids(name))] == name.encode()
    assert spelling[len(tokenizer)] == spelling[-1] == b""
    assert spelling[int(np.int32(70))]
