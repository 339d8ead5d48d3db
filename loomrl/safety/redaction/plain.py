"""Texts in disguise, made plain: escapes of JSON, HTML and URLs, also one in another, and signs of full width."""

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator

DEPTH = 8
"""Escapes in escapes that are undone."""
_ESCAPE = re.compile(
    r"""\\(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|["'\\/nrt])
    |&(?:\#(?:[0-9]{1,7}|[xX][0-9A-Fa-f]{1,6})|[A-Za-z]{2,8});
    |%(?:[2-7][0-9A-Fa-f]|0[9AaDd]|[CcDd][0-9A-Fa-f]%[89ABab][0-9A-Fa-f]
        |[Ee][0-9A-Fa-f](?:%[89ABab][0-9A-Fa-f]){2}|[Ff][0-7](?:%[89ABab][0-9A-Fa-f]){3})""",
    re.VERBOSE,
)
"""One character each."""
_QUOTE = re.compile(r'\\.|"', re.DOTALL)
_QUERY = re.compile(r"[?&][\w.-]{1,60}=[^\s&\"'<>+]{0,200}\+[^\s&\"'<>]{0,4000}")
"""A parameter in which + stands for a space."""
_PLUS = re.compile(r"\+")
_ODD = re.compile(
    "[A-Za-z][\u0300-\u036f]+"
    "|[\u00a0\u00ad\u2000-\u200f\u2010-\u2015\u202f\u205f\u2060-\u2064\u2070-\u209f\u2100-\u214f\u2212\u2460-\u24ff"
    "\u3000\u0660-\u0669\u06f0-\u06f9\u0966-\u096f\u0e50-\u0e59\ufb00-\ufb06\ufe50-\ufe6f\ufeff\uff01-\uffe6"
    "\U0001d400-\U0001d7ff]"
)
"""Spaces, dashes, digits and letters that have a plain form."""
_DASHES = dict.fromkeys([*range(0x2010, 0x2016), 0x2212], "-")
_UNSEEN = dict.fromkeys([0xAD, *range(0x200B, 0x2010), *range(0x2060, 0x2065), 0xFEFF], "")
_SHORT = {"\\n": "\n", "\\r": "\r", "\\t": "\t"}


_Edit = tuple[int, int, str]


def may_be_disguised(text: str) -> bool:
    """False for a text that is plain already."""
    if not text.isascii() and _ODD.search(text) is not None:
        return True
    has_plus = "+" in text and ("?" in text or "&" in text)
    return has_plus or (("\\" in text or "&" in text or "%" in text) and _ESCAPE.search(text) is not None)


class PlainText:
    """A plain text that knows where each of its characters stands in the original."""

    def __init__(self, original: str) -> None:
        self.text = original
        self._places = list(range(len(original) + 1))
        self._changed = bytearray(len(original))
        if not original.isascii():
            self._edit(_single(_ODD, self.text))
        for _ in range(DEPTH):
            if not self._edit(_escapes(self.text)):
                break
        if not self.text.isascii():
            self._edit(_single(_ODD, self.text))
        if "+" in self.text:
            queries = (query.span() for query in _QUERY.finditer(self.text))
            pluses = (plus.span() for query in queries for plus in _PLUS.finditer(self.text, *query))
            self._edit((*plus, " ") for plus in pluses)

    def changes(self) -> Iterator[tuple[int, int]]:
        """The spans of the plain text that the original writes otherwise."""
        return (match.span() for match in re.finditer(b"\1+", self._changed))

    def back(self, start: int, end: int) -> tuple[int, int]:
        """A span of the plain text as one of the original, with the whole of every escape."""
        while start < end < len(self.text) and self._places[end] == self._places[end - 1]:
            end += 1
        return self._places[start], self._places[end]

    def _edit(self, edits: Iterable[_Edit]) -> bool:
        """Put plain characters into places of the text, in their order; False if none changes."""
        parts: list[str] = []
        places: list[int] = []
        changed = bytearray()
        at = 0
        for start, end, plain in edits:
            if plain == self.text[start:end]:
                continue
            parts += [self.text[at:start], plain]
            places += self._places[at:start]
            places += [self._places[start]] * len(plain)
            changed += self._changed[at:start]
            changed += b"\1" * len(plain)
            if not plain and changed:
                changed[-1] = 1
            at = end
        if not parts:
            return False
        self.text = "".join([*parts, self.text[at:]])
        self._places = places + self._places[at:]
        self._changed = changed + self._changed[at:]
        return True


def _single(form: re.Pattern[str], text: str) -> Iterator[_Edit]:
    return ((*match.span(), _plain(match[0])) for match in form.finditer(text))


def _escapes(text: str) -> Iterable[_Edit]:
    """The escapes of a text; a string with quotes in it becomes lines of its own, so that quotes stay in pairs."""
    if '\\"' not in text:
        return _single(_ESCAPE, text)
    edits = list(_single(_ESCAPE, text))
    start = -1
    has_quotes = False
    for sign in _QUOTE.finditer(text):
        if sign[0] != '"':
            has_quotes |= sign[0] == '\\"'
        elif start < 0:
            start = sign.start()
            has_quotes = False
        else:
            edits += [(place, place + 1, "\n") for place in (start, sign.start()) if has_quotes]
            start = -1
    return sorted(edits)


def _plain(written: str) -> str:
    """The characters that something stands for."""
    first = written[0]
    if first == "\\":
        return _SHORT.get(written) or (written[1] if len(written) == 2 else chr(int(written[2:], 16)))
    if first == "&":
        return html.unescape(written)
    if first == "%":
        return bytes.fromhex(written.replace("%", "")).decode(errors="replace")
    if written.isdecimal():
        return str(unicodedata.decimal(written))
    return unicodedata.normalize("NFKC", written.translate(_DASHES | _UNSEEN))
