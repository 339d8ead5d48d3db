"""What chat models put around an answer: words before it, marks of emphasis, a fence, quotes, a full stop."""

import re

ROUNDS = 6
"""Layers that are taken off; what is deeper stays, and is wrong."""
LONGEST = 16_000
"""Characters; a longer text is left as it is."""
EDGES = "*_` \t\r\n\u00a0\u2009\u202f\u200a"
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»"}
_FENCE = re.compile(r"(`{3,}|~{3,})[ \t]*[\w+-]*[ \t]*\n(.*)\n[ \t]*\1", re.DOTALL)
_BEFORE = r"(?:(?:so|thus|hence|therefore|then|finally|in conclusion|in summary|and|now)\b[,:]?\s+)*"
_NOUN = r"(?:answer|result|solution|response|translation|output)"
_SAYS = r"(?:is|are|was|equals|would be|should be|must be)\b"
_LEAD = re.compile(
    rf"""
    [#>]*\s*[*_]*
    (?:
        {_BEFORE}(?:(?:the|my|our)\s+)?(?:(?:final|correct|right|exact|complete|full)\s+)*{_NOUN}[*_]*\s*
        (?: {_SAYS}[*_]*\s*:? | [:=：] | \n )
      | {_BEFORE}(?:it|this|that)(?:\s+(?:is|gives|makes|yields)\b|'s\b)\s*:?
      | {_BEFORE}(?:we|i)\s+(?:get|have|obtain|find)\b\s*:?
      | (?:so|thus|hence|therefore|then|finally|in\ conclusion|in\ summary)\b[,:]?\s
    )
    [*_]*\s*
    """,
    re.IGNORECASE | re.VERBOSE,
)


def undress(text: str) -> str:
    """The answer alone: without `The answer is`, `**`, backticks, a fence, quotes around it or a full stop behind it.

    No content is dropped: what is left is one answer, as strict as it was.
    """
    if len(text) > LONGEST:
        return text
    for _ in range(ROUNDS):
        bare = _without_layer(text)
        if bare == text:
            break
        text = bare
    return text


def _without_layer(text: str) -> str:
    text = text.strip()
    fenced = _FENCE.fullmatch(text)
    if fenced:
        return fenced[2]
    text = text.rstrip(".!✓✅ ").strip(EDGES)
    closing = _QUOTES.get(text[:1])
    if closing and len(text) > 1 and text.endswith(closing) and closing not in text[1:-1]:
        return text[1:-1]
    lead = _LEAD.match(text)
    return text[lead.end() :] if lead and lead.end() < len(text) else text
