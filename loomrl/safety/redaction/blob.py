"""Data that only looks like secrets: images, checksums, certificates, ids."""

import re
from collections.abc import Iterator

_FILL = "\0"
SHORTEST = 14
"""Characters of a run of such data."""
_RUN = re.compile(rf"[A-Za-z0-9+/_=.:~%-]{{{SHORTEST},}}+")
_PUBLIC = re.compile(
    r"-----BEGIN (?![A-Z0-9 ]{0,40}PRIVATE)[A-Z0-9 ]{1,40}-----(?:[^-]|-(?!----(?:BEGIN|END)))*+-----END|"
    r"-----BEGIN (?![A-Z0-9 ]{0,40}PRIVATE)[A-Z0-9 ]{1,40}-----(?:[\s\\nr]{1,4}[A-Za-z0-9+/=]{1,80}+)*+"
)
_DATA = re.compile(
    r"""AAAA[A-Z][0-9]N[A-Za-z0-9+/=]{40,}+|[Ss][Hh][Aa][0-9]{1,3}[-:=][A-Za-z0-9+/=_-]{20,}+|h1:[A-Za-z0-9+/]{43}=
    |(?:iVBORw0KGgo|/9j/4|R0lGOD|UklGR|JVBERi0|UEsDB|H4sIA|LS0tLS1CRUdJTiBD)[A-Za-z0-9+/=]{20,}+
    |[A-Za-z0-9+/]{400,}+={0,2}""",
    re.VERBOSE,
)
"""Public keys, checksums, images and archives, certificates in base64, and long data."""
_ID = re.compile(
    r"""[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}
    |\b0[0-7][0-9A-HJKMNP-TV-Z]{24}\b
    |\b(?:call|chatcmpl|cmpl|msg|toolu|req|run|thread|asst|resp|fc|rs|evt|item|batch|file|cus|pi|price|prod|sub|ch|in
        |acct|txn|tx|si|pm|cs|step|trace|span|job|task|user|org|proj|conv|gen|node|i|ami|vpc|subnet|vol|sg|eni
        |snap)[_-][A-Za-z0-9]{6,}+
    |\b[a-z]{2,10}_01[A-Za-z0-9]{20,24}\b
    |\b_Z[A-Z][A-Za-z0-9_]+
    |/nix/store/[a-z0-9]{32}""",
    re.VERBOSE,
)
"""Ids by their form or their prefix."""
_NAMED = re.compile(
    r"(?:list|v|id|ids|gid|pid|rev|ref|sha|hash|commit|etag|playlist|video|doc|docid|item|page|cursor|digest|checksum)="
)
"""Parameters of addresses that hold ids."""
_LINE = 60
"""Characters of a line of base64, and of a second one beside it."""
_BETWEEN = re.compile(r"[\"',\\nr]{0,4}\r?\n[ \t\"']{0,8}")


def without_blobs(text: str) -> str:
    """A text of equal length in which such data is blank."""
    parts = []
    at = 0
    for start, end in sorted(_spans(text)):
        if end > at:
            start = max(start, at)
            parts += [text[at:start], _FILL * (end - start)]
            at = end
    return "".join([*parts, text[at:]]) if at else text


def _spans(text: str) -> Iterator[tuple[int, int]]:
    if "-----BEGIN" in text:
        yield from (match.span() for match in _PUBLIC.finditer(text))
    before: re.Match[str] | None = None
    for run in _RUN.finditer(text):
        if (
            (text[run.start() - 1 : run.start()] in ("?", "&") and _NAMED.match(run[0]))
            or _DATA.match(run[0])
            or text.endswith("base64,", 0, run.start())
        ):
            yield run.span()
        elif before is not None and _are_lines(before, run):
            yield before.start(), run.end()
        else:
            yield from ((run.start() + one.start(), run.start() + one.end()) for one in _ID.finditer(run[0]))
        before = run


def _are_lines(one: re.Match[str], other: re.Match[str]) -> bool:
    """True for two long lines, one below the other."""
    if min(len(one[0]), len(other[0])) < _LINE or other.start() - one.end() > 14:
        return False
    return _BETWEEN.fullmatch(one.string, one.end(), other.start()) is not None
