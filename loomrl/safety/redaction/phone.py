"""The layer for numbers of phones: `phonenumbers` knows the plans of all countries, we know what stands before one."""

import re
from collections.abc import Iterator

import phonenumbers

from loomrl.safety.redaction.finding import Detection, ScannedText

_BODY = r"\d(?:[ \u00a0().\-/]{0,3}\d)"
_ABROAD = re.compile(rf"(?<![\w+.,])(?:\(?\+[ ]?|00[ \u00a0]?(?=[1-9]))(?=[1-9(]){_BODY}{{6,16}}(?!\d)")
_AMERICAN = re.compile(
    r"(?<![\w.+/-])(?<!\d )(?:1[-. ])?(?:\([2-9]\d\d\) ?[2-9]\d\d[-. ]|[2-9]\d\d(?P<sign>[-.])[2-9]\d\d(?P=sign))\d{4}"
    r"(?![\w-]|\.\d)"
)
_AMERICAN_PART = re.compile(r"[2-9]\d\d(?:\) ?|[-.])[2-9]\d\d[-. ]\d{4}")
_S = r"[ \u00a0.\-/]"
_HOME = re.compile(
    rf"""(?:
    (?P<FR>0[1-9](?P<fr>{_S})\d\d(?P=fr)\d\d(?P=fr)\d\d(?P=fr)\d\d)
    |(?P<DE>01[5-7]\d[ /-]{{1,3}}\d{{3,4}}[ ]?\d{{3,5}}|\(0[2-9]\d{{1,4}}\)[ ]?\d{{3,5}}[ -]?\d{{2,5}})
    |(?P<AT>06[5-9]\d[ /-]{{1,3}}\d{{3}}[ ]?\d{{3,5}})
    |(?P<GB>07\d{{3}}[ -]\d{{3}}[ ]?\d{{3}}|\(?0(?:20|1\d\d\d?|11\d|1\d1)\)?[ -]\d{{3,4}}[ -]\d{{3,4}})
    |(?P<CH>0[2-9]\d(?P<ch>[ .])\d{{3}}(?P=ch)\d\d(?P=ch)\d\d)
    |(?P<NL>06[- ]\d{{4}}[ ]?\d{{4}})
    |(?P<AU>04\d\d[ ]\d{{3}}[ ]\d{{3}}|\(0[2378]\)[ ]\d{{4}}[ ]\d{{4}})
    |(?P<JP>0[789]0-\d{{4}}-\d{{4}})
    |(?P<KR>01[016-9]-\d{{3,4}}-\d{{4}})
    |(?P<CN>1[3-9]\d[ -]\d{{4}}[ -]\d{{4}})
    |(?P<BR>\(\d\d\)[ ]?9?\d{{4}}-\d{{4}})
    |(?P<RU>8[ -]?\(9\d\d\)[ -]?\d{{3}}-?\d\d-?\d\d)
    |(?P<SE>07[02369]-\d{{3}}[ ]\d\d[ ]\d\d)
    |(?P<IT>3[2-9]\d[ -]\d{{7}})
    )(?![A-Za-z0-9_-]|[ .,:/]\d)""",
    re.VERBOSE,
)
"""Numbers as people of a country write them at home, where nothing else looks the same."""
_HOME_START = re.compile(r"[0138(](?<![A-Za-z0-9_.,:+/-].)(?<!\d .)(?=\d)")
_LINK = re.compile(r"\bwa\.me/(?P<secret>\d{8,15})\b")
_NUMBER = re.compile(r"(?<![A-Za-z0-9_+,/-])\(?\d(?:[ \u00a0().\-/]{0,3}\d){6,12}(?!\d)")
_CALLED = re.compile(
    r"""(?:\b(?:telephone|telefon[eo]?|telefoon|telefoonnummer|tfno|tlf|tel|tél|téléphone|teléfono|fono?|phones?|mobile
    |mobil|móvil|cellulare|cell|cel|celular|portable|gsm|handy|natel|fax|whats\ ?app|signal|viber|call|ring|dial|text
    |sms|reach|rufen?|anrufe?n?|erreichbar|appelle|appelez|appeler|joindre|llámame|llame|llamar|llama|chiama|chiamami|bel
    |bellen|ligue|ligar|numara|landline|hotline|(?:my|our|his|her|their)\ (?:new\ |old\ )?number(?:['’]s)?
    |(?:mon|ton|son|notre|votre)\ (?:nouveau\ )?numéro|(?:meine|deine|seine|ihre|unsere)\ (?:neue\ )?(?:handy)?nummer
    |(?:mi|tu|su|nuestro)\ (?:nuevo\ )?(?:número|numero)|(?:il\ )?(?:mio|tuo|suo|nostro)\ (?:nuovo\ )?numero
    |(?:o\ )?(?:meu|seu|nosso)\ (?:novo\ )?(?:número|numero)|(?:mijn|zijn|haar|ons)\ (?:nieuwe\ )?nummer
    |(?:mitt|mit|min|vårt|vores|vår)\ (?:nya\ |nye\ )?(?:telefon)?nummer(?:et)?
    |(?:mój|moj|moje|můj)\ (?:numer|číslo|broj)
    |(?:numerom|puhelinnumeroni|numaram|telefonszámom|telefonul|numărul|telefonnummer|telefonszám|puhelin|τηλέφωνο)
    |(?:мой|наш|мій)\ (?:новый\ |новий\ )?номер|telefoni?|handynummer|mobilnummer|mobiltelefon|écris|scrivimi|escríbeme)
    |phone|mobile|電話|电话|手机|手機|携帯|番号|号码|號碼|전화|번호|тел|номер)
    (?:[\ _-]?(?:number|no|num|nr|nummer|numéro|número|numero)\b)?[\s.:=\#"'»>(-]{0,6}
    (?:(?:me|us|him|her|it|is|on|at|under|unter|an|au|al|a|para|op|to|of|the|my|ist|est|es|è|é|er|är|on|to|je|ми|moi|le|el|il|sie
    |mich|uns|you|at|это|є|是|は|는|은)(?:\b|(?<=[は是는은]))[\s:]{0,3}){0,3}\Z""",
    re.IGNORECASE | re.VERBOSE,
)
"""Words before a number that is one to call."""
_BEFORE = 45
_WORD_TEXT = """
    telephone telefon telefono telefone telefoon telefoonnummer tfno tlf tel tél téléphone teléfono fon fono phone
    phones phonenumber mobilephone mobile mobil móvil cellulare cell cel celular portable gsm handy natel fax whatsapp
    whats signal viber call ring dial text sms reach
    numéro nummer numero número numer numaram numerom puhelinnumeroni telefonszámom telefonszám telefonul numărul broj
    číslo номер handynummer mobilnummer mobiltelefon telefonnummer nummeret telefoni puhelin τηλέφωνο écris scrivimi
    escríbeme
    ruf rufe rufen anruf anrufe anrufen erreichbar appelle appelez appeler joindre
    llámame llame llamar llama chiama chiamami bel bellen ligue ligar numara landline hotline number
"""
_WORDS = frozenset(_WORD_TEXT.split())
_EASTERN = ("電話", "电话", "手机", "手機", "携帯", "番号", "号码", "號碼", "전화", "번호", "тел", "номер")
_EVEN_GLUED = re.compile(f"(?i:phone|mobile)|{'|'.join(_EASTERN)}")
_REGIONS = (
    *("US", "GB", "DE", "FR", "ES", "IT", "CH", "AT", "NL", "BE", "SE", "NO", "DK", "FI", "PL", "PT", "IE", "CZ", "GR"),
    *("BR", "MX", "AR", "IN", "JP", "CN", "KR", "AU", "NZ", "ZA", "TR", "RU", "UA", "IL", "SG", "HK"),
)
_DIGITS = re.compile(r"\d(?:\D{0,3}\d){6}")


def find_phones(page: ScannedText) -> Iterator[Detection]:
    """Numbers of phones: with a country's prefix, as Americans write them, or after a word like `tel`."""
    if _DIGITS.search(page.bare) is None:
        return
    if "+" in page.bare or "00" in page.bare:
        for match in _ABROAD.finditer(page.bare):
            yield from _find_number(match, 0, None)
    if _AMERICAN_PART.search(page.bare) is not None:
        for match in _AMERICAN.finditer(page.bare):
            if match[0][0] == "(":  # regardless of the plan: nothing else looks like that
                yield Detection(match.start(), match.end(), "phone")
            yield from _find_number(match, 0, "US")
    for match in filter(None, (_HOME.match(page.bare, start.start()) for start in _HOME_START.finditer(page.bare))):
        yield from _find_number(match, 0, match.lastgroup)
    if page.has("wa.me/"):
        for match in _LINK.finditer(page.text):
            yield Detection(*match.span("secret"), "phone")
    if page.says(_WORDS) or page.has("phone", "mobile") or (not page.text.isascii() and page.has(*_EASTERN)):
        for match in _NUMBER.finditer(page.bare):
            start = max(0, match.start() - _BEFORE)
            is_near = page.says(_WORDS, start, match.start()) or _EVEN_GLUED.search(page.bare, start, match.start())
            if is_near and _CALLED.search(page.bare, start, match.start()):
                yield from _find_number(match, 0, *_REGIONS)


def _find_number(match: re.Match[str], group: int | str, *regions: str | None) -> Iterator[Detection]:
    """The longest beginning of a match that is a number in one of the regions; None stands for all the world."""
    number = match[group]
    while len(number) >= 7:
        if any(_is_number(number, region) for region in regions):
            yield Detection(match.start(group), match.start(group) + len(number), "phone")
            return
        number = number.rstrip("0123456789").rstrip(" \u00a0.-/()")


def _is_number(text: str, region: str | None) -> bool:
    if region is None:
        text = re.sub(r"^\(?00", "+", text).replace("(0)", " ")
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(text, region))
    except phonenumbers.NumberParseException:
        return False
