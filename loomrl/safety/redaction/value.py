"""Many values that are redacted together: texts, JSON, JSON in text."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from loomrl.safety.assignment import Promise, promise_of
from loomrl.safety.placeholder import Counting, Names
from loomrl.safety.redaction.finding import Detection, Echoes, ScannedText, merge_findings, values_in
from loomrl.safety.redaction.prose import PART_OF_KEY
from loomrl.safety.redaction.redactor import NoRedactor, Redactor, replace_findings
from loomrl.safety.redaction.spoken import Open, find_spoken, is_strong, mentions, value_at
from loomrl.safety.redaction.tongue import ASKS, PARTS, REPLIES, RESTS

REACH = 400
"""Characters of earlier messages that are considered."""
_LONGEST = 200
"""Characters of an answer that holds nothing else."""
_TOKEN = re.compile(r"\S+")
_KEY = re.compile(
    r"\b(?:api|access|secret|private|ssh)[ _-]?key\b|\bkey\b|\btoken\b|\bpin\b|\bcode\b|schlüssel|clave|clé\b|chiave",
    re.I,
)
_OPENED = re.compile(r"[:?？：]\s*\Z|\b(?:is|ist|est|es|è|é|please|bitte|next|gleich)\W{0,3}\Z", re.IGNORECASE)


def find_following(before: str, text: str) -> Iterator[Detection]:
    """Secrets in a message that earlier messages announce."""
    if not text.strip() or len(text) > _LONGEST:
        return
    before = before[-REACH:]
    named = mentions(before)
    if not named and _KEY.search(before) is None:
        return
    page = ScannedText(before)
    last = before.rstrip().rpartition("\n")[2]
    tokens = list(_TOKEN.finditer(text))
    if page.says(PARTS) or _starts(page, PARTS):
        words = [token[0].casefold().strip(".,:;!") for token in tokens]
        if any(word.startswith(RESTS) for word in words) or len(tokens) == 1:
            has_part = any(find_spoken(page)) or PART_OF_KEY.search(before) is not None
            yield from _values(text, tokens, Open.WIDE if has_part else Open.LOOSE, anywhere=len(tokens) < 12)
            return
    if not named:
        is_asked = _starts(page, ASKS) or _OPENED.search(before) is not None
        yield from _values(text, tokens, Open.SHUT, anywhere=is_asked and len(tokens) < 8)
        return
    is_asked = _starts(ScannedText(last), ASKS) or _OPENED.search(before) is not None
    is_short = len(tokens) <= 8
    if len(tokens) == 1 or (len(tokens) <= 3 and tokens[0][0].casefold().strip(",.:;!") in REPLIES):
        yield from _values(text, tokens[-1:], Open.WIDE if is_asked else Open.LOOSE, anywhere=True)
    elif is_short:
        yield from _values(text, tokens, Open.LOOSE if is_asked and len(tokens) <= 3 else Open.SHUT, anywhere=True)


def _starts(page: ScannedText, stems: tuple[str, ...]) -> bool:
    return any(word.startswith(stems) for word in page.words)


def _values(text: str, tokens: list[re.Match[str]], is_open: Open, *, anywhere: bool) -> Iterator[Detection]:
    """The values among tokens: any that looks like one, and the last if the place is open."""
    for number, token in enumerate(tokens):
        is_last = number == len(tokens) - 1
        if token[0].casefold().strip(".,:;!?") in REPLIES:
            continue
        found = value_at(text, token.start(), is_open if is_last else Open.SHUT)
        if found is not None and (anywhere or is_strong(text[found.start : found.end])):
            yield found


T = TypeVar("T")


class Redaction:
    """Redacts many values and remembers what was found. Equal values get equal placeholders."""

    def __init__(self, redactor: Redactor, names: Names | None = None) -> None:
        self.redactor = redactor
        self.names = names or Counting()
        self.kinds: tuple[str, ...] = ()
        self._known: dict[str, Sequence[Detection]] = {}
        self._values: dict[str, str] = {}
        self._echoes = Echoes({})
        self._promises = not isinstance(redactor, NoRedactor)
        self._heard = ""
        """The end of the earlier messages."""

    def whole(self, work: "Callable[[Redaction], T]") -> T:
        """The result of a work in which a value found in one text is removed from all."""
        result = work(self)
        if self._values:
            self.begin(self.names)
            result = work(self)
        return result

    def begin(self, names: Names) -> None:
        """Begin again, perhaps with other names. Values found before are now removed wherever they occur."""
        self.names = names
        self.kinds = ()
        self._heard = ""
        self._echoes = Echoes(dict(self._values))

    def finds(self, text: str) -> bool:
        """True if a text has findings."""
        return bool(self._found(text))

    def _found(self, text: str) -> Sequence[Detection]:
        if text not in self._known:
            self._known[text] = found = self.redactor.find(text)
            self._values.update(values_in(text, found))
        return self._echoes.beside(text, self._known[text])

    def text(self, text: str) -> str:
        """The text without findings."""
        if not text:
            return text
        self.names.see(text)
        redacted = replace_findings(text, self._found(text), self.names)
        self.kinds += redacted.kinds
        return redacted.text

    def hear(self, text: str) -> None:
        """Take a message of the conversation; later messages may be secret because of it."""
        self._heard = f"{self._heard}\n{text[-REACH:]}"[-REACH:]

    def said(self, text: str) -> str:
        """The next message of a conversation without findings, including those that earlier messages announce."""
        if not text:
            return text
        self.names.see(text)
        found = self._found(text)
        if self._promises and self._heard and (more := list(find_following(self._heard, text))):
            self._values.update(values_in(text, more))
            found = merge_findings([*found, *more])
        self.hear(text)
        redacted = replace_findings(text, found, self.names)
        self.kinds += redacted.kinds
        return redacted.text

    def value(self, value: Any, *, name: str = "") -> Any:
        """A JSON value without findings. A value whose name announces a secret is one."""
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(one, name=str(key)) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(one, name=name) for one in value]
        if isinstance(value, bool) or value is None:
            return value
        if self._promises and value != "" and (kind := _promised_kind(name)):
            self.kinds += (kind,)
            self._values.setdefault(str(value), kind)
            return self.names.name(kind, str(value))
        return self.text(value) if isinstance(value, str) else value

    def json(self, text: str) -> str:
        """JSON text without findings; it stays JSON if it was."""
        try:
            value = json.loads(text)
            before = len(self.kinds)
            clean = self.value(value)
            if len(self.kinds) > before:
                return json.dumps(clean, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
        return self.text(text)


@lru_cache(maxsize=4096)
def _promised_kind(name: str) -> str:
    """The kind of secret that a name announces, or an empty text."""
    promise = promise_of(name) if name else None
    return "password" if promise is Promise.PASSWORD else "key" if promise is Promise.SECRET else ""
