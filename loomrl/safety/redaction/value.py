"""Many values that are redacted together: texts, JSON, JSON in text."""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from loomrl.safety.assignment import Promise, promise_of
from loomrl.safety.placeholder import Counting, Names
from loomrl.safety.redaction.echo import Echoes, values_in
from loomrl.safety.redaction.finding import Finding, merged
from loomrl.safety.redaction.follow import REACH, followed
from loomrl.safety.redaction.redactor import NoRedactor, Redactor, replaced

T = TypeVar("T")


class Redaction:
    """Redacts many values and remembers what was found. Equal values get equal placeholders."""

    def __init__(self, redactor: Redactor, names: Names | None = None) -> None:
        self.redactor = redactor
        self.names = names or Counting()
        self.kinds: tuple[str, ...] = ()
        self._known: dict[str, Sequence[Finding]] = {}
        self._values: dict[str, str] = {}
        self._echoes = Echoes({})
        self._promises = not isinstance(redactor, NoRedactor)
        self._heard = ""
        """The end of what was said before."""

    def whole(self, work: "Callable[[Redaction], T]") -> T:
        """The result of a work in which a value that one of its texts gives away is gone from all of them."""
        result = work(self)
        if self._values:
            self.begin(self.names)
            result = work(self)
        return result

    def begin(self, names: Names) -> None:
        """Begin again, perhaps with other names. Values that were found are known by now, whatever is beside them."""
        self.names = names
        self.kinds = ()
        self._heard = ""
        self._echoes = Echoes(dict(self._values))

    def finds(self, text: str) -> bool:
        """True if there is something in a text."""
        return bool(self._found(text))

    def _found(self, text: str) -> Sequence[Finding]:
        if text not in self._known:
            self._known[text] = found = self.redactor.find(text)
            self._values.update(values_in(text, found))
        return self._echoes.beside(text, self._known[text])

    def text(self, text: str) -> str:
        """The text without findings."""
        if not text:
            return text
        self.names.see(text)
        redacted = replaced(text, self._found(text), self.names)
        self.kinds += redacted.kinds
        return redacted.text

    def hear(self, text: str) -> None:
        """Take a message of the conversation as said; what follows may be secret because of it."""
        self._heard = f"{self._heard}\n{text[-REACH:]}"[-REACH:]

    def said(self, text: str) -> str:
        """The next message of a conversation without findings, and without what the messages before it give away."""
        if not text:
            return text
        self.names.see(text)
        found = self._found(text)
        if self._promises and self._heard and (more := list(followed(self._heard, text))):
            self._values.update(values_in(text, more))
            found = merged([*found, *more])
        self.hear(text)
        redacted = replaced(text, found, self.names)
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
def _promised(name: str) -> str:
    """The kind of secret that a name promises, or an empty text."""
    promise = promise_of(name) if name else None
    return "password" if promise is Promise.PASSWORD else "key" if promise is Promise.SECRET else ""
