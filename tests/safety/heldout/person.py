"""Personal data, by class: addresses, numbers of phones, accounts, cards and people."""

from tests.safety.draw import Draw, Form, forms, grouped, luhn, weighted

EMAIL = forms(
    """
write to «{user}.{surname}@{host}», please
«{user}+{word}{d:2}@{host}»
From: {user} {surname} <«{user}_{surname}@{host}»>
mailto:«{user}@{host}»?subject=Hi
https://example.com/u?email=«{user}%40{host}»&x=1
«{user} [at] {word} [dot] com»
«{user}(at){word}.org»
«{user} at {word} dot net»
«{user} AT {word} DOT com»
«{user}@xn--mnchen-3ya.example.com»
«{user}@müller-{word}.de»
«{user}o'neil@{host}»
«"{user} {surname}"@{host}»
«{user}@[23.45.67.89]»
«{user}.{surname}@mail.{word}.museum»
cc:«{user}@{host}»;«{surname}@{host}»
('«{user}{d:3}@{host}»', True)
email:«{user}@{host}».
git log: Author: {user} <«{d:8}+{user}@users.noreply.example.com»>
«用户{d:3}@例子.公司»
<a href="mailto:«{user}@{host}»">{user}</a>
xmpp:«{user}@jabber.{word}.org»/phone
«{user}&#64;{host}»
«{user}@{word}_internal.example.com»
"""
)


def _cards(brand: str, sizes: tuple[int, ...], sign: str, around: str) -> Form:
    def made(draw: Draw) -> str:
        return draw.fill(around).replace("CARD", f"«{grouped(draw.a_card(brand), sizes, sign)}»")

    return made


CARD: list[Form] = [
    _cards("visa", (16,), "", "CARD"),
    _cards("visa", (4,), " ", "charge my card CARD exp 12/29 cvc 123"),
    _cards("mastercard", (4,), "-", "cc: CARD"),
    _cards("mastercard", (16,), "", '{"number": "CARD", "name": "{user}"}'),
    _cards("amex", (4, 6, 5), " ", "Amex CARD"),
    _cards("amex", (15,), "", "paid with CARD."),
    _cards("discover", (4,), " ", "the card number is CARD"),
    _cards("jcb", (4,), "-", "JCB: CARD"),
    _cards("diners", (4, 6, 4), " ", "Diners CARD"),
    _cards("unionpay", (4,), " ", "银联卡号 CARD"),
    _cards("maestro", (4,), " ", "Maestro CARD"),
    _cards("visa", (4,), "\u00a0", "Karte CARD"),
    _cards("mastercard", (4,), ".", "Carte CARD"),
    _cards("visa", (16,), "", "2026-01-03 12:00:01 INFO payment pan=CARD amount=12.00"),
]


def _ibans(country: str, *, compact: bool = False, around: str = "IBAN") -> Form:
    def made(draw: Draw) -> str:
        iban = draw.a_iban(country)
        return draw.fill(around).replace("IBAN", f"«{iban if compact else grouped(iban, (4,))}»")

    return made


IBAN: list[Form] = [
    _ibans("DE", around="Bitte auf IBAN überweisen."),
    _ibans("GB", around="pay IBAN today"),
    _ibans("FR", around="IBAN "),
    _ibans("NL", compact=True, around="rekening IBAN t.n.v. {user}"),
    _ibans("ES", around="cuenta IBAN"),
    _ibans("IT", compact=True, around='{"account": "IBAN"}'),
    _ibans("CH", around="Konto: IBAN"),
    _ibans("AT", compact=True, around="(IBAN)"),
    _ibans("BE", around="IBAN\nBIC GEBABEBB"),
    _ibans("PL", around="Nr konta IBAN"),
    _ibans("SE", compact=True, around="IBAN"),
    _ibans("NO", around="IBAN,"),
    _ibans("SA", compact=True, around="account IBAN"),
    _ibans("TR", around="hesap IBAN"),
    lambda draw: f"iban: «{draw.a_iban('PT').lower()}»",
    lambda draw: f"IBAN «{grouped(draw.a_iban('FI'), (4,), '-')}»",
]
PHONE_INTERNATIONAL = forms(
    """
«+1 (415) 55{m:1}-{d:4}»
call «+1-212-{m:1}{d:1}{m:1}-{d:4}» now
«+4420794{d:5}»
«+44 (0)20 7946 {d:4}»
«+49 30 {m:1}{d:6}»
«+49 (0) 171 {m:1}{d:6}»
Tel. «0049 89 {m:1}{d:6}»
«+33 6 {d:2} {d:2} {d:2} {d:2}»
«00 33 1 42 {d:2} {d:2} {d:2}»
«+34 6{d:2} {d:2} {d:2} {d:2}»
«+39 06 {m:1}{d:7}»
«+31 6 1{d:7}»
«+41 79 {m:1}{d:2} {d:2} {d:2}»
«+43 664 {m:1}{d:6}»
«+46 70 {m:1}{d:2} {d:2} {d:2}»
«+48 60{d:1} {d:3} {d:3}»
«+55 11 9{m:1}{d:3}-{d:4}»
«+91 98{d:3} {d:5}»
«+81 90-{m:1}{d:3}-{d:4}»
«+86 138 {d:4} {d:4}»
«+61 41{d:1} {d:3} {d:3}»
«+27 82 {m:1}{d:2} {d:4}»
«+7 916 {m:1}{d:2}-{d:2}-{d:2}»
«+90 532 {m:1}{d:2} {d:2} {d:2}»
tel:«+1202{m:1}{d:1}{m:1}{d:4}»
https://wa.me/«49151{m:1}{d:7}»
WhatsApp: «+52 55 {m:1}{d:3} {d:4}»
«+45.{m:1}{d:1}.{d:2}.{d:2}.{d:2}»
sip:«+4930{m:1}{d:6}»@example.com
«+44 7712 {d:6}»
"""
)
PHONE_NATIONAL = forms(
    """
Call me at «(415) {m:1}{d:1}{m:1}-{d:4}».
«212-{m:1}{d:1}{m:1}-{d:4}»
phone «303.{m:1}{d:1}{m:1}.{d:4}»
my cell is «617 {m:1}{d:1}{m:1} {d:4}»
Phone: «1-800-{m:1}{d:1}{m:1}-{d:4}»
ring me on «020 7946 {d:4}»
mobile «07712 {d:6}»
Tel.: «030 {m:1}{d:6}»
Telefon «089/{m:1}{d:6}»
Handy: «0171-{m:1}{d:6}»
Tél. «06 {d:2} {d:2} {d:2} {d:2}»
appelle-moi au «01.42.{d:2}.{d:2}.{d:2}»
Tfno: «6{d:2} {d:3} {d:3}»
llámame al «91 {m:1}{d:2} {d:2} {d:2}»
cell. «333 {m:1}{d:6}»
telefono «06 {m:1}{d:7}»
bel «06-2{d:7}»
Natel «079 {m:1}{d:2} {d:2} {d:2}»
ligue para «(11) 9{m:1}{d:3}-{d:4}»
電話 «03-{m:1}{d:3}-{d:4}»
call «041{d:1} {d:3} {d:3}»
mobile number: «98{d:8}»
Fax: «0221 {m:1}{d:5}»
ring «070-{m:1}{d:2} {d:2} {d:2}»
{"phone": "«212{m:1}{d:1}{m:1}{d:4}»"}
"""
)
IP: list[Form] = [
    *forms(
        """
client «{ipv4}» connected
«{ipv4}» - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 2326
Failed password for root from «{ipv4}» port 52144 ssh2
X-Forwarded-For: «{ipv4}», 10.0.0.1
http://«{ipv4}»:8080/admin
my ip is «{ipv4}».
«{ipv6}»
connect to [«{ipv6}»]:443
remote_addr=«{ipv6}»
inet6 «2a02:{hex:4}:{hex:4}::{hex:4}»/64
"ip": "«{ipv4}»"
"""
    ),
    "ping «{ipv4}»\n64 bytes",
    "ssh root@«{ipv4}»",
    "route «{ipv4}»/32 via 10.0.0.1",
    "«2001:4860:{hex:4}::{hex:4}:{hex:3}» joined",
]  # fmt: skip


# -- national ids ------------------------------------------------------------------------------------------------------


def _ssn(draw: Draw) -> str:
    area = draw.random.choice([*range(100, 665), *range(667, 899)])
    return f"«{area}-{draw.random.randint(1, 99):02d}-{draw.random.randint(1, 9999):04d}»"


def _dni(draw: Draw) -> str:
    number = draw.of("0123456789", 8)
    return f"DNI «{number}{'TRWAGMYFPDXBNJZSQVHLCKE'[int(number) % 23]}»"


def _nir(draw: Draw) -> str:
    body = draw.fill("{n:1}").translate(str.maketrans("3456789", "1212121")) + draw.fill("{d:2}{month}75{d:6}")
    return f"n° de sécu «{grouped(body, (1, 2, 2, 2, 3, 3))} {97 - int(body) % 97:02d}»"


def _codice_fiscale(draw: Draw) -> str:
    letters = "BCDFGHLMNPRSTVZ"
    body = draw.of(letters, 6) + draw.fill("{d:2}") + draw.pick("ABCDEHLMPRST") + draw.a_day() + "H501"
    odd = dict(zip("0123456789", (1, 0, 5, 7, 9, 13, 15, 17, 19, 21), strict=True))
    values = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)
    odd |= dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", values, strict=True))
    total = sum(odd[c] if n % 2 == 0 else (int(c) if c.isdigit() else ord(c) - 65) for n, c in enumerate(body))
    return f"codice fiscale «{body}{chr(65 + total % 26)}»"


def _steuer_id(draw: Draw) -> str:
    digits = draw.random.sample("0123456789", 10)
    digits[1 + draw.random.randrange(9)] = digits[0]
    if digits[0] == "0":
        digits = ["1" if d == "0" else "0" if d == "1" else d for d in digits]
    product = 10
    for digit in digits:
        total = (int(digit) + product) % 10 or 10
        product = total * 2 % 11
    body = "".join(digits) + str((11 - product) % 10)
    return f"Steuer-ID: «{grouped(body, (2, 3, 3, 3))}»"


def _bsn(draw: Draw) -> str:
    while True:
        body = draw.fill("{n:1}{d:7}")
        check = weighted(body, (9, 8, 7, 6, 5, 4, 3, 2), 11)
        if check < 10:
            return f"BSN «{body}{check}»"


def _pesel(draw: Draw) -> str:
    body = draw.fill("{d:2}{month}{day}{d:4}")
    return f"PESEL: «{body}{-weighted(body, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3), 10) % 10}»"


def _cpf(draw: Draw) -> str:
    body = draw.of("0123456789", 9)
    for count in (10, 11):
        check = weighted(body, range(count, 1, -1), 11)
        body += str(0 if check < 2 else 11 - check)
    return f"CPF «{body[:3]}.{body[3:6]}.{body[6:9]}-{body[9:]}»"


def _sin(draw: Draw) -> str:
    body = draw.pick("124567") + draw.of("0123456789", 7)
    return f"SIN «{grouped(body + luhn(body), (3,))}»"


def _personnummer(draw: Draw) -> str:
    body = draw.fill("{d:2}{month}{day}{d:3}")
    return f"personnummer «{body[:6]}-{body[6:]}{luhn(body)}»"


def _ahv(draw: Draw) -> str:
    body = "756" + draw.of("0123456789", 9)
    check = -weighted(body, (1, 3) * 6, 10) % 10
    return f"AHV-Nr. «{grouped(f'{body}{check}', (3, 4, 4, 2), '.')}»"


def _fodselsnummer(draw: Draw) -> str:
    while True:
        body = draw.fill("{day}{month}{d:2}{d:3}")
        first = -weighted(body, (3, 7, 6, 1, 8, 9, 4, 5, 2), 11) % 11
        second = -weighted(f"{body}{min(first, 9)}", (5, 4, 3, 2, 7, 6, 5, 4, 3, 2), 11) % 11
        if first < 10 and second < 10:
            return f"fødselsnummer «{body[:6]} {body[6:]}{first}{second}»"


def _resident(draw: Draw) -> str:
    body = draw.fill("11010119{n:1}{d:1}{month}{day}{d:3}")
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    return f"身份证号 «{body}{'10X98765432'[weighted(body, weights, 11)]}»"


NATIONAL_ID: list[Form] = [
    lambda draw: f"SSN: {_ssn(draw)}",
    lambda draw: f"her social is {_ssn(draw)}, born in May",
    "NI number «AB {d:2} {d:2} {d:2} C»",
    _dni,
    _nir,
    _codice_fiscale,
    _steuer_id,
    _bsn,
    _pesel,
    _cpf,
    _sin,
    _personnummer,
    _ahv,
    _fodselsnummer,
    _resident,
    *forms(
        """
passport no. «C{d:8}»
driving licence number: «MORGA{d:6}SM9IJ»
PAN: «ABCPK{d:4}L»
CPR «{day}{month}7{d:1}-{d:4}»
주민등록번호 «8{d:1}{month}{day}-1{d:6}»
"""
    ),
]
