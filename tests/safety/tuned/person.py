"""Personal data on which the detector was tuned."""

from tests.safety.draw import Draw, Form, forms, grouped, luhn, weighted

EMAIL = forms(
    """
«{user}@{host}»
«{user}.{surname}@{host}»
<«{user}@{host}»>
e-mail: «{user}-{surname}{d:2}@{host}»
mailto:«{user}@{host}»
?email=«{user}%40{host}»
«{user} [at] {host}»
«{user}[at]{word}[dot]de»
«{user}(at){word}(dot)de»
«{user}@köln-{word}.de»
"{user}" «{user}@{host}»
my mail is «{user} at {word} dot com»
«{user}_at_{word}.com»
"""
)


def _card(brand: str, sizes: tuple[int, ...], sign: str, around: str) -> Form:
    def made(draw: Draw) -> str:
        return draw.fill(around).replace("CARD", f"«{grouped(draw.a_card(brand), sizes, sign)}»")

    return made


CARD: list[Form] = [
    _card("visa", (4,), " ", "CARD"),
    _card("visa", (4,), "-", "card CARD, please"),
    _card("mastercard", (16,), "", "CARD"),
    _card("amex", (4, 6, 5), "-", "CARD"),
    _card("discover", (16,), "", "number: CARD"),
    _card("unionpay", (16,), "", "CARD"),
]


def _iban(country: str, *, compact: bool = False, around: str = "IBAN") -> Form:
    def made(draw: Draw) -> str:
        iban = draw.a_iban(country)
        return around.replace("IBAN", f"«{iban if compact else grouped(iban, (4,))}»")

    return made


IBAN: list[Form] = [
    _iban("DE"),
    _iban("DE", compact=True, around="Konto IBAN."),
    _iban("GB", compact=True),
    _iban("FR", around="Mon compte : IBAN"),
    _iban("CH", compact=True),
    _iban("DK"),
    _iban("IE"),
]
PHONE_INTERNATIONAL = forms(
    """
«+1 415 55{m:1} {d:4}»
«+1.650.{m:1}{d:1}{m:1}.{d:4}»
«+44 20 7946 {d:4}»
«+44-7712-{d:6}»
«+49 151 {m:1}{d:7}»
«+49 (89) {m:1}{d:6}»
«0041 44 {m:1}{d:2} {d:2} {d:2}»
«+33 1 42 {d:2} {d:2} {d:2}»
«+39 333 {m:1}{d:6}»
tel:«+33142{d:6}»
«+32 470 {d:2} {d:2} {d:2}»
"""
)
PHONE_NATIONAL = forms(
    """
«(212) {m:1}{d:1}{m:1}-{d:4}»
«415-{m:1}{d:1}{m:1}-{d:4}»
Phone: «415 {m:1}{d:1}{m:1} {d:4}»
tel «020 7946 {d:4}»
Telefon: «089 {m:1}{d:6}»
Mobil: «0151 {m:1}{d:7}»
Tel: «06 12 {d:2} {d:2} {d:2}»
Téléphone : «01 42 {d:2} {d:2} {d:2}»
teléfono: «91 {m:1}{d:2} {d:2} {d:2}»
Tel. «044 {m:1}{d:2} {d:2} {d:2}»
my number is «415-{m:1}{d:1}{m:1}-{d:4}»
phone_number=«6505{m:1}{d:1}{d:4}»
"""
)
IP = forms(
    """
«{ipv4}»
from «{ipv4}»:443
ip=«{ipv4}»
«{ipv4}» - - [
«{ipv6}»
[«{ipv6}»]:80
«2a00:1450:{hex:4}:{hex:3}::{hex:4}»
"""
)


def _ssn(draw: Draw) -> str:
    return f"«{draw.random.randint(100, 664)}-{draw.random.randint(1, 99):02d}-{draw.random.randint(1, 9999):04d}»"


def _nie(draw: Draw) -> str:
    number = draw.of("0123456789", 7)
    return f"NIE «X{number}{'TRWAGMYFPDXBNJZSQVHLCKE'[int(number) % 23]}»"


def _aadhaar(draw: Draw) -> str:
    body = draw.fill("{m:1}{d:10}")
    table = (
        "0123456789", "1234067895", "2340178956", "3401289567", "4012395678",
        "5987604321", "6598710432", "7659821043", "8765932104", "9876543210",
    )  # fmt: skip
    turns = (
        "0123456789",
        "1576283094",
        "5803796142",
        "8916043527",
        "9453126870",
        "4286573901",
        "2793806415",
        "7046913258",
    )
    check = 0
    for place, digit in enumerate(reversed(body), 1):
        check = int(table[check][int(turns[place % 8][int(digit)])])
    return f"Aadhaar «{grouped(body + '0432156789'[check], (4,))}»"


def _cnpj_like_sin(draw: Draw) -> str:
    body = draw.pick("1245") + draw.of("0123456789", 7)
    return f"SIN: «{grouped(body + luhn(body), (3,), '-')}»"


def _belgian(draw: Draw) -> str:
    body = draw.fill("8{d:1}{month}{day}{d:3}")
    check = 97 - int(body) % 97
    return f"rijksregisternummer «{body[:2]}.{body[2:4]}.{body[4:6]}-{body[6:]}.{check:02d}»"


def _tfn(draw: Draw) -> str:
    while True:
        body = draw.fill("{n:1}{d:8}")
        if weighted(body, (1, 4, 3, 7, 5, 8, 6, 9, 10), 11) == 0:
            return f"TFN «{grouped(body, (3,))}»"


NATIONAL_ID: list[Form] = [
    lambda draw: f"SSN {_ssn(draw)}",
    lambda draw: f"my social security number is {_ssn(draw)}",
    _ssn,
    _nie,
    _aadhaar,
    _cnpj_like_sin,
    _belgian,
    _tfn,
    "NINO: «QQ{d:6}A»".replace("QQ", "JG"),
    "passport number: «X{d:7}»",
    "Personalausweisnummer «L{alnum:0}{d:8}»".replace("{alnum:0}", ""),
    *forms(
        """
numéro fiscal : «{d:13}»
CURP «ABCD{d:2}{month}{day}HDFRRL0{d:1}»
RFC: «ABCD{d:2}{month}{day}AB{d:1}»
TC kimlik no «{n:1}{d:10}»
EGN «{d:10}»
ID number: «{d:9}»
insurance number «A{d:9}»
NHS number «{d:3} {d:3} {d:4}»
Sozialversicherungsnummer «{d:2}{day}{month}{d:2}B{d:3}»
my driver's licence is «{upper:1}{d:12}»
driver's license «D{d:7}»
"""
    ),
]
