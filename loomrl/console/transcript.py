"""A trajectory as people read it: turns and threads in pieces of bearable length, token ids as text."""

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from loomrl.errors import LoomError
from loomrl.picture import to_url
from loomrl.run.version import file_of
from loomrl.store import LoomDB
from loomrl.store.runs import POLICIES, RUNS, load_experiment
from loomrl.types import Reward, Steps, Trajectory, Turn

LONGEST_PIECE = 6_000
"""Characters of a piece."""
MOST_PIECES = 60
MOST_LETTERS = 120_000
"""Letters in one part of a page; the next part loads when it comes into view."""
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_THINK = re.compile(r"<think(?:ing)?>(.*?)</think(?:ing)?>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptPiece:
    """Some text of one message. A long message has several pieces."""

    number: int
    """Number of the turn over all threads, from 1."""
    thread: int
    """0 is the first sequence."""
    role: str
    kind: str = "text"
    """`text`, or `call`, `thought`, `result`, which are folded."""
    text: str
    images: tuple[str, ...] = ()
    """Images as data URLs."""
    begins: bool = False
    """The first piece of its turn."""
    heads: bool = False
    """The first piece of its message."""
    ends: bool = False
    """The last piece of its turn."""
    reward: Reward | None = None
    tokens: int = 0
    """Tokens of the turn."""
    sampled: int = 0
    """Tokens that the policy sampled."""


def pieces_of(trajectory: Trajectory) -> Iterator[TranscriptPiece]:
    """Everything that was said, in order."""
    number = 0
    for thread, sequence in enumerate(trajectory.sequences):
        for turn in sequence:
            number += 1
            yield from _turn(turn, number, thread)


def part_of(trajectory: Trajectory, begin: int) -> tuple[list[TranscriptPiece], int | None]:
    """The pieces from one on, and where the next part begins; None at the end."""
    found: list[TranscriptPiece] = []
    letters = 0
    for at, piece in enumerate(pieces_of(trajectory)):
        if at < begin:
            continue
        if len(found) >= MOST_PIECES or letters > MOST_LETTERS:
            return found, at
        found.append(piece)
        letters += len(piece.text)
    return found, None


def _turn(turn: Turn, number: int, thread: int) -> Iterator[TranscriptPiece]:
    pieces = [
        *(piece for role, text, images in turn.observation for piece in _message(number, thread, role, text, images)),
        *_message(number, thread, "assistant", turn.action, ()),
    ]
    tokens = 0 if turn.tokens is None else len(turn.tokens)
    sampled = 0 if turn.tokens is None else int(turn.tokens.mask_T.sum())
    for at, piece in enumerate(pieces):
        yield replace(
            piece,
            begins=at == 0,
            ends=at == len(pieces) - 1,
            reward=turn.reward if at == len(pieces) - 1 else None,
            tokens=tokens,
            sampled=sampled,
        )


def _message(number: int, thread: int, role: str, text: str, images: Sequence[bytes]) -> Iterator[TranscriptPiece]:
    shown = tuple(map(to_url, images))
    heads = True
    for kind, span in _spans(role, text):
        for cut in _cuts(span):
            yield TranscriptPiece(
                number=number, thread=thread, role=role, kind=kind, text=cut, images=shown if heads else (), heads=heads
            )
            heads = False


def _spans(role: str, text: str) -> Iterator[tuple[str, str]]:
    """Pieces shown as text, and pieces that are folded."""
    if role == "tool":
        yield "result", text
        return
    if role != "assistant":
        yield "text", text
        return
    at = 0
    marks = sorted([*_CALL.finditer(text), *_THINK.finditer(text)], key=lambda match: match.start())
    for match in marks:
        if match.start() < at:
            continue
        if before := text[at : match.start()].strip("\n"):
            yield "text", before
        yield ("call" if match.re is _CALL else "thought"), match[1]
        at = match.end()
    if at == 0 or text[at:].strip():
        yield "text", text[at:]


def _cuts(text: str) -> Iterator[str]:
    """The text in lengths of a piece, cut at line ends where there are some."""
    at = 0
    while len(text) - at > LONGEST_PIECE:
        end = text.rfind("\n", at + LONGEST_PIECE // 2, at + LONGEST_PIECE)
        end = at + LONGEST_PIECE if end < 0 else end + 1
        yield text[at:end]
        at = end
    yield text[at:]


@dataclass(frozen=True, slots=True)
class TokenColumns:
    """Tokens of one sequence from a place on, as plain lists."""

    begin: int
    total: int
    ids: list[int]
    mask: list[int]
    logprobs: list[float | None]
    versions: list[int]
    entropies: list[float | None]
    """None where they were not recorded."""
    turns: list[int] = field(default_factory=list)
    """Turn of each token within the sequence, from 0."""


def tokens_of(trajectory: Trajectory, thread: int, *, begin: int, count: int) -> TokenColumns | None:
    """Some tokens of a sequence; None if it has none."""
    if not 0 <= thread < len(trajectory.sequences):
        return None
    turns = trajectory.sequences[thread]
    spans = [(at, turn.tokens) for at, turn in enumerate(turns) if turn.tokens is not None]
    total = sum(len(tokens) for _, tokens in spans)
    if not spans:
        return None
    found = TokenColumns(begin, total, [], [], [], [], [])
    at = 0
    for turn, tokens in spans:
        low, high = max(0, begin - at), min(len(tokens), begin + count - at)
        if low < high:
            found.ids.extend(map(int, tokens.ids_T[low:high]))
            found.mask.extend(map(int, tokens.mask_T[low:high]))
            found.logprobs.extend(_plain(float(value)) for value in tokens.logprobs_T[low:high])
            found.versions.extend(map(int, tokens.versions_T[low:high]))
            entropies_T = np.full(len(tokens), np.nan) if tokens.entropies_T is None else tokens.entropies_T
            found.entropies.extend(_plain(float(value)) for value in entropies_T[low:high])
            found.turns.extend([turn] * (high - low))
        at += len(tokens)
    return found


def _plain(value: float) -> float | None:
    return round(value, 5) if np.isfinite(value) else None


def series_of(steps: Steps, *, most: int = 12) -> list[tuple[str, list[list[float]]]]:
    """Series of a control episode over its steps: names, and a column for each dimension."""
    found = []
    for name, value in (("observations", steps.observations), ("actions", steps.actions), *steps.wishes.items()):
        for path, columns in _columns(name, value, len(steps)):
            found.append((path, columns[:most]))
    found.append(("log-probability", [[float(value) for value in steps.logprobs_T]]))
    return found


def _columns(name: str, value: Any, length: int) -> Iterator[tuple[str, list[list[float]]]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _columns(f"{name}.{key}", part, length)
        return
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return
    if array.ndim == 0 or len(array) != length:
        return
    flat = array.reshape(length, -1)
    yield name, [[float(each) for each in flat[:, at]] for at in range(min(flat.shape[1], 32))]


FILE = "tokenizer.json"
MOST_TOKENIZERS = 8
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
                while len(self._known) > MOST_TOKENIZERS:
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
