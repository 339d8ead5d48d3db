"""The exact bytes that a token stands for: text that comes token by token is joined from them."""

import json
from typing import Any

from transformers import PreTrainedTokenizerBase

SPACE = "▁"
"""A space in vocabularies of SentencePiece."""


class Spelling:
    """The bytes of each token of a vocabulary. Ids without a token have none."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._kinds = _decoders(tokenizer)
        self._bytes = {letter: byte for byte, letter in enumerate(_letters())}
        self._known: dict[int, bytes] = {}
        self.longest = max((len(token.encode()) for token in tokenizer.get_vocab()), default=1)
        """No token stands for more bytes of text."""

    def __getitem__(self, id: int) -> bytes:
        found = self._known.get(id)
        if found is None:
            found = self._known[id] = self._spelled(id)
        return found

    def __len__(self) -> int:
        """The number of ids that have a token."""
        return len(self._tokenizer)

    def _spelled(self, id: int) -> bytes:
        tokenizer: Any = self._tokenizer
        token = tokenizer.convert_ids_to_tokens(id) if 0 <= id < len(tokenizer) else None
        if token is None:
            return b""
        if "ByteLevel" in self._kinds:
            known = [self._bytes.get(letter) for letter in token]
            return token.encode() if None in known else bytes(byte for byte in known if byte is not None)
        if "ByteFallback" in self._kinds and len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes([int(token[3:5], 16)])
        if self._kinds & {"ByteFallback", "Metaspace"}:
            return str(token).replace(SPACE, " ").encode()
        return str(tokenizer.decode([id], clean_up_tokenization_spaces=False)).encode()


def _decoders(tokenizer: Any) -> set[str]:
    """The names of the parts of a fast tokenizer's decoder; none for others."""
    decoder = tokenizer.backend_tokenizer.decoder if tokenizer.is_fast else None
    if decoder is None:
        return set()
    told = json.loads(decoder.__getstate__())
    return {told["type"], *(part["type"] for part in told.get("decoders", ()))}


def _letters() -> list[str]:
    """The letter of each byte in byte-level vocabularies: itself if it can be printed, else one after U+0100."""
    shown = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = iter(range(256))
    return [chr(byte) if byte in shown else chr(256 + next(hidden)) for byte in range(256)]
