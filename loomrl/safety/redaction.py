"""Redaction: text without what must not be stored. Everything here is pure, and linear in the text's length."""

import json
from dataclasses import dataclass
from typing import Any, Protocol

from loomrl.safety.pattern import PATTERNS, mark

ROUNDS = 8
"""A replacement may bring a further finding to light, hardly ever more than one."""


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text with a mark in the place of each finding, and the kinds that were found."""

    text: str
    kinds: tuple[str, ...] = ()


class Redactor(Protocol):
    """Removes what must not be stored. Redacting twice changes nothing more."""

    def redact(self, text: str) -> Redacted:
        """The text without it."""


class PatternRedactor:
    """E-mail addresses, keys of known forms, private keys, passwords in URLs and in assignments."""

    def redact(self, text: str) -> Redacted:
        """The text without them."""
        kinds: dict[str, None] = {}
        for _ in range(ROUNDS):
            before, folded = text, text.casefold()
            for pattern in PATTERNS:
                if not pattern.is_possible(folded):
                    continue
                text, found = pattern.without(text)
                if found:
                    kinds[pattern.kind] = None
            if text == before:
                break
        return Redacted(text, tuple(kinds))


class NoRedactor:
    """Leaves everything as it is."""

    def redact(self, text: str) -> Redacted:
        """The same text."""
        return Redacted(text)


@dataclass(slots=True)
class Redaction:
    """Redacts many values and remembers what was found."""

    redactor: Redactor
    kinds: tuple[str, ...] = ()

    def text(self, text: str) -> str:
        """The text without findings."""
        if not text:
            return text
        redacted = self.redactor.redact(text)
        self.kinds += redacted.kinds
        return redacted.text

    def value(self, value: Any, *, name: str = "") -> Any:
        """A JSON value without findings. A value whose name promises a secret is one."""
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(one, name=str(key)) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(one, name=name) for one in value]
        if isinstance(value, bool) or value is None:
            return value
        if name and value != "" and (kind := self._promised(name)):
            self.kinds += (kind,)
            return mark(kind)
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

    def _promised(self, name: str) -> str:
        """The kind of secret that a name promises."""
        kinds = self.redactor.redact(f'{name}="x1Y2-z3W4"').kinds
        return kinds[0] if kinds and not self.redactor.redact(name).kinds else ""
