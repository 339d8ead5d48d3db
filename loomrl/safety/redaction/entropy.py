"""The layer for keys of no known form: long runs of characters that look drawn, and hashes with a name before them."""

import re
from collections.abc import Iterator

from loomrl.safety.randomness import is_drawn, is_word
from loomrl.safety.redaction.finding import Detection, ScannedText

SHORTEST = 18
"""Characters of a run that is looked at."""
_RUN = re.compile(rf"(?<![A-Za-z0-9+/_.=~$-])[A-Za-z0-9+/_.=~$-]{{{SHORTEST},}}+")
_LONG = re.compile(r"[A-Za-z0-9+/_-]{16}")
_DIGIT = re.compile(r"\d")
_DIGITS = re.compile(r"\d+")
_NO_HEX = re.compile(r"[^0-9a-f]")
_ATOM = re.compile(r"[A-Za-z0-9+_-]+")
_UUID = r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"
_HASH = re.compile(rf"[0-9a-f]{{32}}|{_UUID}")
_HASHES = re.compile(r"[A-Za-z0-9_.$~/:|-]{32,}+")
_NAMED_HASH = re.compile(
    rf"(?<![A-Za-z0-9_.-])(?P<name>(?:[A-Za-z0-9]{{1,20}}+[_.$~-]){{1,5}}?)"
    rf"(?P<hash>[0-9a-f]{{32,128}}|{_UUID})(?![A-Za-z0-9])(?!\.[A-Za-z]{{2,4}}\b)"
)
_GLUED_HASH = re.compile(
    r"(?<![A-Za-z0-9_.-])[A-Za-z]{2,8}(?P<hash>[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64})(?![A-Za-z0-9])"
)
_HARMLESS_WORDS = """
    sha sha1 sha256 sha384 sha512 md5 blake2b blake3 crc commit rev git tree image img layer digest hash checksum etag
    trace span run job task pvc pv pod req request file build sess session user org order event msg message id uuid doc
    document page node vm instance volume disk snapshot dataset model experiment trial group thread index chunk block
    part asset bundle main app style styles vendor cache tmp temp log report test tests batch item object resource
    container service deployment release version diff
"""
_HARMLESS = frozenset(_HARMLESS_WORDS.split())
"""Names of what has a hash or a number for a name."""
_SECRET_WORDS = (
    "key apikey tok token secret pass pat auth cred credential api live prod production sandbox sk access mws"
)
_SECRET = frozenset(_SECRET_WORDS.split())
"""Names of what is secret all the same."""
_PREFIXED = re.compile(
    r"(?<![A-Za-z0-9_-])(?P<name>(?:[A-Za-z]{1,12}[_-]){1,4})(?P<body>[A-Za-z0-9]{14,})(?![A-Za-z0-9])"
)
_DOUBLE = re.compile(r"(?<![\w.-])(?:\w{1,12}\.)?[0-9a-f]{32,64}\.[0-9a-f]{32,64}(?![\w-])")
"""A token and its signature."""
_PAIRED = re.compile(r"(?<![\w/])(?:\d{1,2}/)?\d{6,20}(?:/\d{6,20})?[:|][0-9a-f]{32,64}(?!\w)")


def may_have_keys(page: ScannedText) -> bool:
    """False for a text without a run that is long enough."""
    return page.longest >= SHORTEST


def find_keys(page: ScannedText) -> Iterator[Detection]:
    """Keys of no known form."""
    for run in _RUN.finditer(page.bare):
        if _LONG.search(run[0]) is not None and _DIGIT.search(run[0]) is not None:
            yield from _drawn_keys(run)
            yield from _prefixed_keys(run)
    for run in _HASHES.finditer(page.text):
        if _HASH.search(run[0]) is not None:
            yield from _hash_keys(page, *run.span())


def _hash_keys(page: ScannedText, start: int, end: int) -> Iterator[Detection]:
    """Hashes that are keys: after a name, or beside a number or another hash."""
    for match in _NAMED_HASH.finditer(page.text, start, end):
        if _is_key(match["name"], match["hash"]):
            yield Detection(match.start(), match.end(), "key")
    for form in (_DOUBLE, _PAIRED):
        yield from (Detection(*match.span(), "key") for match in form.finditer(page.text, start, end))
    for match in _GLUED_HASH.finditer(page.bare, start, end):
        if not match[0].isalnum() or _NO_HEX.search(match[0]) is not None:
            yield Detection(match.start(), match.end(), "key")


def _drawn_keys(run: re.Match[str]) -> Iterator[Detection]:
    """The atoms of a run that are drawn, with those beside them that are no words."""
    atoms = list(_ATOM.finditer(run[0]))
    sure = [is_drawn(atom[0]) for atom in atoms]
    if not any(sure):
        if "/" in run[0] and "." not in run[0] and run[0][0] not in "/~-" and _is_base64(run[0]):
            yield Detection(run.start(), run.end(), "key")
        return
    for number, atom in enumerate(atoms):
        near = any(sure[max(0, number - 1) : number + 2])
        if sure[number] or (near and len(atom[0]) >= 6 and not is_word(atom[0])):
            is_last = number == len(atoms) - 1
            end = len(run[0]) if is_last and set(run[0][atom.end() :]) <= {"="} else atom.end()
            yield Detection(run.start() + atom.start(), run.start() + end, "key")


def _prefixed_keys(run: re.Match[str]) -> Iterator[Detection]:
    """Shorter tokens after a name such as `live_`."""
    for match in _PREFIXED.finditer(run[0]):
        is_named = not _SECRET.isdisjoint(re.split("[_-]", match["name"].lower()))
        if is_named and len(_DIGITS.findall(match["body"])) > 1 and not is_word(match["body"]):
            yield Detection(run.start() + match.start(), run.start() + match.end(), "key")


def _is_base64(run: str) -> bool:
    if run.count("/") > len(run) / 16 or not is_drawn(run):
        return False
    return not any(len(atom) > 3 and is_word(atom) for atom in _ATOM.findall(run))


def _is_key(name: str, value: str) -> bool:
    if value.isdigit() or not any(map(str.isalpha, name)):  # a part of a number; a date; what numbers a file
        return False
    words = [word for word in re.split(r"[_.$~-]", name) if word]
    is_loud = name.upper() == name and not name.startswith(("SHA", "MD5"))  # APP_USR-…: files and builds are lower case
    if "-" in value or (not is_loud and not _HARMLESS.isdisjoint(map(str.lower, words))):
        return not _SECRET.isdisjoint(map(str.lower, words))
    return True
