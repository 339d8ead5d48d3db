"""Rules of forms: the secret that stands where a form says, if it passes a check."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from loomrl.safety.assignment import is_stub
from loomrl.safety.placeholder import is_placeholder
from loomrl.safety.redaction.finding import Finding

VALUE = r"(?P<secret>(?:[^\s'\"`|;<>$-]|(?<=')[$-])[^\s'\"`|;<>]{0,200})"
WORD = rf"['\"]?{VALUE}"
ARGUMENTS = r"[^\n|;&]{0,200}?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A form whose group `secret` goes, unless it is a stub.

    It begins with one of the words, and is tried where those are; or it is looked for if one of the signs is in a text.
    """

    form: re.Pattern[str]
    words: Collection[str] = ()
    signs: Collection[str] = ()
    kind: str = "password"
    check: Callable[[str], bool] = lambda value: True

    def secrets(self, matches: Iterable[re.Match[str]]) -> Iterator[Finding]:
        """The secrets in matches of the form."""
        for match in matches:
            value = match["secret"]
            if not is_placeholder(value) and not is_stub(value) and self.check(value):
                yield Finding(*match.span("secret"), self.kind)
