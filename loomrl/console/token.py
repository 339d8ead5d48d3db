"""Token ids as text, by the tokenizer that lies with the policies of a run. Without one, ids stay numbers."""

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loomrl.errors import LoomError
from loomrl.run.version import file_of
from loomrl.store import LoomDB
from loomrl.store.runs import POLICIES, RUNS, load_experiment

FILE = "tokenizer.json"
MOST = 8
"""Tokenizers in memory."""
SPACE = "▁"


class Vocabulary:
    """The text of each token of one tokenizer."""

    def __init__(self, text: str) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_str(text)
        told = json.dumps(json.loads(text).get("decoder") or {})
        self._is_bytes = "ByteLevel" in told
        self._letters = {letter: byte for byte, letter in enumerate(_letters())}

    def text(self, id: int) -> str | None:
        """The token's text; bytes that are no letter by themselves are shown as `�`."""
        token: str | None = self._tokenizer.id_to_token(id)
        if token is None:
            return None
        if self._is_bytes:
            known = [self._letters.get(letter) for letter in token]
            if None not in known:
                return bytes(byte for byte in known if byte is not None).decode("utf-8", "replace")
            return token
        return token.replace(SPACE, " ")


class Vocabularies:
    """Tokenizers by run, the latest used in memory. Safe to call from several threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Vocabulary | None] = OrderedDict()
        self._lock = threading.Lock()

    def texts(self, db: LoomDB, run: str, ids: Sequence[int]) -> list[str | None] | None:
        """The texts of tokens of a run; None if its tokenizer is not at hand."""
        with self._lock:
            if run not in self._known:
                self._known[run] = _open(db, run)
                while len(self._known) > MOST:
                    self._known.popitem(last=False)
            found = self._known[run]
        return None if found is None else [found.text(id) for id in ids]


def _open(db: LoomDB, run: str) -> Vocabulary | None:
    text = _file(db, run)
    if text is None:
        return None
    try:
        return Vocabulary(text)
    except Exception:  # noqa: BLE001 - the boundary: the library raises bare exceptions, and the file may be foreign
        return None


def _file(db: LoomDB, run: str) -> str | None:
    """The tokenizer of the run's newest version that is still there, or of the model it began with."""
    found = RUNS.find(db, run) if run else None
    if found is None:
        return None
    for version in POLICIES.latest(db, run=run, limit=5):
        try:
            data = file_of(version, db, f"model/{FILE}")
        except LoomError:
            continue
        if data is not None:
            return data.decode("utf-8", "replace")
    try:
        model: Any = getattr(getattr(load_experiment(found), "algorithm", None), "model", None)
        file = Path(str(getattr(model, "path", ""))) / FILE
        return file.read_text(encoding="utf-8") if file.is_file() else None
    except (LoomError, OSError):
        return None


def _letters() -> list[str]:
    """The letter of each byte in byte-level vocabularies: itself if it can be printed, else one after U+0100."""
    shown = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = iter(range(256))
    return [chr(byte) if byte in shown else chr(256 + next(hidden)) for byte in range(256)]
