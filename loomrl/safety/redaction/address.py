"""The layers for public IP addresses, and for e-mail addresses that hide their @."""

import ipaddress
import re
from collections.abc import Iterator

from loomrl.safety.redaction.finding import Finding, Page

_DOT = r"(?:\s?[\[({<]\s?(?:dot|punkt|\.|point|punto)\s?[\])}>]\s?|(?-i:\ DOT\ )|_dot_|\.)"
_SIGNS = (
    re.compile(r"[\[({<]\s?(?:@|(?i:at|ät|arroba))\s?[\])}>]"),
    re.compile(r" AT "),
    re.compile(r"_[Aa][Tt]_"),
    re.compile(r"&(?:#64|commat);"),
    re.compile(r"\\u0040"),
)
_AT = ("@", " at ", "_at_", "&#64", "&commat", "\\u0040")
_AT_IN_BRACKETS = re.compile(r"[\[({<]\s?(?:at|ät|arroba)")
_SPELT_SIGN = re.compile(r" [Aa][Tt] (?=[\w-]{1,60} (?i:dot) )")
_LOCAL = re.compile(r"(?<![\w.+-])\w[\w.+-]{0,60}\s?\Z")
_DOMAIN = re.compile(rf"\s?[\w-]{{1,60}}?(?:{_DOT}[\w-]{{1,60}}?){{1,4}}(?![\w-])", re.IGNORECASE)
_SPELT = re.compile(r"[\w-]{1,60}(?:\ dot\ [\w-]{1,60}){1,4}", re.IGNORECASE)
_QUOTED = re.compile(r"\"[^\"\n@]{1,60}\"@[^\W_][\w-]*+(?:\.[\w-]++)++|[\w.+-]{1,60}@\[(?:IPv6:)?[0-9A-Fa-f.:]{3,45}\]")
_V4 = re.compile(r"\d(?<![\w.]\d)\d{0,2}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?!\w|\.\d|-[A-Za-z])")
_TRIPLE = re.compile(r"(?<![\d.])\d{1,4}\.\d{1,4}\.\d{1,4}(?![\d.])")
_V6 = re.compile(r"(?<![\w:.])[23][0-9A-Fa-f]{3}:(?:[0-9A-Fa-f]{0,4}:){1,6}[0-9A-Fa-f]{0,4}(?![\w:])")
_VERSION = re.compile(
    r"(?:\b(?:v|version|release|section|chapter|§|abschnitt|kapitel)\.?\s?|\b(?:update|upgrade|bump|patch|downgrade)\w*\b[^\n]{0,20}|[A-Za-z]/|[A-Za-z0-9]-|==|[<>~^]=?\s?)\Z",
    re.I,
)
_NEAR = re.compile(
    r"(?:\bip\b|ips?v?4?[\"']?\s?[:=]|addr|host|from|client|server|peer|remote|ssh|ping|@|//|route|connect|forwarded|dns"
    r"|nameserver|gateway)[^\n]{0,20}\Z",
    re.I,
)
_RESOLVERS = frozenset({"8.8.8.8", "8.8.4.4", "1.1.1.1", "1.0.0.1", "9.9.9.9"})
"""Everybody's, and in every tutorial."""
_BEFORE = 30


def has_odd_emails(page: Page) -> bool:
    """False for a text without anything that may stand for an @."""
    return page.has(*_AT) or _AT_IN_BRACKETS.search(page.folded) is not None


def odd_emails(page: Page) -> Iterator[Finding]:
    """Addresses in words (`ada [at] example [dot] org`), with quotes, or at a number."""
    if page.has('"@', "@["):
        for match in _QUOTED.finditer(page.text):
            yield Finding(match.start(), match.end(), "email")
    for form in _SIGNS:
        for sign in form.finditer(page.text):
            yield from _around(page.text, sign, _DOMAIN)
    if page.says(("dot",)):
        for sign in _SPELT_SIGN.finditer(page.text):
            yield from _around(page.text, sign, _SPELT)


def _around(text: str, sign: re.Match[str], form: re.Pattern[str]) -> Iterator[Finding]:
    """The address around an @ in other words."""
    local = _LOCAL.search(text, max(0, sign.start() - 62), sign.start())
    domain = form.match(text, sign.end())
    if local is not None and domain is not None:
        yield Finding(local.start(), domain.end(), "email")


def has_ips(page: Page) -> bool:
    """False for a text with too few digits, dots and colons."""
    return (page.digits >= 4 and page.text.count(".") >= 3) or (page.digits > 0 and ":" in page.text)


def ips(page: Page) -> Iterator[Finding]:
    """Addresses that anybody could reach. Those of private networks and of documents stay, and versions do."""
    for match in _V4.finditer(page.text):
        before = page.text[max(0, match.start() - _BEFORE) : match.start()]
        beside = page.text[max(0, match.start() - 20) : match.end() + 20]
        if match[0] in _RESOLVERS or _TRIPLE.search(beside) or _VERSION.search(before) or not _is_global(match[0]):
            continue
        if any(int(part) > 99 for part in match[0].split(".")) or _NEAR.search(before) or _is_used(page, match.end()):
            yield Finding(match.start(), match.end(), "ip")
    if page.has(":"):
        for match in _V6.finditer(page.text):
            if len(re.findall("[0-9A-Fa-f]+", match[0])) > 2 and _is_global(match[0]):
                yield Finding(match.start(), match.end(), "ip")


def _is_used(page: Page, end: int) -> bool:
    """True if a port, a mask or a log's dashes follow."""
    return re.match(r":\d{2,5}\b|/(?:[12]?\d|3[0-2])\b|\ -\ -\ \[", page.text[end : end + 8]) is not None


def _is_global(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_global
    except ValueError:
        return False
