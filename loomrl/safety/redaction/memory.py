"""A redactor that looks at a text once: every call of a conversation repeats what was said before."""

from collections.abc import Sequence
from functools import lru_cache

from loomrl.safety.placeholder import Names
from loomrl.safety.redaction.finding import Finding
from loomrl.safety.redaction.redactor import Redacted, Redactor, replaced

LONGEST = 16_384
"""Characters of a text that is remembered."""
REMEMBERED = 2048
"""Texts, in memory alone."""


class Remembering:
    """Another redactor's findings, remembered."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._known = lru_cache(REMEMBERED)(redactor.find)

    def find(self, text: str) -> Sequence[Finding]:
        """As of `Redactor`."""
        return self._known(text) if len(text) <= LONGEST else self._redactor.find(text)

    def redact(self, text: str, names: Names | None = None) -> Redacted:
        """As of `Redactor`."""
        return replaced(text, self.find(text), names)
