"""Many values that are redacted together: texts, JSON, JSON in text."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from loomrl.safety.assignment import Promise, promise_of
from loomrl.safety.placeholder import Counting, Names
from loomrl.safety.redaction.finding import Finding
from loomrl.safety.redaction.redactor import NoRedactor, Redactor, replaced


class Redaction:
    """Redacts many values and remembers what was found. Equal values get equal placeholders."""

    def __init__(self, redactor: Redactor, names: Names | None = None) -> None:
        self.redactor, self.names = redactor, names or Counting()
        self.kinds: tuple[str, ...] = ()
        self._known: dict[str, Sequence[Finding]] = {}
        self._promises = not isinstance(redactor, NoRedactor)

    def begin(self, names: Names) -> None:
        """Begin again with other names; what was found in texts is known by now."""
        self.names, self.kinds = names, ()

    def finds(self, text: str) -> bool:
        """True if there is something in a text."""
        return bool(self._found(text))

    def _found(self, text: str) -> Sequence[Finding]:
        if text not in self._known:
            self._known[text] = self.redactor.find(text)
        return self._known[text]

    def text(self, text: str) -> str:
        """The text without findings."""
        if not text:
            return text
        self.names.see(text)
        redacted = replaced(text, self._found(text), self.names)
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
        if self._promises and value != "" and (kind := _promised(name)):
            self.kinds += (kind,)
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
def _promised(name: str) -> str:
    """The kind of secret that a name promises, or an empty text."""
    promise = promise_of(name) if name else None
    return "password" if promise is Promise.PASSWORD else "key" if promise is Promise.SECRET else ""
