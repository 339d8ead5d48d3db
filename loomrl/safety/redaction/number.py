"""The layers for numbers with a check digit or a form of their own: cards, accounts, and people in their countries."""

import re
from collections.abc import Callable, Iterator, Mapping

from loomrl.safety.redaction.finding import Detection, ScannedText

# -- cards ------------------------------------------------------------------------------------------------------------

_CARD = re.compile(
    r"""\d(?<![A-Za-z0-9_.,+-]\d)(?<!\d[ \u00a0]\d)(?:\d{12,18}
    |\d{3}(?P<sign>[ \u00a0.-])\d{4}(?P=sign)\d{4}(?P=sign)\d{4}(?:(?P=sign)\d{3})?
    |\d{3}(?P<other>[ \u00a0.-])\d{6}(?P=other)\d{4,5})(?![A-Za-z0-9_]|[.,-]\d|[ \u00a0]\d{3})""",
    re.VERBOSE,
)
_GAP = r"(?:[^\w\n]{1,3}|_|\n)"
_GROUPED = re.compile(
    rf"""(?<![A-Za-z0-9_])(?=[2-6])(?:\d{{4}}(?P<four>{_GAP})\d{{4}}(?P=four)\d{{4}}(?P=four)\d{{4}}(?:(?P=four)\d{{3}})?
    |\d{{4}}(?P<amex>{_GAP})\d{{6}}(?P=amex)\d{{4,5}}
    |\d{{8}}(?P<eight>{_GAP})\d{{8}}
    |\d\d(?P<two>{_GAP})\d\d(?:(?P=two)\d\d){{5,7}}(?:(?P=two)\d)?
    |\d(?P<one>{_GAP})\d(?:(?P=one)\d){{11,17}})(?![A-Za-z0-9_])""",
    re.VERBOSE,
)
"""Thirteen digits or more in equal groups, with the same signs between them."""
_BRAND = re.compile(
    r"4\d{15}|(?:5[1-5]\d\d|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720))\d{12}|3[47]\d{13}|6(?:011|4[4-9]\d|5\d\d)\d{12}"
    r"|35(?:2[89]|[3-8]\d)\d{12}|62\d{14}"
)
"""The first digits of issuers that are everywhere, and how many follow."""
_RARE = re.compile(r"4\d{12}(?:\d{6})?|3(?:0[0-5]|[689]\d)\d{11}|(?:50|5[6-9]|6\d)\d{10,17}|220[0-4]\d{12}|8[12]\d{14}")
"""Prefixes of other issuers. Many numbers begin that way, so groups of four or a word nearby must say it is a card."""
_CARD_TEXT = """
    card cards cc visa mastercard amex maestro discover diners jcb unionpay credit debit pan payment kreditkarte karte
    kartennummer carte tarjeta carta cartão kaart kort
"""
_CARD_WORDS = frozenset(_CARD_TEXT.split())


def find_cards(page: ScannedText) -> Iterator[Detection]:
    """Numbers of payment cards: an issuer's beginning and length, and Luhn's check digit."""
    is_told = page.says(_CARD_WORDS) or (not page.text.isascii() and page.has("卡", "カード"))
    for match in _CARD.finditer(page.bare):
        if _is_card(match[0], may_be_rare=is_told or not match[0].isdigit()):
            yield Detection(match.start(), match.end(), "card")
    for match in _GROUPED.finditer(page.bare):
        gap = match[match.lastgroup or 0]
        is_alone = not re.search(rf"\d{re.escape(gap)}\Z", page.bare[max(0, match.start() - 4) : match.start()])
        is_alone = is_alone and not re.match(rf"{re.escape(gap)}\d", page.bare[match.end() : match.end() + 4])
        if (is_alone or is_told) and _is_card(match[0], may_be_rare=is_told):
            yield Detection(match.start(), match.end(), "card")


def _is_card(text: str, *, may_be_rare: bool) -> bool:
    digits = re.sub(r"\D", "", text)
    is_issued = _BRAND.fullmatch(digits) or (may_be_rare and _RARE.fullmatch(digits))
    return bool(is_issued) and _luhn(digits) and len(set(digits)) > 3


def _luhn(digits: str) -> bool:
    doubled = (2 * int(digit) - 9 * (digit > "4") for digit in digits[-2::-2])
    return (sum(map(int, digits[::-2])) + sum(doubled)) % 10 == 0


# -- accounts ---------------------------------------------------------------------------------------------------------

_LENGTH_TEXT = """
    AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DK18 DO28 EE20 EG29 ES24 FI18 FO18
    FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21
    LY25 MC27 MD24 ME22 MK19 MR27 MT31 MU30 NL18 NO15 PK24 PL28 PS29 PT25 QA29 RO24 RS22 SA24 SC31 SE24 SI19 SK24 SM27
    ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20
"""
_LENGTHS = {one[:2]: int(one[2:]) for one in _LENGTH_TEXT.split()}
_IBAN = re.compile(
    r"\d\d(?:(?<=[A-Z][A-Z]\d\d)|(?<=[a-z][a-z]\d\d)|(?<=[A-Z][A-Z][ .:/_-]\d\d))(?=[^\w\n]{0,3}[A-Za-z0-9]|_)"
)
_BETWEEN = 3
"""Signs between two groups of an account's number."""


def find_ibans(page: ScannedText) -> Iterator[Detection]:
    """International account numbers: a country's length, and the check digits."""
    for match in _IBAN.finditer(page.bare):
        start = match.start() - (2 if page.bare[match.start() - 1].isalpha() else 3)
        length = _LENGTHS.get(page.bare[start : start + 2].upper())
        if length is None or page.bare[max(0, start - 1) : start].isalnum():
            continue
        end = start
        letters = ""
        for place, letter in enumerate(page.bare[start : start + 4 * length], start + 1):
            if len(letters) == length or place - end > _BETWEEN + 1 or letter == "\n":
                break
            if letter.isalnum():
                letters += letter
                end = place
        is_end = not page.bare[end : end + 1].isalnum()
        if len(letters) == length and is_end and letters.isascii() and _remainder(letters) == 1:
            yield Detection(start, end, "iban")


def _remainder(iban: str) -> int:
    return int("".join(str(int(letter, 36)) for letter in iban[4:] + iban[:4])) % 97


# -- people -----------------------------------------------------------------------------------------------------------


def _dni(letters: str) -> bool:
    digits = letters[:-1].translate(str.maketrans("XYZ", "012"))
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(digits) % 23] == letters[-1]


def _nir(letters: str) -> bool:
    return 97 - int(letters[:13]) % 97 == int(letters[13:])


def _belgian(letters: str) -> bool:
    return int(letters[9:]) in (97 - int(letters[:9]) % 97, 97 - int(f"2{letters[:9]}") % 97)


def _resident(letters: str) -> bool:
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    total = sum(int(digit) * weight for digit, weight in zip(letters[:17], weights, strict=True))
    return "10X98765432"[total % 11] == letters[17].upper()


_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "dni": _dni, "nir": _nir, "be": _belgian, "cn": _resident, "se": _luhn,
}  # fmt: skip
"""By the name of the form; others have a form that nothing else has."""
_DAY = r"(?:0[1-9]|[12]\d|3[01])"
_MONTH = r"(?:0[1-9]|1[0-2])"
_FORMS = re.compile(
    rf"""(?:(?P<us>(?!000|666|9)\d{{3}}-(?!00)\d\d-(?!0000)\d{{4}})
    |(?P<dni>[XYZ\d]\d{{7}}-?[A-HJ-NP-TV-Z])
    |(?P<nir>[12]\ ?\d\d\ ?{_MONTH}\ ?\d\d\ ?\d{{3}}\ ?\d{{3}}\ ?\d\d)
    |(?P<it>[A-Z]{{6}}\d\d[A-EHLMPRST](?:{_DAY}|[4-7]\d)[A-Z]\d{{3}}[A-Z])
    |(?P<br>\d{{3}}\.\d{{3}}\.\d{{3}}-\d\d)
    |(?P<ch>756\.\d{{4}}\.\d{{4}}\.\d\d)
    |(?P<be>\d\d\.{_MONTH}\.{_DAY}-\d{{3}}\.\d\d)
    |(?P<cn>\d{{6}}(?:19|20)\d\d{_MONTH}{_DAY}\d{{3}}[\dXx])
    |(?P<kr>\d\d{_MONTH}{_DAY}-[1-4]\d{{6}})
    |(?P<se>\d\d{_MONTH}{_DAY}[-+]\d{{4}})
    |(?P<mx>[A-Z]{{4}}\d\d{_MONTH}{_DAY}(?:[HM][A-Z]{{5}}[A-Z0-9]\d|[A-Z0-9]{{3}}))
    |(?P<in>[A-Z]{{3}}[ABCFGHJLPT][A-Z]\d{{4}}[A-Z])
    |(?P<gb>(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]\d{{6}}[A-D]))(?![\w-])""",
    re.VERBOSE,
)
"""Forms that a number of a person has without a word before it, by the country or the number's name."""
_BEGIN = re.compile(r"[A-Z\d](?<![\w.-].)(?=(?:[A-Z .+-]{0,6}\d){4})")
"""Where one can begin."""
_NAMED = re.compile(
    r"""(?:\b(?:ssn|social(?:\ security)?|sin|nino?|ni\ number|national\ insurance|tax\ (?:id|number)|tin|tfn|itin
    |steuer-?(?:id|identifikationsnummer|nummer)|idnr|passport|reisepass\w*|passeport|pasaporte|personalausweis\w*
    |ausweis\w*|(?:driver'?s?|driving)\ licen[cs]e|führerschein\w*|dni|nie|nif|nir|n°\ de\ sécu\w*|sécurité\ sociale
    |codice\ fiscale|bsn|burgerservicenummer|pesel|cpf|cnpj|curp|pan|aadhaa?r|personnummer|henkilötunnus|hetu|cpr
    |fødselsnummer|rijksregisternummer|insz|ahv|avs|egn|cnp|oib|emšo|national\ id(?:entity)?|identity|id\ card|medicare
    |nhs|rrn
    |(?:id|insurance|tax|fiscal|social)\ (?:number|no\.?|code)|numéro\ fiscal|kimlik|sozialversicherungsnummer|svnr)\b
    |身份证号?码?|マイナンバー|주민등록번호)
    (?:[-.\ ]{0,2}(?:nr|no|number|num|n°|nummer|card)\b\.?)?[\s:#="'is]{0,12}?
    (?P<secret>(?-i:(?=(?:[A-Z .-]{0,8}\d){5})[A-Z0-9](?:[ .-]?[A-Z0-9]){5,19}+))(?!\w)""",
    re.IGNORECASE | re.VERBOSE,
)
_NAME_TEXT = """
    ssn social sin nin nino ni insurance tax tin tfn itin steuer steueridentifikationsnummer steuernummer idnr passport
    reisepass reisepassnummer passeport pasaporte personalausweis personalausweisnummer ausweis ausweisnummer license
    licence führerschein führerscheinnummer dni nie nif nir sécu sécurité codice bsn burgerservicenummer pesel cpf cnpj
    curp pan aadhaar aadhar personnummer henkilötunnus hetu cpr fødselsnummer rijksregisternummer insz ahv avs egn
    cnp oib emšo national identity id medicare nhs rrn id fiscal
    kimlik sozialversicherungsnummer svnr
"""
_NAMES = frozenset(_NAME_TEXT.split())
_EASTERN = ("身份", "マイナンバー", "주민등록번호")
_EASTERN_NAME = re.compile("|".join(_EASTERN))
_BEFORE = 60
_BEHIND = 24
"""Characters before and behind five digits in which a name and the rest of its number stand."""
_DIGITS = re.compile(r"\d\D{0,3}\d\D{0,3}\d\D{0,3}\d\D{0,3}\d")
_FOUR_DIGITS = re.compile(r"\d\D{0,3}\d\D{0,3}\d\D{0,3}\d")


def find_identities(page: ScannedText) -> Iterator[Detection]:
    """Numbers of people in their countries, by form and check digit, or by the word before them."""
    if _FOUR_DIGITS.search(page.bare) is None:
        return
    for match in filter(None, (_FORMS.match(page.bare, begin.start()) for begin in _BEGIN.finditer(page.bare))):
        check = _CHECKS.get(match.lastgroup or "")
        if check is None or check(re.sub(r"[^0-9A-Za-z]", "", match[0])):
            yield Detection(match.start(), match.end(), "id")
    if page.says(_NAMES) or (not page.text.isascii() and page.has(*_EASTERN)):
        for digits in _DIGITS.finditer(page.bare):
            start = max(0, digits.start() - _BEFORE)
            if not page.says(_NAMES, start, digits.end()) and not _EASTERN_NAME.search(page.bare, start, digits.end()):
                continue
            for match in _NAMED.finditer(page.bare, start, digits.end() + _BEHIND):
                yield Detection(*match.span("secret"), "id")
