"""The layers for public IP addresses, addresses of network cards, and e-mail addresses that hide their @."""

import ipaddress
import re
from collections.abc import Iterator

from loomrl.safety.redaction.finding import Detection, ScannedText

_AT_WORDS = (
    *("at", "ät", "arroba", "arobase", "chiocciola", "klammeraffe", "apenstaartje", "snabel-a", "kukac", "małpa"),
    *("zavináč", "собака", "chez"),
)
_DOT_WORDS = ("dot", "punkt", "point", "punto", "ponto", "punt", "prick", "piste", "kropka", "tečka", "pont", "точка")
_TOPS = (
    "com|org|net|edu|gov|info|dev|app|io|ai|me|co|eu|tv|biz|xyz|online|cloud|tech|shop|de|at|ch|fr|es|it|pt|br|nl|be|lu"
    "|uk|ie|us|ca|au|nz|se|no|dk|fi|pl|cz|sk|hu|ro|bg|hr|si|rs|gr|tr|ru|ua|il|ae|ir|in|jp|cn|tw|hk|kr|vn|id|th|sg|mx|ar|cl|za"
)
"""Last parts of domains that count where a domain is spelt in words."""
_DOT = (
    r"(?:\s?[\[({<]\s?(?:dot|punkt|\.|point|punto|ponto|punt)\s?[\])}>]\s?|(?-i:\ DOT\ )|_dot_|\ -dot-\ "
    r"|&period;|\s\.\s|\.)"
)
_SIGNS = (
    re.compile(r"[\[({<]\s?(?:@|(?i:at|ät|arroba|a))\s?[\])}>]"),
    re.compile(r" AT "),
    re.compile(r"_[Aa][Tt]_"),
    re.compile(r" -[Aa][Tt]- "),
    re.compile(r"(?<=\w) @ (?=\w)|(?<=\w)@(?=[\w-]{1,60}(?:\s\.\s|[(\[{]))"),
    re.compile(r"&(?:#64|commat);"),
    re.compile(r"\\u0040"),
)
_AT = ("@", "_at_", "-at-", "(a)", "&#64", "&commat", "\\u0040")
_AT_IN_BRACKETS = re.compile(r"[\[({<]\s?(?:at|ät|arroba)")
_SPELT_SIGN = re.compile(
    rf"[ ](?:{'|'.join(_AT_WORDS)})[ ](?=[\w-]{{1,60}}[ ](?:{'|'.join(_DOT_WORDS)})[ ])", re.IGNORECASE
)
_GLUED = re.compile(r"(?<![\w.+-])[\w.+-]{1,60}?(?<=[a-z0-9])AT[a-z][\w-]{0,60}?DOT[a-z]{2,6}\b")
_LOCAL = re.compile(r"(?<![\w.+-])\w[\w.+-]{0,60}\s?\Z")
_DOMAIN = re.compile(rf"\s?[\w-]{{1,60}}?(?:{_DOT}[\w-]{{1,60}}?){{1,4}}(?![\w-])", re.IGNORECASE)
_SPELT = re.compile(
    rf"[\w-]{{1,60}}(?:\ (?:{'|'.join(_DOT_WORDS)})\ [\w-]{{1,60}}?){{0,3}}\ (?:{'|'.join(_DOT_WORDS)})\ (?:{_TOPS})\b",
    re.IGNORECASE,
)
_MAILED = re.compile(
    r"(?:\b(?:e-?mail|mail|write|contact|reach)\b[^\n@]{0,30}?[\s:])"
    r"(?P<local>[\w.+-]{1,60})\ at\ [\w-]{1,60}(?:\.[\w-]{1,60}){1,3}\b",
    re.IGNORECASE,
)
"""An address whose dot is one: a page is at such a place, too, if nothing says it is mail."""
_MAIL_WORDS = frozenset({"email", "mail", "write", "contact", "reach"})
_QUOTED = re.compile(r"\"[^\"\n@]{1,60}\"@[^\W_][\w-]*+(?:\.[\w-]++)++|[\w.+-]{1,60}@\[(?:IPv6:)?[0-9A-Fa-f.:]{3,45}\]")
_V4 = re.compile(r"\d(?<![\w.]\d)\d{0,2}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?!\w|\.\d|-[A-Za-z])")
_TRIPLE = re.compile(r"(?<![\d.])\d{1,4}\.\d{1,4}\.\d{1,4}(?![\d.])")
_V6 = re.compile(r"(?<![\w:.])[23][0-9A-Fa-f]{3}:(?:[0-9A-Fa-f]{0,4}:){1,6}[0-9A-Fa-f]{0,4}(?![\w:])")
_MAC = re.compile(
    r"[0-9A-Fa-f]{2}(?<![\w:.-]..)(?:(?P<sign>[:-])(?:[0-9A-Fa-f]{2}(?P=sign)){4}[0-9A-Fa-f]{2}(?![\w-]|:\w)"
    r"|[0-9A-Fa-f]{2}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}(?![\w-]|\.\w))"
)
_MAC_SAID = re.compile(r"(?<![\w:.-])[0-9A-Fa-f]{2}(?:[ :.-]?[0-9A-Fa-f]{2}){5}(?![\w-])")
_NO_MAC = re.compile(r"(?:00|ff)(?:.?(?:00|ff)){5}\Z|52:54:00|02:42:", re.IGNORECASE)
"""None, all, and those of virtual machines and containers."""
_MAC_WORDS = frozenset({"mac", "bssid", "ether", "hwaddr", "lladdr", "ethernet"})
_PART_WORDS = _MAIL_WORDS | frozenset(_DOT_WORDS)
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


def has_odd_emails(page: ScannedText) -> bool:
    """False for a text without anything that may stand for an @."""
    return (
        page.has(*_AT)
        or "DOT" in page.text
        or not (page.words.isdisjoint(_AT_WORDS) or page.words.isdisjoint(_PART_WORDS))
        or _AT_IN_BRACKETS.search(page.folded) is not None
    )


def find_odd_emails(page: ScannedText) -> Iterator[Detection]:
    """Addresses in words (`ada [at] example [dot] org`), with quotes, or at a number."""
    if page.has('"@', "@["):
        for match in _QUOTED.finditer(page.text):
            yield Detection(match.start(), match.end(), "email")
    for form in _SIGNS:
        for sign in form.finditer(page.text):
            yield from _around(page.text, sign, _DOMAIN)
    if page.says(_DOT_WORDS):
        for sign in _SPELT_SIGN.finditer(page.text):
            yield from _around(page.text, sign, _SPELT)
    if "DOT" in page.text:
        for match in _GLUED.finditer(page.text):
            yield Detection(match.start(), match.end(), "email")
    if page.says(_MAIL_WORDS):
        for match in _MAILED.finditer(page.text):
            yield Detection(match.start("local"), match.end(), "email")


def _around(text: str, sign: re.Match[str], form: re.Pattern[str]) -> Iterator[Detection]:
    """The address around an @ in other words."""
    local = _LOCAL.search(text, max(0, sign.start() - 62), sign.start())
    domain = form.match(text, sign.end())
    if local is not None and domain is not None:
        yield Detection(local.start(), domain.end(), "email")


def has_macs(page: ScannedText) -> bool:
    """False for a text that is too short, or without the signs between pairs of digits."""
    return page.digits >= 2 and (
        page.says(_MAC_WORDS) or page.text.count(":") > 4 or page.text.count("-") > 4 or page.text.count(".") > 1
    )


def find_macs(page: ScannedText) -> Iterator[Detection]:
    """Addresses of network cards: six pairs with colons or dashes, three groups with dots, or after a word for it."""
    for match in _MAC.finditer(page.text):
        if any(map(str.isalpha, match[0])) and not _NO_MAC.match(match[0]):
            yield Detection(match.start(), match.end(), "mac")
    if page.says(_MAC_WORDS):
        for match in _MAC_SAID.finditer(page.text):
            if page.says(_MAC_WORDS, max(0, match.start() - 60), match.end() + 60) and not _NO_MAC.match(match[0]):
                yield Detection(match.start(), match.end(), "mac")


def has_ips(page: ScannedText) -> bool:
    """False for a text with too few digits, dots and colons."""
    return (page.digits >= 4 and page.text.count(".") >= 3) or (page.digits > 0 and ":" in page.text)


def find_ips(page: ScannedText) -> Iterator[Detection]:
    """Addresses that anybody could reach. Those of private networks and of documents stay, and versions do."""
    for match in _V4.finditer(page.text):
        before = page.text[max(0, match.start() - _BEFORE) : match.start()]
        beside = page.text[max(0, match.start() - 20) : match.end() + 20]
        if match[0] in _RESOLVERS or _TRIPLE.search(beside) or _VERSION.search(before) or not _is_global(match[0]):
            continue
        if any(int(part) > 99 for part in match[0].split(".")) or _NEAR.search(before) or _is_used(page, match.end()):
            yield Detection(match.start(), match.end(), "ip")
    if page.has(":"):
        for match in _V6.finditer(page.text):
            if len(re.findall("[0-9A-Fa-f]+", match[0])) > 2 and _is_global(match[0]):
                yield Detection(match.start(), match.end(), "ip")


def _is_used(page: ScannedText, end: int) -> bool:
    """True if a port, a mask or a log's dashes follow."""
    return re.match(r":\d{2,5}\b|/(?:[12]?\d|3[0-2])\b|\ -\ -\ \[", page.text[end : end + 8]) is not None


def _is_global(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_global
    except ValueError:
        return False
