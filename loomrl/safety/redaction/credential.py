"""The layer for passwords as people say them, and as commands, headers and files of settings hold them."""

from collections.abc import Iterator

from loomrl.safety.pattern import any_of
from loomrl.safety.redaction.code import CALLS, COMMANDS, SETTINGS
from loomrl.safety.redaction.finding import ContextRule, Detection, ScannedText
from loomrl.safety.redaction.prose import LOGINS, MENTIONS, find_said

_RULES = (*LOGINS, *SETTINGS, *COMMANDS, *CALLS)
_SIGNED = [rule for rule in _RULES if rule.signs]
_SIGN = any_of(sign for rule in _SIGNED for sign in rule.signs)
_BY_WORD: dict[str, list[ContextRule]] = {}
for _rule in _RULES:
    for _word in _rule.words:
        _BY_WORD.setdefault(_word, []).append(_rule)
_WORDS = frozenset(_BY_WORD)
_TELLING = _WORDS | MENTIONS


def has_credentials(page: ScannedText) -> bool:
    """False for a text without any of the words or signs that tell credentials."""
    return not page.words.isdisjoint(_TELLING) or _SIGN.search(page.folded) is not None


def find_credentials(page: ScannedText) -> Iterator[Detection]:
    """Passwords and keys that words or the form of a text around them tell."""
    yield from find_said(page)
    for word in page.words & _WORDS:
        places = page.places((word,))
        for rule in _BY_WORD[word]:
            yield from rule.secrets(filter(None, (rule.form.match(page.text, place) for place in places)))
    for rule in _SIGNED if _SIGN.search(page.folded) is not None else ():
        if page.has(*rule.signs):
            yield from rule.secrets(rule.form.finditer(page.text))
