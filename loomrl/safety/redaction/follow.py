"""A secret said over two messages: the first names it, or holds one part, and the second holds the rest."""

import re
from collections.abc import Iterator

from loomrl.safety.redaction.finding import Finding, Page
from loomrl.safety.redaction.prose import PART_OF_KEY
from loomrl.safety.redaction.spoken import Open, is_strong, mentions, spoken, value_at
from loomrl.safety.redaction.tongue import ASKS, PARTS, REPLIES, RESTS

REACH = 400
"""Characters of what was said before that count."""
_LONGEST = 200
"""Characters of an answer that holds nothing else."""
_TOKEN = re.compile(r"\S+")
_KEY = re.compile(
    r"\b(?:api|access|secret|private|ssh)[ _-]?key\b|\bkey\b|\btoken\b|\bpin\b|\bcode\b|schlüssel|clave|clé\b|chiave",
    re.I,
)
_OPENED = re.compile(r"[:?？：]\s*\Z|\b(?:is|ist|est|es|è|é|please|bitte|next|gleich)\W{0,3}\Z", re.IGNORECASE)


def followed(before: str, text: str) -> Iterator[Finding]:
    """What in a message is secret because of what was said before it."""
    if not text.strip() or len(text) > _LONGEST:
        return
    before = before[-REACH:]
    named = mentions(before)
    if not named and _KEY.search(before) is None:
        return
    page = Page(before)
    last = before.rstrip().rpartition("\n")[2]
    tokens = list(_TOKEN.finditer(text))
    if page.says(PARTS) or _starts(page, PARTS):
        words = [token[0].casefold().strip(".,:;!") for token in tokens]
        if any(word.startswith(RESTS) for word in words) or len(tokens) == 1:
            has_part = any(spoken(page)) or PART_OF_KEY.search(before) is not None
            yield from _values(text, tokens, Open.WIDE if has_part else Open.LOOSE, anywhere=len(tokens) < 12)
            return
    if not named:
        is_asked = _starts(page, ASKS) or _OPENED.search(before) is not None
        yield from _values(text, tokens, Open.SHUT, anywhere=is_asked and len(tokens) < 8)
        return
    is_asked = _starts(Page(last), ASKS) or _OPENED.search(before) is not None
    is_short = len(tokens) <= 8
    if len(tokens) == 1 or (len(tokens) <= 3 and tokens[0][0].casefold().strip(",.:;!") in REPLIES):
        yield from _values(text, tokens[-1:], Open.WIDE if is_asked else Open.LOOSE, anywhere=True)
    elif is_short:
        yield from _values(text, tokens, Open.LOOSE if is_asked and len(tokens) <= 3 else Open.SHUT, anywhere=True)


def _starts(page: Page, stems: tuple[str, ...]) -> bool:
    return any(word.startswith(stems) for word in page.words)


def _values(text: str, tokens: list[re.Match[str]], is_open: Open, *, anywhere: bool) -> Iterator[Finding]:
    """The values among tokens: any that looks like one, and the last if the place is open."""
    for number, token in enumerate(tokens):
        is_last = number == len(tokens) - 1
        if token[0].casefold().strip(".,:;!?") in REPLIES:
            continue
        found = value_at(text, token.start(), is_open if is_last else Open.SHUT)
        if found is not None and (anywhere or is_strong(text[found.start : found.end])):
            yield found
